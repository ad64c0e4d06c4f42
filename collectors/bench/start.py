"""A warm start: the model once more in a fresh process, which finds what the first one's compiler left in its caches.

A cold start needs nothing of its own: every task begins with empty caches, so its compilation_latency is a cold one.
Source: --cold-start-latency and --warm-start-latency of upstream's benchmarks/dynamo/common.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from collectors.bench.child import Task
from collectors.bench.isolate import CACHE_VARIABLE, Done, cache_folder, run_task
from collectors.bench.settings import with_changes

SUFFIX = "warm_start"  # of the second process's task: its breaks and recompiles are not the result's
# The caches that a second process can read. On from torch 2.6 on by themselves; before, they have to be asked for.
CACHES_ON = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "1", "TORCHINDUCTOR_AUTOGRAD_CACHE": "1"}


def wants_warm_start(task: Task) -> bool:
    """Tell whether a task is one to measure a second time."""
    return task.settings.warm_start_latency and task.experiment == "performance"


def measure_warm_start(
    done: Done,
    task: Task,
    folder: Path,
    environment: Callable[[str], Mapping[str, str]],
    *,
    cwd: str | None,
    beat: Callable[[], None],
) -> Done:
    """Run a measured task again with its caches, and add what its compilation took then.

    `environment` gives that of a task's process by what its task is called after.
    """
    if done.outcome.status != "measured":
        return done
    quick = Task(task.experiment, task.ref, with_changes(task.settings, quick=True, repeat=1))
    shared = {CACHE_VARIABLE: str(cache_folder(folder, environment("")))}
    again = run_task(quick, folder / SUFFIX, {**environment(f"/{SUFFIX}"), **shared}, cwd=cwd, beat=beat)
    outcome = done.outcome
    if again.outcome.status == "measured":
        outcome.values["warm_compilation_latency"] = again.outcome.values["compilation_latency"]
        outcome.facts["warm_compile"] = "in a second process, with the first one's caches"
    else:
        outcome.values.pop("warm_compilation_latency", None)
        outcome.facts["warm_compile_error"] = f"{again.outcome.reason}: {again.outcome.message or ''}"
    return replace(done, duration_us=done.duration_us + again.duration_us)
