"""Measure what a graph's size and dynamic shapes add to its compile time, by phase.

    python -m benchmarks.fixes.costs [--backend inductor]

The estimates of `collectors/fixes/savings.py` rest on it: GRAPH_IN_OPS, DYNAMIC_COSTS.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch._dynamo
from torch._dynamo.utils import clear_compilation_metrics, get_compilation_metrics

from benchmarks.common import Row, print_table
from compileboard.collectors.decode.compilation_metrics import phases_us

Function = Callable[[torch.Tensor], torch.Tensor]


def make_chain(count: int) -> Function:
    def chain(x: torch.Tensor) -> torch.Tensor:
        for number in range(count):
            x = torch.sin(x) + number
        return x

    return chain


def make_layers(count: int) -> Function:
    parts = (torch.nn.Linear(32, 32), torch.nn.LayerNorm(32), torch.nn.GELU())
    return torch.nn.Sequential(*(part for _ in range(count) for part in parts))


def measure(function: Function, backend: str, is_dynamic: bool) -> tuple[int, dict[str, int]]:
    torch._dynamo.reset()
    clear_compilation_metrics()
    compiled = torch.compile(function, backend=backend, dynamic=is_dynamic)
    with torch.no_grad():
        compiled(torch.randn(8, 32))
    (metrics,) = get_compilation_metrics()
    return metrics.graph_op_count or 0, phases_us({**vars(metrics), "is_forward": True})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--backend", default="inductor")
    backend = parser.parse_args().backend
    torch._inductor.config.fx_graph_cache = False
    rows = []
    for is_dynamic in (False, True):
        measure(make_layers(1), backend, is_dynamic)  # what a process pays once
    for make in (make_chain, make_layers):
        for count in (1, 4, 16):
            for is_dynamic in (False, True):
                ops, phases = measure(make(count), backend, is_dynamic)
                parts = ", ".join(f"{name} {us // 1000}" for name, us in phases.items() if us)
                kind = "any size" if is_dynamic else "one size"
                total = str(sum(phases.values()) // 1000)
                rows.append(Row(make.__name__[5:], str(ops), kind, total, parts))
    headings = ("graph", "operators", "for", "ms", "ms by phase")
    print_table(f"Compile time by size, backend {backend}", rows, headings=headings)


if __name__ == "__main__":
    main()
