"""Compare a compiled call after warm-up with the hooks and without: `python -m benchmarks.steady_state`.

One function, compiled while observed; then batches of calls, the hooks in place or not, in an order drawn for each
pair. Nothing of the collector is on that path, so the ratio is 1 within noise.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
import torch._dynamo

from benchmarks.common import Row, bootstrap, interleave, medians, observing, print_table, ratios, scratch_folder
from benchmarks.compile_program import Program

BATCH_S = 0.05


class SteadyState:
    """Hold a compiled function and call it in batches of about 50 ms."""

    def __init__(self, backend: str, folder: Path) -> None:
        self.folder = folder
        program = Program(backend)
        self.device, self.input = program.device, program.input
        torch._dynamo.reset()
        with observing(folder):
            self.call = torch.compile(program.model, backend=backend)
            self.calls = 1
            for _ in range(3):
                self.plain()
        while (seconds := self.plain() * self.calls) < BATCH_S:
            self.calls = max(self.calls + 1, int(self.calls * BATCH_S / seconds))

    def plain(self) -> float:
        """Return the time of one call, the mean of a batch.

        Units: seconds
        """
        begin = time.perf_counter()
        with torch.no_grad():
            for _ in range(self.calls):
                self.call(self.input, "train")
        if self.device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / self.calls

    def observed(self) -> float:
        """Return the same with the hooks in place; they are put there before the clock starts."""
        with observing(self.folder, must_record=False):
            return self.plain()


def main(argv: list[str] | None = None) -> int:
    """Measure every backend and print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steady_state", description=__doc__)
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
    print_table("A compiled call after warm-up, observed ÷ not", rows, "Medians of a call. Reference: not observed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
