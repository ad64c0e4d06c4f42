"""Run the model at other sizes: speedup and recompiles at each, and the largest batch that runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import torch

from compileboard.collectors.bench.loaded import Inputs
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.bench.worker.statistics import (
    RecompileWatch,
    compute_speedup,
    count_since,
    dynamo_counts,
)
from compileboard.collectors.bench.worker.timing import interleave, limited_memory
from compileboard.collectors.bench.worker.workbench import (
    StageFailed,
    Workbench,
    eagerly,
    failing_as,
    first_eager_run,
    is_oom,
    list_shapes,
)


def measure_sizes(bench: Workbench) -> ExperimentOutcome:
    """Measure with torch's default (static first, then dynamic), and with dynamic=True. Names of
    the latter's values are `shape=N/dynamic/…`.
    """
    if bench.loaded.resize is None or not bench.loaded.sizes:
        return ExperimentOutcome(
            status="skipped",
            reason="the model has no other sizes: its Loaded has no `resize` and `sizes`",
        )
    bench.cast()
    bench.steps.use(bench.module)
    outcome = ExperimentOutcome(
        facts={"size_name": bench.loaded.size_name, "sizes": list(bench.loaded.sizes)}
    )
    sizes = {size: bench.prepare_inputs(bench.loaded.resize(size)) for size in bench.loaded.sizes}
    start = dynamo_counts()
    ways: list[tuple[str, bool | None]] = [("dynamic/", True)]
    if not bench.settings.all_dynamic:
        ways.insert(0, ("", None))
    with bench.grad():
        for prefix, dynamic in ways:
            bench.stage("compile")
            torch._dynamo.reset()
            compiled = bench.compile(bench.steps.step(), dynamic=dynamic)
            for size, inputs in sizes.items():
                _measure(bench, compiled, inputs, f"shape={size}/{prefix}", outcome)
    outcome.values |= count_since(start)
    return outcome


def _measure(
    bench: Workbench,
    compiled: Callable[..., Any],
    inputs: Inputs,
    name: str,
    outcome: ExperimentOutcome,
) -> None:
    watch = RecompileWatch()
    step = bench.steps.step()
    try:
        with first_eager_run():
            step(bench.module, inputs, collect_outputs=False)
        with failing_as("fail_to_run"):
            begin = time.perf_counter()
            compiled(bench.module, inputs, collect_outputs=False)
            bench.synchronize()
            first_s = time.perf_counter() - begin
            seen = watch.count_new()
            turns = interleave(bench, step, compiled, inputs=inputs)
    except StageFailed as failed:
        if not outcome.values:
            raise
        cause = failed.__cause__ or failed
        outcome.facts.setdefault("failed", {})[name.rstrip("/")] = f"{failed.reason}: {cause}"
        return
    timed = turns.repeats
    numbers = {
        **turns.fault_values(),
        **compute_speedup(timed["eager"], timed["compiled"]),
        "compilation_latency": max(0.0, first_s - median(timed["compiled"]) / 1e3),
        "recompiles": float(seen.recompiles),
    }
    outcome.values |= {name + what: value for what, value in numbers.items()}
    outcome.repeats |= {name + what: values for what, values in timed.items()}


FIRST_BATCH_SIZE = 1024


def find_batch_size(bench: Workbench) -> ExperimentOutcome:
    """Find the largest batch that runs eagerly, by halving from 1024, regardless of --batch-size.

    On a CPU, allocations beyond a share of the free memory fail, so that the machine is never
    exhausted. Source: batch_size_finder and decay_batch_exp of upstream's
    benchmarks/dynamo/common.py.
    """
    larger = _with_batch(bench, (bench.batch_size or 1) + 1).build()
    if list_shapes(larger.inputs) == list_shapes(bench.inputs):
        return ExperimentOutcome(
            status="skipped", reason="its inputs do not change with the batch size it is asked for"
        )
    bench.stage("measure")
    refused: dict[str, str] = {}
    size = FIRST_BATCH_SIZE
    with (
        limited_memory()
        if bench.settings.device == "cpu"
        else contextlib.nullcontext() as bound_bytes
    ):
        facts: dict[str, Any] = {"tried_from": size, "bound_bytes": bound_bytes, "refused": refused}
        while size >= 1:
            error = _try_batch_size(bench, size)
            if error is None:
                return ExperimentOutcome(values={"batch_size_found": float(size)}, facts=facts)
            refused[str(size)] = error
            size = next_smaller_size(size)
    reason = "eager_1st_run_OOM" if "OOM" in refused["1"] else "eager_1st_run_fail"
    return ExperimentOutcome(
        status="failed",
        reason=reason,
        message=f"not even a batch of 1 runs: {refused['1']}",
        facts=facts,
    )


def next_smaller_size(size: int) -> int:
    return (size // 2 + 1) // 2 * 2 if size // 2 > 2 else size - 1


def _with_batch(bench: Workbench, size: int) -> Workbench:
    settings = replace(bench.settings, batch_size=size, dynamic_batch_only=False)
    return Workbench(bench.ref, settings, bench.stages)


def _try_batch_size(bench: Workbench, size: int) -> str | None:
    bench.free()
    tried = _with_batch(bench, size)
    try:
        tried.load()
        step = tried.prepare()
        with tried.grad(), eagerly():
            tried.call(step)
        tried.synchronize()
    except Exception as error:  # out of memory has many exception types; the message is recorded
        cause = error.__cause__ or error
        return f"{'OOM' if is_oom(cause) else type(cause).__name__}: {cause}"[:500]
    return None
