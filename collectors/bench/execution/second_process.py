"""Measure the model again in a new process, which finds the first one's caches and packages.

It is not a fork: two forks of one server have the same hash seed and addresses, so a cache key that
depends on them would hit. Source: --cold-start-latency,
--warm-start-latency and --caching-precompile of upstream's benchmarks/dynamo/common.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from compileboard.collectors.bench.execution.isolation import (
    CACHE_VARIABLE,
    TaskOutcome,
    cache_folder,
    clear,
    run_task,
)
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.bench.worker.outcome import (
    FIRST,
    FIRST_CALL,
    LOAD,
    SECOND,
    WARM,
    CompileTime,
    add_samples,
)

# The caches that a second process can read. On from torch 2.6 on by themselves; before, they have
# to be asked for.
CACHES_ON = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "1", "TORCHINDUCTOR_AUTOGRAD_CACHE": "1"}


@dataclass(frozen=True)
class SecondProcess:
    suffix: str  # of its task: its breaks and recompiles are not the result's
    measures: str
    adds: CompileTime


WARM_START = SecondProcess("warm_start", FIRST, WARM)
PRECOMPILED = SecondProcess("second_process", FIRST_CALL, SECOND)


def find_second_process(task: Task) -> SecondProcess | None:
    if task.experiment in ("aot_precompile", "caching_precompile"):
        return PRECOMPILED
    return (
        WARM_START
        if task.settings.warm_start_latency and task.experiment == "performance"
        else None
    )


def measure_second_processes(
    done: TaskOutcome,
    task: Task,
    second: SecondProcess,
    folder: Path,
    environment: Callable[[str], Mapping[str, str]],
    *,
    cwd: str | None,
    beat: Callable[[], None],
) -> TaskOutcome:
    if done.outcome.status != "measured":
        return done
    quick = Task(
        task.experiment, task.ref, replace(task.settings, quick=True, repeat=1, compile_repeats=1)
    )
    shared = {CACHE_VARIABLE: str(cache_folder(folder, environment("")))}
    outcome, samples, loads_s = done.outcome, [], []
    for _ in range(task.settings.compile_repeats):
        clear(folder / second.suffix)
        own = {**environment(f"/{second.suffix}"), **shared}
        again = run_task(quick, folder / second.suffix, own, cwd=cwd, beat=beat)
        done = replace(done, duration_us=done.duration_us + again.duration_us)
        if again.outcome.status != "measured":
            outcome.facts["warm_compile_error"] = (
                f"{again.outcome.reason}: {again.outcome.message or ''}"
            )
            break
        if (latency_s := again.outcome.values.get(second.measures)) is not None:
            samples.append(latency_s)
        if second is PRECOMPILED:
            if (load_s := again.outcome.values.get("load_latency")) is not None:
                loads_s.append(load_s)
            if (
                error := again.outcome.values.get("output_error")
            ) is not None:  # the worse of both processes
                outcome.values["output_error"] = max(error, outcome.values.get("output_error", 0.0))
            outcome.facts["second_process_graph_count"] = int(
                again.outcome.values.get("unique_graphs", 0)
            )
    add_samples(outcome, second.adds, samples)
    add_samples(outcome, LOAD, loads_s)
    outcome.facts["warm_compile"] = "each in a process of its own, with the first one's caches"
    return done
