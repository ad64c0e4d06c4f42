"""Time one call, and eager against compiled in turns. Child processes only."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.testing import reset_rng_state

from collectors.bench.loaded import Inputs
from collectors.bench.workbench import Workbench, eagerly


def time_call(bench: Workbench, step: Callable[..., Any], module: torch.nn.Module, inputs: Inputs) -> float:
    """Return the milliseconds of one call (of `iterations_per_run` calls, divided), by CUDA events where there is CUDA.

    The device is idle before and waited for after, so the events bound the same span as a clock around both would,
    without the time it takes to hear that the device is done.
    """
    times = bench.settings.iterations_per_run
    reset_rng_state()
    bench.synchronize()
    if bench.settings.device == "cuda":
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(times):
            step(module, inputs, collect_outputs=False)
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / times
    start = time.perf_counter()
    for _ in range(times):
        step(module, inputs, collect_outputs=False)
    return (time.perf_counter() - start) * 1e3 / times


def interleave(
    bench: Workbench,
    eager: Callable[..., Any],
    compiled: Callable[..., Any],
    *,
    inputs: Inputs | None = None,
    repeat: int | None = None,
) -> dict[str, list[float]]:
    """Time both in turns, so that what slows the machine for a while slows both.

    Units: ms.
    """
    timings: dict[str, list[float]] = {"eager": [], "compiled": []}
    frozen = torch._dynamo.run(compiled)  # compiles nothing more: what is timed is what was compiled
    given = bench.inputs if inputs is None else inputs
    for _ in range(repeat or bench.settings.repeat):
        now = randomized(given) if bench.settings.randomize_input else given
        with eagerly():
            timings["eager"].append(time_call(bench, eager, bench.module, now))
        timings["compiled"].append(time_call(bench, frozen, bench.module, now))
    return timings


def randomized(inputs: Inputs) -> Inputs:
    """Draw floating-point inputs anew. Integers stay: they may index something."""

    def draw(it: Any) -> Any:
        return torch.randn_like(it) if isinstance(it, torch.Tensor) and it.is_floating_point() else it

    drawn: Inputs = torch.utils._pytree.tree_map(draw, inputs)
    return drawn
