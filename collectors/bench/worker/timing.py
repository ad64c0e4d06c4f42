"""Time one call, and two sides in turns. Child processes only."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch._dynamo.testing import reset_rng_state

from compileboard.collectors.bench.loaded import Inputs
from compileboard.collectors.bench.worker.process_memory import count_page_faults
from compileboard.collectors.bench.worker.workbench import Workbench, eagerly


@dataclass
class Turns:
    """Repeats of eager and compiled in their order, and the page faults of each call where they can be counted.

    Units: ms.
    """

    repeats: dict[str, list[float]] = field(default_factory=lambda: {"eager": [], "compiled": []})
    page_faults: dict[str, list[float]] = field(default_factory=lambda: {"eager": [], "compiled": []})

    def add(self, which: str, sample: tuple[float, float | None]) -> None:
        """Add one repeat."""
        self.repeats[which].append(sample[0])
        if sample[1] is not None:
            self.page_faults[which].append(sample[1])

    def fault_values(self) -> dict[str, float]:
        """Return the median page faults of a call, by the name that results have them under."""
        return {f"{which}_page_faults": median(counts) for which, counts in self.page_faults.items() if counts}


def time_call(
    bench: Workbench, step: Callable[..., Any], module: torch.nn.Module, inputs: Inputs
) -> tuple[float, float | None]:
    """Return the milliseconds and page faults of one call (of `iterations_per_run` calls, divided).

    Where there is CUDA, its events clock it.

    The device is idle before and waited for after, so the events bound the same span as a clock around both would,
    without the time it takes to hear that the device is done.
    """
    times = bench.settings.iterations_per_run
    reset_rng_state()
    bench.synchronize()
    # On CUDA autograd runs the backward pass in a thread of its own, whose stack is not ours.
    all_threads = bench.settings.is_training and bench.settings.device == "cuda"
    before = count_page_faults(all_threads=all_threads)
    milliseconds = _clock(bench, step, module, inputs)
    after = count_page_faults(all_threads=all_threads)
    return milliseconds / times, None if before is None or after is None else (after - before) / times


def _clock(bench: Workbench, step: Callable[..., Any], module: torch.nn.Module, inputs: Inputs) -> float:
    times = bench.settings.iterations_per_run
    if bench.settings.device == "cuda":
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(times):
            step(module, inputs, collect_outputs=bench.settings.collect_outputs)
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end))
    start = time.perf_counter()
    for _ in range(times):
        step(module, inputs, collect_outputs=bench.settings.collect_outputs)
    return (time.perf_counter() - start) * 1e3


@dataclass(frozen=True)
class TimedCall:
    """What is timed: a step, the module that it is called with, and the context of each call."""

    step: Callable[..., Any]
    module: torch.nn.Module
    context: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext


def interleave(
    bench: Workbench,
    eager: Callable[..., Any],
    compiled: Callable[..., Any],
    *,
    inputs: Inputs | None = None,
) -> Turns:
    """Time eager and compiled in turns; nothing more is compiled meanwhile: what is timed is what was compiled."""
    sides = TimedCall(eager, bench.module, eagerly), TimedCall(torch._dynamo.run(compiled), bench.module)
    return take_turns(bench, *sides, inputs=inputs)


def take_turns(bench: Workbench, eager: TimedCall, compiled: TimedCall, *, inputs: Inputs | None = None) -> Turns:
    """Time two sides in turns, so that what slows the machine for a while slows both."""
    turns = Turns()
    given = bench.inputs if inputs is None else inputs
    for _ in range(bench.settings.repeat):
        now = randomized(given) if bench.settings.randomize_input else given
        for name, side in (("eager", eager), ("compiled", compiled)):
            with side.context():
                turns.add(name, time_call(bench, side.step, side.module, now))
    return turns


def randomized(inputs: Inputs) -> Inputs:
    """Replace floating-point inputs by new random numbers. Integers stay: they may be indices."""

    def randomize(argument: Any) -> Any:
        return (
            torch.randn_like(argument)
            if isinstance(argument, torch.Tensor) and argument.is_floating_point()
            else argument
        )

    replaced: Inputs = torch.utils._pytree.tree_map(randomize, inputs)
    return replaced
