"""Whether the level full has inductor say where kernels come from."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from compileboard.collectors.observe import torch_compat


@pytest.mark.parametrize(
    ("version", "own", "level"),
    [
        ("2.11.0+cu130", {}, "2"),
        ("2.9.1", {"INDUCTOR_PROVENANCE": "0"}, "0"),
        ("2.9.1", {"TORCH_COMPILE_DEBUG": "1"}, None),
        ("2.12.0", {}, None),
        ("2.13.0+cpu", {}, None),
    ],
)
def test_caches_that_ask_for_it_stay_in_use(
    monkeypatch: pytest.MonkeyPatch, version: str, own: dict[str, str], level: str | None
) -> None:
    config = SimpleNamespace(trace=SimpleNamespace(provenance_tracking_level=0))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__=version))
    monkeypatch.setitem(sys.modules, "torch._inductor.config", config)
    monkeypatch.setattr(os, "environ", dict(own))
    torch_compat.track_provenance()
    assert os.environ.get("INDUCTOR_PROVENANCE") == level
    assert config.trace.provenance_tracking_level == (2 if level == "2" else 0)
