"""The program that overhead is measured on.

    python -m benchmarks.overhead.compile_program --backend eager

Twelve MLP blocks, forward and backward, with three graph breaks and a second call that recompiles
every piece; all of it is compiled anew in each repetition. It prints the seconds, wall and CPU, as
JSON. With `--pairs` the hooks are put in and taken out between repetitions, in an order drawn for
each pair, and it prints [observed, not] pairs.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from pathlib import Path

import torch
import torch._dynamo
import torch._functorch.config
import torch._inductor.config

from benchmarks.common import interleave, observing

WIDTH = 32
BLOCKS = 12
MODES = ("train", "finetune")  # a string is a constant to dynamo: the second recompiles every piece

Seconds = tuple[float, float]  # on the clock, of this process's CPU time


class Model(torch.nn.Module):
    """An MLP with a graph break after each quarter but the last."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(BLOCKS))

    def forward(self, x: torch.Tensor, mode: str) -> torch.Tensor:
        """Compute all blocks."""
        x = self._quarter(x, mode, 0)
        torch._dynamo.graph_break()
        x = self._quarter(x, mode, 1)
        torch._dynamo.graph_break()
        x = self._quarter(x, mode, 2)
        torch._dynamo.graph_break()
        return self._quarter(x, mode, 3)

    def _quarter(self, x: torch.Tensor, mode: str, quarter: int) -> torch.Tensor:
        for index in range(quarter * BLOCKS // 4, (quarter + 1) * BLOCKS // 4):
            y = torch.nn.functional.gelu(self.blocks[index](x))
            x = x + y if mode == "train" else x + 0.5 * y
        return x


class Program:
    """Compile the model anew each time it is asked to."""

    def __init__(self, backend: str) -> None:
        torch.manual_seed(0)
        self.backend = backend
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = Model().to(self.device)
        self.input = torch.randn(8, WIDTH, device=self.device)
        # Each compile is really done; only the machine code of inductor's kernels is found on disk,
        # because the C++ compiler's time is not torch's Python, hides it, and varies most.
        torch._inductor.config.fx_graph_cache = False
        torch._functorch.config.enable_autograd_cache = False

    def measure(self) -> Seconds:
        """Return how long it takes to compile everything once."""
        torch._dynamo.reset()
        gc.collect()
        begin, begin_cpu = time.perf_counter(), time.process_time()
        compiled = torch.compile(self.model, backend=self.backend)
        for mode in MODES:
            compiled(self.input, mode).sum().backward()
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin, time.process_time() - begin_cpu


def main(argv: list[str] | None = None) -> int:
    """Measure and print the seconds."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead.compile_program", description=__doc__
    )
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument(
        "--pairs",
        type=int,
        default=0,
        help="interleave that many observed and unobserved repetitions",
    )
    parser.add_argument("--folder", type=Path, default=Path(), help="where spools go")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    program = Program(arguments.backend)
    program.measure()  # what only the first compile of a process pays
    if arguments.pairs:

        def ours() -> Seconds:
            with observing(arguments.folder):
                return program.measure()

        ours()
        print(json.dumps(interleave(arguments.pairs, ours, program.measure, seed=arguments.seed)))
    else:
        print(json.dumps([program.measure() for _ in range(arguments.repetitions)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
