"""Compare a compiled call after warm-up with the hooks and without.

    python -m benchmarks.overhead.steady_state

One function, compiled twice: while observed, so that its graphs have the collector's frame around
them, and not. Then batches of calls, observed and not, in an order drawn for each pair. The frame's
cost is printed as well, by itself.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo

from benchmarks.common import (
    Row,
    bootstrap,
    interleave,
    medians,
    observing,
    print_table,
    ratios,
    scratch_folder,
)
from compileboard.collectors.observe.runtime_failures import watch_failures

BATCH_S = 0.05
FRAME_CALLS = 100_000


class SteadyState:
    """A function compiled while observed and not; each is called in batches of about 50 ms."""

    def __init__(self, backend: str, folder: Path) -> None:
        self.folder = folder
        self.calls = 1
        torch._dynamo.reset()
        self._plain, self.device, self.input = self._compile(backend)
        with observing(folder):
            self._observed, _, _ = self._compile(backend)
        while (seconds := self.plain() * self.calls) < BATCH_S:
            self.calls = max(self.calls + 1, int(self.calls * BATCH_S / seconds))

    def _compile(self, backend: str) -> tuple[Callable[..., Any], str, torch.Tensor]:
        """Compile the program's model; each from a copy of its module, so that each has code
        objects of its own.
        """
        spec = importlib.util.find_spec("benchmarks.overhead.compile_program")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        program = module.Program(backend)
        call = torch.compile(program.model, backend=backend)
        for _ in range(3):
            with torch.no_grad():
                call(program.input, "train")
        return call, program.device, program.input

    def plain(self) -> float:
        """Return the time of one call, the mean of a batch.

        Units: seconds
        """
        return self._measure(self._plain)

    def observed(self) -> float:
        """Return the same with the hooks in place; they are put there before the clock starts."""
        with observing(self.folder, must_record=False):
            return self._measure(self._observed)

    def _measure(self, call: Callable[..., Any]) -> float:
        begin = time.perf_counter()
        with torch.no_grad():
            for _ in range(self.calls):
                call(self.input, "train")
        if self.device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / self.calls


def measure_frame() -> float:
    """Return what the frame around a graph takes: a call through it less the call itself.

    Units: seconds
    """

    def graph(*inputs: object) -> object:
        return inputs

    watched = watch_failures(graph, "forward", (None, 0))
    best = [
        min(timeit.repeat(lambda f=f: f(1, 2, 3, 4), number=FRAME_CALLS, repeat=9)) / FRAME_CALLS  # type: ignore[misc]
        for f in (watched, graph)
    ]
    return best[0] - best[1]


def main(argv: list[str] | None = None) -> int:
    """Measure every backend and print one table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead.steady_state", description=__doc__
    )
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--backends", default="eager,aot_eager,inductor")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = []
    with scratch_folder() as folder:
        for backend in arguments.backends.split(","):
            steady = SteadyState(backend, folder)
            timed = interleave(arguments.pairs, steady.observed, steady.plain)
            ours, reference = medians(timed)
            rows.append(
                Row(
                    f"{backend}: {arguments.pairs} pairs of {steady.calls} calls",
                    f"{ours * 1e6:.1f} µs",
                    f"{reference * 1e6:.1f} µs",
                    str(bootstrap(ratios(timed))),
                    "1.00 within noise",
                )
            )
    rows.append(Row("the frame around one graph, best of 9", f"{measure_frame() * 1e9:.0f} ns"))
    print_table(
        "A compiled call after warm-up, observed ÷ not",
        rows,
        "Medians of a call. Reference: not observed.",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
