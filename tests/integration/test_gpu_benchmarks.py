"""Benchmarks that need a GPU say so where there is none."""

from __future__ import annotations

import importlib
import sys

import pytest

pytestmark = pytest.mark.torch
NEED_A_GPU = (
    *("steps.overhead", "steps.predictions", "cuda_graphs.replays"),
    *("cuda_graphs.fixes", "cuda_graphs.against_torch"),
)


@pytest.mark.parametrize("name", NEED_A_GPU)
def test_without_a_gpu_a_benchmark_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", [name])
    with pytest.raises(SystemExit, match="needs an NVIDIA GPU"):
        importlib.import_module(f"benchmarks.{name}").main()
