"""Torch itself says, in a child, what it does not have."""

from __future__ import annotations

import pytest

from compileboard.collectors.bench.plan import preflight
from compileboard.collectors.bench.plan.settings import BenchSettings
from tests.tools.observed import forking_environ


@pytest.mark.sampled(3)
@pytest.mark.torch
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            BenchSettings(compile_mode="nosuch"),
            "--mode nosuch: torch has no such mode; it has default, ",
        ),
        (BenchSettings(inductor_config=("max_autotun=1",)), "there is max_autotune"),
        (BenchSettings(inductor_config=("max_autotune=maybe",)), "expected 0, 1, True or False"),
    ],
)
def test_torch_is_asked(
    settings: BenchSettings, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in forking_environ().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        preflight.check_settings(settings)
    preflight.check_settings(
        BenchSettings(compile_mode="max-autotune", inductor_config=("max_autotune=1",))
    )
