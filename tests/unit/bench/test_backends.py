"""A backend that torch does not have is said before anything is measured."""

from __future__ import annotations

import pytest

from compileboard.collectors.bench import backends


@pytest.mark.parametrize(
    ("name", "said"),
    [("inducter", "torch has no such backend; it has inductor"), ("mine", "it has eager, inductor, tvm")],
)
def test_a_backend_that_torch_lacks_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
    listed = ["eager", "inductor", "tvm", "relu_runtime_error_TESTING_ONLY"]
    monkeypatch.setattr(backends, "list_backends", lambda: listed)
    with pytest.raises(ValueError, match=said):
        backends.check_backend(name)
    backends.check_backend("tvm")


def test_what_cannot_be_asked_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    assert backends.list_backends() == []
    backends.check_backend("anything")
