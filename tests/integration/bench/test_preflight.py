"""Torch itself says, in a child, what it does not have."""

from __future__ import annotations

import pytest

from compileboard.collectors.bench import preflight
from compileboard.collectors.bench.settings import Settings


@pytest.mark.torch
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings(compile_mode="nosuch"), "--mode nosuch: torch has no such mode; it has default, "),
        (Settings(inductor_config=("max_autotun=1",)), "there is max_autotune"),
        (Settings(inductor_config=("max_autotune=maybe",)), "expected 0, 1, True or False"),
    ],
)
def test_torch_is_asked(settings: Settings, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        preflight.check_settings(settings)
    preflight.check_settings(Settings(compile_mode="max-autotune", inductor_config=("max_autotune=1",)))
