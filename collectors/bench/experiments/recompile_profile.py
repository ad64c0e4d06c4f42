"""Find the causes of recompiles by calling the model unchanged, then with one change at a time.

Upstream's --recompile-profiler uses torch's CompileProfiler, which was removed in 2.5; guard
failures are counted in the same way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._dynamo.utils import counters

from compileboard.collectors.bench.loaded import Inputs
from compileboard.collectors.bench.steps import cast_inputs
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome, describe_error
from compileboard.collectors.bench.worker.statistics import (
    RecompileCounts,
    RecompileWatch,
    without_limit,
)
from compileboard.collectors.bench.worker.timing import resize_batch
from compileboard.collectors.bench.worker.workbench import (
    Workbench,
    failing_as,
    first_eager_run,
    list_shapes,
)

MAX_SIZES, MAX_REASONS, MAX_REASON_LENGTH = 4, 20, 500
Change = contextlib.AbstractContextManager[Inputs]


def run(bench: Workbench) -> ExperimentOutcome:
    step = bench.prepare()
    bench.stage("eager")
    with bench.grad(), first_eager_run():
        bench.warm_up(step, bench.module, 1)
    bench.stage("compile")
    watch = RecompileWatch()
    compiled = bench.compile(step)
    values: dict[str, float] = {}
    facts: dict[str, Any] = {"changes": []}
    with without_limit(), bench.grad():
        with failing_as("fail_to_run"):
            compiled(bench.module, bench.inputs, collect_outputs=False)
        values["compiles"] = float(watch.count_new().compiles)
        bench.stage("measure")
        for name, change in iterate_changes(bench):
            error = _call(bench, compiled, change)
            seen = watch.count_new()
            values |= {
                f"change={name}/recompiles": seen.recompiles,
                f"change={name}/guard_failures": len(seen.guard_failures),
            }
            facts["changes"].append(
                {"change": name, **_list_reasons(seen), **({"error": error} if error else {})}
            )
    facts["graph_break_reasons"] = {
        reason[:MAX_REASON_LENGTH]: count
        for reason, count in counters["graph_break"].most_common(MAX_REASONS)
    }
    names = ("recompiles", "guard_failures")
    totals = {
        total_name: sum(value for name, value in values.items() if name.endswith(f"/{total_name}"))
        for total_name in names
    }
    return ExperimentOutcome(
        values={name: float(value) for name, value in {**totals, **values}.items()}, facts=facts
    )


def _call(bench: Workbench, compiled: Callable[..., Any], change: Change) -> str | None:
    try:
        with change as inputs:
            compiled(bench.module, inputs, collect_outputs=False)
        bench.synchronize()
    except (
        Exception
    ) as error:  # records why the model cannot be called so, and tries the other changes
        return describe_error(error)[:MAX_REASON_LENGTH]
    return None


def _list_reasons(seen: RecompileCounts) -> dict[str, Any]:
    texts = dict.fromkeys(failure.strip()[:MAX_REASON_LENGTH] for failure in seen.guard_failures)
    return {"recompiles": seen.recompiles, "reasons": list(texts)[:MAX_REASONS]}


def iterate_changes(bench: Workbench) -> Iterator[tuple[str, Change]]:
    yield "same", contextlib.nullcontext(bench.inputs)
    for name, inputs in _iterate_sizes(bench):
        yield name, contextlib.nullcontext(inputs)
    yield ("eval mode" if bench.module.training else "train mode"), _toggled_training_mode(bench)
    if not bench.settings.is_training:
        yield "grad mode", _with_gradients(bench)
    if bench.settings.dtype == "float32":
        yield "bfloat16", _in_bfloat16(bench)


def _iterate_sizes(bench: Workbench) -> Iterator[tuple[str, Inputs]]:
    resize, present = bench.loaded.resize, list_shapes(bench.inputs)
    if resize is not None:
        for size in bench.loaded.sizes[:MAX_SIZES]:
            inputs = bench.prepare_inputs(resize(size))
            if list_shapes(inputs) != present:
                yield f"{bench.loaded.size_name}={size}", inputs
        return
    batch_size = bench.batch_size
    if batch_size is None or batch_size < 4:
        return  # dynamo specializes on a size of 1, and everything on 0
    for size in (batch_size - 1, batch_size // 2):
        yield f"batch size={size}", resize_batch(bench.inputs, batch_size, size)


@contextlib.contextmanager
def _toggled_training_mode(bench: Workbench) -> Iterator[Inputs]:
    before = bench.module.training
    bench.module.train(not before)
    try:
        yield bench.inputs
    finally:
        bench.module.train(before)


@contextlib.contextmanager
def _with_gradients(bench: Workbench) -> Iterator[Inputs]:
    with torch.enable_grad():
        yield bench.inputs


@contextlib.contextmanager
def _in_bfloat16(bench: Workbench) -> Iterator[Inputs]:
    bench.module.to(torch.bfloat16)
    try:
        yield cast_inputs(bench.inputs, torch.bfloat16)
    finally:
        bench.module.to(torch.float32)
