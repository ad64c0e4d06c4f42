"""Measure what capturing repros costs while nothing fails: `python -m benchmarks.repro.capture`.

Compiles of one function alternate within one process with the capture around the backend's call and
without, all other hooks in place, the order drawn for each pair. They are the shortest there are:
dynamo alone, and inductor with all that it compiles in its cache. A call is measured as the frame
around a compiled graph, which `except` branches share.
"""

from __future__ import annotations

import argparse
import sys
import time
import timeit
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch._dynamo
from torch._dynamo.output_graph import OutputGraph

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
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.observe import hooks
from compileboard.collectors.observe.hook_guard import HookGuard
from compileboard.collectors.observe.repro.capture import ReproCapture
from compileboard.collectors.observe.runtime_failures import watch_failures
from compileboard.collectors.observe.spool_writer import Spool

CALLS = 100_000
NAME = "call_user_compiler"


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Compute something of 40 operations."""
    for _ in range(10):
        x = torch.relu(x @ w) * 0.5 + x.sin()
    return x


def compile_once(backend: str) -> float:
    """Return the CPU time of a compiled function's first call.

    Units: seconds
    """
    torch._dynamo.reset()
    x, w = torch.ones(8, 8), torch.ones(8, 8)
    compiled = torch.compile(program, backend=backend)
    begin = time.process_time()
    with torch.no_grad():
        compiled(x, w)
    return time.process_time() - begin


def measure_compiles(backend: str, pairs: int, folder: Path) -> Row:
    """Measure compiles with the capture against compiles with the other hooks alone."""
    with observing(folder):
        installed = hooks.current()
        assert installed is not None
        wrapped = getattr(OutputGraph, NAME)
        (original,) = [
            old
            for _, attribute, old, ours in installed._replaced
            if ours is wrapped and attribute == NAME
        ]

        def timed(function: Callable[..., Any]) -> Callable[[], float]:
            def measure() -> float:
                setattr(OutputGraph, NAME, function)
                return compile_once(backend)

            return measure

        for _ in range(3):
            timed(wrapped)()
        try:
            results = interleave(pairs, timed(wrapped), timed(original))
        finally:
            setattr(OutputGraph, NAME, wrapped)
    ours, reference = medians(results)
    return Row(
        f"compile, {backend}, CPU time, {pairs} pairs",
        f"{ours * 1e3:.2f} ms",
        f"{reference * 1e3:.2f} ms",
        str(bootstrap(ratios(results))),
        "≤ 1.01",
    )


def measure_backend_call(pairs: int) -> Row:
    """Measure what stands around the backend's call, once a graph, without the compile whose time
    varies by more.
    """

    def call(output: object, gm: object, inputs: object) -> object:
        return inputs

    losses: Counter[str] = Counter()
    wrapped = ReproCapture(
        Spool("", "", "", dict), HookGuard(losses), str, RunConfig()
    ).wrap_backend_call(call)
    output = SimpleNamespace(root_tx=SimpleNamespace(f_code=call.__code__))

    def timed(function: Callable[..., Any]) -> Callable[[], float]:
        return lambda: (
            timeit.timeit(lambda: function(output, None, None), number=CALLS // 10) / (CALLS // 10)
        )

    results = interleave(pairs, timed(wrapped), timed(call))
    assert not losses, losses
    ours, reference = medians(results)
    cost = bootstrap([(mine - plain) * 1e6 for mine, plain in results])
    what = f"around a backend's call, {pairs} pairs"
    return Row(
        what,
        f"{ours * 1e6:.2f} µs",
        f"{reference * 1e6:.2f} µs",
        f"+{cost} µs",
        "1% of 10 ms: 100 µs",
    )


def measure_call(pairs: int) -> Row:
    """Measure a call through the frame around a graph against the call itself."""

    def graph(*inputs: object) -> object:
        return inputs

    watched = watch_failures(graph, "forward", (None, 0))

    def timed(function: Callable[..., Any]) -> Callable[[], float]:
        return lambda: timeit.timeit(lambda: function(1, 2, 3, 4), number=CALLS) / CALLS

    results = interleave(pairs, timed(watched), timed(graph))
    ours, reference = medians(results)
    cost = bootstrap([(mine - plain) * 1e6 for mine, plain in results])
    return Row(
        f"call, {pairs} pairs",
        f"{ours * 1e6:.3f} µs",
        f"{reference * 1e6:.3f} µs",
        f"+{cost} µs",
        "≤ 1 µs",
    )


def main(arguments: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=40)
    options = parser.parse_args(arguments)
    with scratch_folder() as folder:
        rows = [
            measure_compiles(backend, options.pairs, folder) for backend in ("eager", "inductor")
        ]
        rows += [
            measure_backend_call(max(5, options.pairs // 4)),
            measure_call(max(5, options.pairs // 4)),
        ]
    print_table("Capture of repros while nothing fails", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
