"""Speedup, recompiles and compile time at several sizes.

Measured twice: with torch's default (static first, then dynamic), and with dynamic=True, whose
values are named `shape=N/dynamic/…`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from compileboard.collectors.bench.loaded import Inputs
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.bench.worker.statistics import (
    RecompileWatch,
    counted_since,
    dynamo_counts,
    speedup_of,
)
from compileboard.collectors.bench.worker.timing import interleave
from compileboard.collectors.bench.worker.workbench import (
    StageFailed,
    Workbench,
    eagerly,
    failing_as,
)


def run(bench: Workbench) -> ExperimentOutcome:
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
    outcome.values |= counted_since(start)
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
        with failing_as("eager_1st_run_fail", "eager_1st_run_OOM"), eagerly():
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
    ratio = speedup_of(timed["eager"], timed["compiled"])
    numbers = {
        **turns.fault_values(),
        "speedup": ratio.value,
        "speedup_low": ratio.low,
        "speedup_high": ratio.high,
    }
    numbers["compilation_latency"] = max(0.0, first_s - median(timed["compiled"]) / 1e3)
    numbers["recompiles"] = float(seen.recompiles)
    outcome.values |= {name + what: value for what, value in numbers.items() if value is not None}
    outcome.repeats |= {name + what: values for what, values in timed.items()}
