"""Models that inductor loads from its caches, to measure overhead on.

    python -m benchmarks.overhead.cached_program

A few MLPs, forward and backward, each of a size of its own. The first start in a cache folder fills
it; what is measured is a later start, in which dynamo traces and inductor finds everything. It
prints a model's seconds, wall and CPU, as JSON, a pair for each repetition.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time

import torch
import torch._dynamo

MODELS = 8
BLOCKS = 4

Seconds = tuple[float, float]  # on the clock, of this process's CPU time


class Model(torch.nn.Module):
    """An MLP with residual connections."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(BLOCKS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute all blocks."""
        for block in self.blocks:
            x = x + torch.nn.functional.gelu(block(x))
        return x


def make_calls(count: int) -> list[tuple[torch.nn.Module, torch.Tensor]]:
    """Make the models and their inputs."""
    torch.manual_seed(0)
    widths = [16 + 8 * number for number in range(count)]
    return [(Model(width), torch.randn(8, width)) for width in widths]


def compile_all(calls: list[tuple[torch.nn.Module, torch.Tensor]]) -> Seconds:
    """Compile every model anew and call it once; return the mean of one."""
    torch._dynamo.reset()
    gc.collect()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    for model, x in calls:
        torch.compile(model, dynamic=False)(x).sum().backward()
    return (time.perf_counter() - begin) / len(calls), (time.process_time() - begin_cpu) / len(
        calls
    )


def main(argv: list[str] | None = None) -> int:
    """Measure and print the seconds."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead.cached_program", description=__doc__
    )
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--models", type=int, default=MODELS)
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    calls = make_calls(arguments.models)
    compile_all(
        calls
    )  # what only the first compile of a process pays; and, in an empty cache, what fills it
    timings = [compile_all(calls) for _ in range(arguments.repetitions)]
    hits = torch._dynamo.utils.counters["aot_autograd"]
    if hits["autograd_cache_miss"] and arguments.repetitions:
        print(f"{hits['autograd_cache_miss']} models were not in the cache yet", file=sys.stderr)
    print(json.dumps(timings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
