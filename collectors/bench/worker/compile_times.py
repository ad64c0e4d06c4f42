"""Compile a model again in the process that has measured it: cold, with caches of its own, then warm with these.

The first compile of a process also starts the compiler: it imports it, tries the C++ compiler and begins workers, which
on a CPU takes several times what a small model does, and varies more than what a change of the model brings. The
samples are compiles of a compiler that runs. The hooks are out: this is no recompile of the program's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._inductor.utils

from compileboard.collectors.bench.worker.child import remove_hooks
from compileboard.collectors.bench.worker.outcome import COLD, WARM, ExperimentOutcome, add_samples
from compileboard.collectors.bench.worker.profiling import peak_gb, reset_peak
from compileboard.collectors.bench.worker.workbench import WARM_UPS, Workbench


def compile_again(bench: Workbench, step: Callable[..., Any], outcome: ExperimentOutcome) -> list[float]:
    """Add cold and warm compile times with their samples; return the peak memory of each cold one.

    What was measured before stands if a model does not compile again.
    Units: 10⁹ bytes.
    """
    remove_hooks()
    steps_s = WARM_UPS * outcome.values["abs_latency"] / 1e3
    cold_s, warm_s, peaks_gb = [], [], []
    try:
        for _ in range(bench.settings.compile_repeats):
            with _fresh_caches():
                reset_peak(bench.settings.device)
                cold_s.append(_time_compile(bench, step) - steps_s)
                peaks_gb.append(peak_gb(bench.settings.device))
                if not bench.settings.warm_start_latency:  # that is measured in processes of its own
                    warm_s.append(_time_compile(bench, step) - steps_s)
    except Exception as error:
        outcome.facts["compile_again_error"] = f"{type(error).__name__}: {error}"
    # Less than the calls themselves take is no measurement.
    add_samples(outcome, COLD, [sample for sample in cold_s if sample > 0])
    add_samples(outcome, WARM, [sample for sample in warm_s if sample > 0])
    return [peak for peak in peaks_gb if peak is not None]


def _time_compile(bench: Workbench, step: Callable[..., Any]) -> float:
    torch._dynamo.reset()
    return bench.warm_up(bench.compile(step), bench.module)


def _fresh_caches() -> contextlib.AbstractContextManager[None]:
    """Return torch's own context in which all that inductor and Triton cache is empty: disk, memory and workers."""
    module: Any = torch._inductor.utils
    fresh = getattr(module, "fresh_cache", None) or module.fresh_inductor_cache  # its name before torch 2.8
    folder = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).parent  # the task's own, which goes with it
    folder.mkdir(parents=True, exist_ok=True)
    context: contextlib.AbstractContextManager[None] = fresh(dir=str(folder))
    return context
