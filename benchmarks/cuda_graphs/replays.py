"""Time replays of a CUDA graph with the hooks and without. Needs a GPU.

python -m benchmarks.cuda_graphs.replays
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.common import (
    Row,
    interleave,
    medians,
    observing,
    print_table,
    ratios,
    require_gpu,
    scratch_folder,
)

PAIRS = 15
CALLS = 2000


def compile_layers() -> Callable[[], Any]:
    layers = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).cuda()
    model = torch.compile(layers, mode="reduce-overhead")
    call = partial(model, torch.randn(8, 64, device="cuda"))
    with torch.no_grad():
        for _ in range(5):
            call()
    return call


def measure(call: Callable[[], Any]) -> float:
    with torch.no_grad():
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / CALLS


def measure_observed(call: Callable[[], Any], folder: Path) -> float:
    with observing(folder, must_record=False):
        return measure(call)


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    require_gpu()
    with scratch_folder() as folder:
        with observing(folder):
            call = compile_layers()
        pairs = interleave(PAIRS, partial(measure_observed, call, folder), partial(measure, call))
    with_hooks, without = medians(pairs)
    row = Row(
        "a replay",
        f"{with_hooks * 1e6:.1f} µs",
        f"{without * 1e6:.1f} µs",
        f"{statistics.median(ratios(pairs)):.3f}",
        "≤ 1.01",
    )
    print_table("CUDA graphs: a replay with the hooks in place and not", [row])


if __name__ == "__main__":
    main()
