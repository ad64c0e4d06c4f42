"""How much faster the compiled model is, what compiling it took, and the memory of both."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from collectors.bench.artifacts import export_profile, memory_snapshot
from collectors.bench.child import take_hooks_out
from collectors.bench.counters import counted_since, dynamo_counts
from collectors.bench.dynamic import mark_batch
from collectors.bench.memory import peak_gb, peak_of, reset_peak
from collectors.bench.outcome import Outcome
from collectors.bench.statistics import noise_of, speedup_of
from collectors.bench.timing import interleave
from collectors.bench.workbench import Workbench, eagerly, failing_as

WARM_UPS = 5  # as upstream
LOOKUP_EVENT = "TorchDynamo Cache Lookup"


def run(bench: Workbench) -> Outcome:
    """Warm both up, time both in turns, then compile once more with warm caches."""
    bench.cast()
    mark_batch(bench)
    step = bench.steps.step()
    bench.steps.use(bench.module)
    values: dict[str, float] = {}
    with bench.grad():
        bench.stage("eager")
        with failing_as("eager_1st_run_fail", "eager_1st_run_OOM"), eagerly(), memory_snapshot(bench, "eager"):
            module = bench.copy_module()
            bench.warm_up(step, module, 1)  # the first call of all pays for libraries, which is no part of either
            eager_s, eager_gb = _warm_up(bench, step, module)
        bench.stage("compile")
        start = dynamo_counts()
        compiled = bench.compile(step)
        with failing_as("fail_to_run"), memory_snapshot(bench, "compiled"):
            compiled_s, compiled_gb = _warm_up(bench, compiled, bench.module)
        values |= counted_since(start)
        if compiled_s > eager_s:  # on a busy machine it may not be: that is no measurement
            values["compilation_latency"] = compiled_s - eager_s
        bench.stage("measure")
        with failing_as("fail_to_run"):
            if bench.settings.device == "cpu" or bench.settings.use_warm_peak_memory:
                eager_gb, compiled_gb = _settled_peaks(bench, step, compiled)
            values |= _memory(eager_gb, compiled_gb)
            repeats = interleave(bench, step, compiled)
            if bench.settings.profile_dynamo_cache_lookup:
                values |= _cache_lookup(bench, compiled)
        export_profile(bench, step, compiled)
        outcome = summarize(values, repeats)
        bench.stage("warm compile")
        if not (bench.settings.quick or bench.settings.warm_start_latency):  # that is measured in a second process
            _compile_again(bench, step, outcome)
    return outcome


def summarize(values: dict[str, float], repeats: dict[str, list[float]]) -> Outcome:
    """Make the outcome of what was timed: medians, interval, noise."""
    found = speedup_of(repeats["eager"], repeats["compiled"])
    values = {
        **values,
        "speedup": found.value,
        "abs_latency": median(repeats["compiled"]),
        "eager_latency": median(repeats["eager"]),
    }
    if found.low is not None and found.high is not None:
        values |= {"speedup_low": found.low, "speedup_high": found.high}
    for name in ("eager", "compiled"):
        noise = noise_of(repeats[name])
        if noise is not None:
            values[f"{name}_noise"] = noise
    return Outcome(values=values, repeats=repeats)


def _warm_up(bench: Workbench, step: Callable[..., Any], module: torch.nn.Module) -> tuple[float, float | None]:
    """Warm up; return the seconds and the peak memory of it, compilation included as upstream has it."""
    bench.free()
    reset_peak(bench.settings.device)
    seconds = bench.warm_up(step, module, WARM_UPS)
    return seconds, peak_gb(bench.settings.device)


def _settled_peaks(
    bench: Workbench, step: Callable[..., Any], compiled: Callable[..., Any]
) -> tuple[float | None, float | None]:
    """Return the peaks of one call each, once all is compiled.

    The compiler itself takes more of a process's memory than a model on a CPU: a peak with it would say nothing.
    """
    with eagerly():
        eager_gb = peak_of(bench.settings.device, lambda: step(bench.module, bench.inputs, collect_outputs=False))
    compiled_gb = peak_of(bench.settings.device, lambda: compiled(bench.module, bench.inputs, collect_outputs=False))
    return eager_gb, compiled_gb


def _memory(eager_gb: float | None, compiled_gb: float | None) -> dict[str, float]:
    values = {}
    if eager_gb is not None:
        values["eager_peak_mem"] = eager_gb
    if compiled_gb is not None:
        values["dynamo_peak_mem"] = compiled_gb
    if eager_gb is not None and compiled_gb:
        values["compression_ratio"] = eager_gb / compiled_gb
    return values


def _cache_lookup(bench: Workbench, compiled: Callable[..., Any]) -> dict[str, float]:
    """Profile the warm calls for the time that dynamo takes to find its cache entry."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        bench.warm_up(compiled, bench.module, WARM_UPS)
    found = [event for event in profile.key_averages() if LOOKUP_EVENT in event.key]
    return {"cache_lookup_latency": float(found[0].self_cpu_time_total)} if found else {}


def _compile_again(bench: Workbench, step: Callable[..., Any], outcome: Outcome) -> None:
    """Time the compilation with what the first one left in torch's caches. The hooks are out: it is no recompile."""
    take_hooks_out()
    torch._dynamo.reset()
    try:
        again_s = bench.warm_up(bench.compile(step), bench.module, WARM_UPS)
    except Exception as error:  # everything asked for was measured before: that stands
        outcome.facts["warm_compile_error"] = f"{type(error).__name__}: {error}"
        return
    steps_s = WARM_UPS * outcome.values["abs_latency"] / 1e3
    if again_s > steps_s:
        outcome.values["warm_compilation_latency"] = again_s - steps_s
