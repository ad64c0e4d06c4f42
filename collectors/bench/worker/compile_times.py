"""Measure compile times of a model: the first compile, and repeats in the same process.

The first compile in a process also imports the compiler, tries the C++ compiler and starts workers.
On a CPU this takes several times longer than compiling a small model, and varies more than a change
to the model does. So a separate compile starts the compiler first.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo.utils
import torch._inductor.utils

from compileboard.collectors.bench.worker.child import installed_hooks, remove_hooks
from compileboard.collectors.bench.worker.outcome import (
    COLD,
    WARM,
    ExperimentOutcome,
    add_samples,
    describe_error,
)
from compileboard.collectors.bench.worker.timing import peak_gb, reset_peak
from compileboard.collectors.bench.worker.workbench import WARM_UPS, Workbench

log = logging.getLogger(__name__)


def start_compiler(bench: Workbench) -> float:
    """Compile one operation, unrecorded by the hooks, and return the seconds taken.

    A cache hit still starts everything except the workers. Returns 0 without compiling for backends
    other than inductor, if a trace log would contain the compile, and for a warm start, which
    covers a whole process.
    """
    if (
        not bench.settings.is_inductor
        or bench.settings.warm_start_latency
        or os.environ.get("TORCH_TRACE")
    ):
        return 0.0
    from torch._inductor import config

    begin_s = time.perf_counter()
    hooks = installed_hooks()
    unobserved = hooks.paused() if hooks else contextlib.nullcontext()
    try:
        with unobserved, torch.no_grad(), config.patch({"triton.cudagraphs": False}):
            torch.compile(lambda tensor: tensor + 1)(torch.ones(64, device=bench.settings.device))
            bench.synchronize()
    except Exception:  # compiler errors are reported with the model
        log.exception("the compiler did not start")
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch._dynamo.utils.compilation_time_metrics.clear()
    torch._dynamo.utils.clear_compilation_metrics()
    bench.free()
    return time.perf_counter() - begin_s


def add_first(bench: Workbench, outcome: ExperimentOutcome, first_s: float) -> None:
    """Add the first compile as the only sample of cold or, if all lookups were cache hits, warm
    compile time. A partial hit is neither.
    """
    graphs, autograd = (torch._dynamo.utils.counters[name] for name in ("inductor", "aot_autograd"))
    found, missed = (
        graphs[f"fxgraph_cache_{kind}"] + autograd[f"autograd_cache_{kind}"]
        for kind in ("hit", "miss")
    )
    caches = (
        "empty" if bench.settings.begins_cold or not found else "partly warm" if missed else "warm"
    )
    outcome.facts["caches"] = caches
    steps_s = WARM_UPS * outcome.values["abs_latency"] / 1e3
    kind = {"empty": COLD, "warm": WARM}.get(caches)
    if kind is not None and first_s > steps_s:
        add_samples(outcome, kind, [first_s - steps_s])


def compile_again(
    bench: Workbench, step: Callable[..., Any], outcome: ExperimentOutcome
) -> list[float]:
    """Add cold and warm compile times with their samples; return the peak memory of each cold one
    in 10⁹ bytes.

    The hooks are removed, since these are not the program's recompiles. If the model does not
    compile again, earlier results are kept.
    """
    remove_hooks()
    steps_s = WARM_UPS * outcome.values["abs_latency"] / 1e3
    cold_s, warm_s, peaks_gb = [], [], []
    try:
        for _ in range(bench.settings.compile_repeats):
            with _fresh_caches(bench):
                reset_peak(bench.settings.device)
                cold_s.append(_time_compile(bench, step) - steps_s)
                peaks_gb.append(peak_gb(bench.settings.device))
                if not bench.settings.warm_start_latency:  # measured in separate processes
                    warm_s.append(_time_compile(bench, step) - steps_s)
    except Exception as error:
        outcome.facts["compile_again_error"] = describe_error(error)
    # Less than the calls themselves take is not a measurement.
    add_samples(outcome, COLD, [sample for sample in cold_s if sample > 0])
    add_samples(outcome, WARM, [sample for sample in warm_s if sample > 0])
    return [peak for peak in peaks_gb if peak is not None]


def _time_compile(bench: Workbench, step: Callable[..., Any]) -> float:
    torch._dynamo.reset()
    return bench.warm_up(bench.compile(step), bench.module)


def _fresh_caches(bench: Workbench) -> contextlib.AbstractContextManager[None]:
    module: Any = torch._inductor.utils
    fresh = (
        getattr(module, "fresh_cache", None) or module.fresh_inductor_cache
    )  # its name before torch 2.8
    context: contextlib.AbstractContextManager[None] = fresh(
        dir=str(bench.stages.folder)
    )  # removed with the task
    return context
