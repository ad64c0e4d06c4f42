"""A backend that torch does not have is said before anything is measured."""

from __future__ import annotations

import pytest

from compileboard.collectors.bench.plan import preflight


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("inducter", "torch has no such backend; it has inductor"),
        ("mine", "it has eager, inductor, tvm"),
    ],
)
def test_a_backend_that_torch_lacks_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    listed = ["eager", "inductor", "tvm", "relu_runtime_error_TESTING_ONLY"]
    monkeypatch.setattr(preflight, "list_backends", lambda: listed)
    with pytest.raises(ValueError, match=message):
        preflight.check_backend(name)
    preflight.check_backend("tvm")


def test_what_cannot_be_asked_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    assert preflight.list_backends() == []
    preflight.check_backend("anything")
