"""Time one call, and two sides alternately. Child processes only."""

from __future__ import annotations

import contextlib
import gc
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch._dynamo.testing import reset_rng_state

from compileboard.collectors.bench.loaded import Inputs
from compileboard.collectors.bench.worker.process_memory import count_page_faults
from compileboard.collectors.bench.worker.torch_setup import SEED
from compileboard.collectors.bench.worker.workbench import Workbench, batch_dimension, eagerly


@dataclass
class Turns:
    """Repeats of eager and compiled in order, in ms, and the page faults of each call if
    available.
    """

    repeats: dict[str, list[float]] = field(default_factory=lambda: {"eager": [], "compiled": []})
    page_faults: dict[str, list[float]] = field(
        default_factory=lambda: {"eager": [], "compiled": []}
    )

    def add(self, which: str, sample: tuple[float, float | None]) -> None:
        self.repeats[which].append(sample[0])
        if sample[1] is not None:
            self.page_faults[which].append(sample[1])

    def fault_values(self) -> dict[str, float]:
        return {
            f"{which}_page_faults": median(counts)
            for which, counts in self.page_faults.items()
            if counts
        }


def time_call(
    bench: Workbench, step: Callable[..., Any], module: torch.nn.Module, inputs: Inputs
) -> tuple[float, float | None]:
    """Return the milliseconds and page faults of one call, averaged over `iterations_per_run`.

    On CUDA, events are used. The device is idle before and synchronized after, so they span the
    same work as a clock around both, without the latency of synchronization.
    """
    times = bench.settings.iterations_per_run
    reset_rng_state()
    bench.synchronize()
    # On CUDA autograd runs the backward pass in a thread of its own, whose stack is not ours.
    all_threads = bench.settings.is_training and bench.settings.device == "cuda"
    before = count_page_faults(all_threads=all_threads)
    milliseconds = _clock(bench, step, module, inputs)
    after = count_page_faults(all_threads=all_threads)
    return milliseconds / times, None if before is None or after is None else (
        after - before
    ) / times


def _clock(
    bench: Workbench, step: Callable[..., Any], module: torch.nn.Module, inputs: Inputs
) -> float:
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
    sides = (
        TimedCall(eager, bench.module, eagerly),
        TimedCall(torch._dynamo.run(compiled), bench.module),
    )
    return take_turns(bench, *sides, inputs=inputs)


def take_turns(
    bench: Workbench, eager: TimedCall, compiled: TimedCall, *, inputs: Inputs | None = None
) -> Turns:
    turns = Turns()
    given = bench.inputs if inputs is None else inputs
    for number in range(bench.settings.repeat):
        now = randomized(given) if bench.settings.randomize_input else given
        if bench.batch_sizes and inputs is None:
            now = resize_batch(now, bench.batch_size or 0, bench.batch_sizes[number])
        for name, side in (("eager", eager), ("compiled", compiled)):
            with side.context():
                turns.add(name, time_call(bench, side.step, side.module, now))
    return turns


def time_loads(bench: Workbench, load: Callable[[], Any]) -> list[float]:
    """Return the seconds of repeated loads without the first, which also loads libraries; each is
    freed before the next.
    """
    loads_s = []
    for _ in range(bench.settings.cheap_repeats):
        begin_s = time.perf_counter()
        loaded = load()
        bench.synchronize()
        loads_s.append(time.perf_counter() - begin_s)
        del loaded
        gc.collect()
    return loads_s


def vary_batch(
    bench: Workbench, eager: Callable[..., Any], compiled: Callable[..., Any]
) -> dict[str, Any]:
    """Choose a batch size per repeat if only the batch is dynamic, and warm up the extremes.

    Both sides of a repeat have the same batch, where upstream varies only the eager side. Return
    the sizes as facts, or why they cannot vary. Source: timed of upstream's
    benchmarks/dynamo/common.py.
    """
    batch_size = bench.batch_size or 1
    if not bench.settings.dynamic_batch_only or batch_size == 1:
        return {}
    sizes = draw_batch_sizes(batch_size, bench.settings.repeat)
    collect_outputs = bench.settings.collect_outputs
    ends = [
        resize_batch(bench.inputs, batch_size, size) for size in sorted({min(sizes), max(sizes)})
    ]
    try:
        with eagerly():
            for inputs in ends:
                eager(bench.module, inputs, collect_outputs=collect_outputs)
    except Exception as error:  # a model whose batch is not in its inputs alone
        return {"batch_variation_error": f"{type(error).__name__}: {error}"[:500]}
    for inputs in ends:
        compiled(bench.module, inputs, collect_outputs=collect_outputs)
    bench.batch_sizes = sizes
    return {"batch_sizes": sorted(set(sizes))}


def draw_batch_sizes(batch_size: int, count: int) -> list[int]:
    """Return sizes within a fifth of a batch size and at least 2, equal in every run."""
    draw = random.Random(SEED)  # noqa: S311 - no secret
    return [max(2, int(batch_size * draw.uniform(0.8, 1.2))) for _ in range(count)]


def resize_batch(inputs: Inputs, batch_size: int, size: int) -> Inputs:
    def resize(argument: Any) -> Any:
        dimension = (
            batch_dimension(argument, batch_size) if isinstance(argument, torch.Tensor) else None
        )
        if dimension is None:
            return argument
        rows = torch.arange(size, device=argument.device).clamp(max=batch_size - 1)
        return argument.index_select(dimension, rows)

    resized: Inputs = torch.utils._pytree.tree_map(resize, inputs)
    return resized


def randomized(inputs: Inputs) -> Inputs:
    def randomize(argument: Any) -> Any:
        return (
            torch.randn_like(argument)
            if isinstance(argument, torch.Tensor) and argument.is_floating_point()
            else argument
        )

    replaced: Inputs = torch.utils._pytree.tree_map(randomize, inputs)
    return replaced
