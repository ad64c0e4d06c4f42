"""A warm start: the model once more in a fresh process, which finds what the first one's compiler left in its caches.

A cold start needs nothing of its own: every task begins with empty caches, so its compilation_latency is a cold one.
Source: --cold-start-latency and --warm-start-latency of upstream's benchmarks/dynamo/common.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from compileboard.collectors.bench.execution.isolation import CACHE_VARIABLE, TaskOutcome, cache_folder, clear, run_task
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.bench.worker.outcome import FIRST, WARM, add_samples

SUFFIX = "warm_start"  # of the second process's task: its breaks and recompiles are not the result's
# The caches that a second process can read. On from torch 2.6 on by themselves; before, they have to be asked for.
CACHES_ON = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "1", "TORCHINDUCTOR_AUTOGRAD_CACHE": "1"}


def wants_warm_start(task: Task) -> bool:
    """Return whether a task is one to measure a second time."""
    return task.settings.warm_start_latency and task.experiment == "performance"


def measure_warm_starts(
    done: TaskOutcome,
    task: Task,
    folder: Path,
    environment: Callable[[str], Mapping[str, str]],
    *,
    cwd: str | None,
    beat: Callable[[], None],
) -> TaskOutcome:
    """Run a measured task again with its caches, once a compile repeat, and add what its compilation took then.

    `environment` gives that of a task's process by what its task is called after.
    """
    if done.outcome.status != "measured":
        return done
    quick = Task(task.experiment, task.ref, replace(task.settings, quick=True, repeat=1))
    shared = {CACHE_VARIABLE: str(cache_folder(folder, environment("")))}
    outcome, samples = done.outcome, []
    for _ in range(1 if task.settings.quick else task.settings.compile_repeats):
        clear(folder / SUFFIX)
        again = run_task(quick, folder / SUFFIX, {**environment(f"/{SUFFIX}"), **shared}, cwd=cwd, beat=beat)
        done = replace(done, duration_us=done.duration_us + again.duration_us)
        if again.outcome.status != "measured":
            outcome.facts["warm_compile_error"] = f"{again.outcome.reason}: {again.outcome.message or ''}"
            break
        if (latency_s := again.outcome.values.get(FIRST)) is not None:
            samples.append(latency_s)
    add_samples(outcome, WARM, samples)
    outcome.facts["warm_compile"] = "each in a process of its own, with the first one's caches"
    return done
