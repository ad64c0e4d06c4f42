"""Speedup, compile time and memory of the compiled model, and the noise floor of its speedup."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import torch
import torch._dynamo.utils

from compileboard.collectors.bench.worker.compile_times import (
    add_first,
    compile_again,
    start_compiler,
)
from compileboard.collectors.bench.worker.outcome import FIRST, ExperimentOutcome
from compileboard.collectors.bench.worker.statistics import count_since, dynamo_counts
from compileboard.collectors.bench.worker.timing import (
    TimedCall,
    export_profile,
    interleave,
    memory_snapshot,
    peak_gb,
    peak_of,
    reset_peak,
    take_turns,
    vary_batch,
)
from compileboard.collectors.bench.worker.workbench import (
    WARM_UPS,
    Workbench,
    eagerly,
    failing_as,
    first_eager_run,
)

LOOKUP_EVENT = "TorchDynamo Cache Lookup"


def run(bench: Workbench) -> ExperimentOutcome:
    step = bench.prepare()
    values: dict[str, float] = {}
    sample_count = bench.settings.compile_repeats
    with bench.grad():
        bench.stage("eager")
        with first_eager_run(), memory_snapshot(bench, "eager"):
            module = bench.copy_module()
            bench.warm_up(step, module, 1)  # the very first call also loads libraries
            warm_ups = [_warm_up(bench, step, module) for _ in range(sample_count)]
        bench.stage("start the compiler")
        start_s = start_compiler(bench)
        bench.stage("compile")
        start = dynamo_counts()
        compiled = bench.compile(step)
        with failing_as("fail_to_run"), memory_snapshot(bench, "compiled"):
            compiled_s, compiled_gb = _warm_up(bench, compiled, bench.module)
        values |= count_since(start)
        eager_s = median(seconds for seconds, _peak in warm_ups)
        if (
            first_s := start_s + compiled_s - eager_s
        ) > 0:  # on a busy machine the difference may be negative, which is not a measurement
            values[FIRST] = first_s
        bench.stage("measure")
        with failing_as("fail_to_run"):
            peaks = {"eager": [peak for _seconds, peak in warm_ups], "compiled": [compiled_gb]}
            is_settled = bench.settings.device == "cpu" or bench.settings.use_warm_peak_memory
            if is_settled:
                peaks = settled_peaks(bench, step, compiled)
            facts = vary_batch(bench, step, compiled)
            turns = interleave(bench, step, compiled)
            if bench.settings.profile_dynamo_cache_lookup:
                values |= _cache_lookup(bench, compiled)
        export_profile(bench, step, compiled)
        outcome = ExperimentOutcome(values=values, facts={**facts, "phases_s": read_phases()})
        turns.add_to(outcome)
        add_first(bench, outcome, compiled_s)
        if sample_count > 1:
            bench.stage("compile again")
            cold_peaks = compile_again(bench, step, outcome)
            if not is_settled:  # as many as for eager, since they are divided by each other
                peaks["compiled"] += cold_peaks[: sample_count - 1]
    add_peaks(outcome, peaks, first=not is_settled)
    return outcome


def _warm_up(
    bench: Workbench, step: Callable[..., Any], module: torch.nn.Module
) -> tuple[float, float | None]:
    bench.free()
    reset_peak(bench.settings.device)
    seconds = bench.time_calls(step, module, WARM_UPS)
    return seconds, peak_gb(bench.settings.device)


def settled_peaks(
    bench: Workbench, step: Callable[..., Any], compiled: Callable[..., Any]
) -> dict[str, list[float | None]]:
    """Return the peak memory of single calls after everything is compiled.

    On a CPU the compiler uses more memory than a model, so a peak that includes it would be
    meaningless.
    """
    device = bench.settings.device
    peaks: dict[str, list[float | None]] = {"eager": [], "compiled": []}
    for _ in range(bench.settings.cheap_repeats):
        with eagerly():
            peaks["eager"].append(peak_of(device, lambda: bench.call(step)))
        peaks["compiled"].append(peak_of(device, lambda: bench.call(compiled)))
    return peaks


def add_peaks(
    outcome: ExperimentOutcome, peaks: Mapping[str, Sequence[float | None]], *, first: bool
) -> None:
    known = {
        which: [peak for peak in samples if peak is not None] for which, samples in peaks.items()
    }
    names = {"eager": "eager_peak_mem", "compiled": "dynamo_peak_mem"}
    for which, samples in known.items():
        if samples:
            outcome.repeats[f"{which}_peak_gb"] = samples
            outcome.values[names[which]] = samples[0] if first else median(samples)
    eager_gb, compiled_gb = (outcome.values.get(name) for name in names.values())
    if eager_gb is not None and compiled_gb:
        outcome.values["compression_ratio"] = eager_gb / compiled_gb


def read_phases() -> dict[str, float]:
    """Return torch's own seconds per compile phase, as upstream writes them."""
    names, seconds = torch._dynamo.utils.compile_times(repr="csv", aggregate=True)
    return {name: float(str(value)) for name, value in zip(names, seconds)}


def _cache_lookup(bench: Workbench, compiled: Callable[..., Any]) -> dict[str, float]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        bench.warm_up(compiled, bench.module, WARM_UPS)
    lookups = [event for event in profile.key_averages() if LOOKUP_EVENT in event.key]
    return {"cache_lookup_latency": float(lookups[0].self_cpu_time_total)} if lookups else {}


def time_eager_twice(bench: Workbench) -> ExperimentOutcome:
    """Measure the noise floor, which a speedup must exceed.

    Both sides are the same call without dynamo, so the interval of their ratio contains 1 except
    for one model in twenty. Source: --nothing of upstream's benchmarks/dynamo/common.py, which
    times its second side through torch._dynamo.run.
    """
    bench.cast()
    step = bench.steps.step()
    bench.steps.use(bench.module)
    with bench.grad(), failing_as("eager_1st_run_fail", "eager_1st_run_OOM"):
        bench.stage("eager")
        bench.warm_up(step, bench.module)
        bench.stage("measure")
        side = TimedCall(step, bench.module)
        turns = take_turns(bench, side, side)
    outcome = ExperimentOutcome()
    turns.add_to(outcome)
    return outcome
