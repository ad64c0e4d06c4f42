"""Load a side of a comparison: results, graph breaks, causes and environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from compileboard.app.benchmarks.queries import filter_newest
from compileboard.app.benchmarks.run_queries import list_measured
from compileboard.app.comparison import queries
from compileboard.app.comparison.baselines import load_baseline
from compileboard.app.comparison.environment import list_changes
from compileboard.app.comparison.model import (
    ComparedRun,
    ComparedSide,
    format_names,
    make_result,
)
from compileboard.app.comparison.sides import NamedSide, name_side
from compileboard.app.core.newest import RecorderClock
from compileboard.app.core.store import Store, group_runs
from compileboard.app.runs.rows import describe_state
from compileboard.app.runs.run_queries import RunDetail
from compileboard.collectors.store.results import ResultRow, merge_with_parts

_COUNTS = (
    "compile_count",
    "graph_break_count",
    "recompile_count",
    "recompile_limit_count",
    "failure_count",
    "cache_miss_count",
    "cudagraph_rerecording_count",
)


def load_side(store: Store, clock: RecorderClock, named: NamedSide) -> ComparedSide:
    """Load a side's results and environment. Raises FilterError if a newer CompileBoard wrote the
    baseline.
    """
    if named.baseline:
        return _load_baseline(named)
    ids = [detail.run.id for detail in named.runs]
    merged = merge_with_parts(
        filter_newest(
            result for run_id in ids for result in list_measured(store.open_run(run_id), run_id)
        )
    )
    repeats: dict[int, dict[str, list[float]]] = {}
    for reader, group in group_runs(store, ids) if merged else ():
        repeats |= queries.load_repeats(reader, group)
    entries = [
        make_result(row, parts[0], queries.choose_samples(parts, repeats)) for row, parts in merged
    ]
    # The model and the experiment of each run's tasks.
    tasks = {
        (part.run_id, part.task): (entry.key, part.experiment)
        for entry, (_row, parts) in zip(entries, merged)
        for part in parts
        if part.task
    }
    is_observed = any(queries.count_observed(store.board, run_id) for run_id in ids)
    distinct = {
        name: tuple(
            replace(item, model=model, experiment=experiment)
            for run_id in ids
            for task, item in queries.list_task_distinct(store.open_run(run_id), sql, run_id)
            for model, experiment in (tasks.get((run_id, task or ""), (None, None)),)
            # Otherwise a newer result replaced this task's.
            if task is None or model is not None
        )
        for name, sql in queries.DISTINCT.items()
    }
    has_cuda_graphs = any(detail.run.cudagraph_recording_count for detail in named.runs)
    return ComparedSide(
        asked=named.asked,
        title=name_side(named),
        runs=tuple(
            ComparedRun(
                run.id,
                run.shown_name,
                run.started_us,
                run.state,
                describe_state(run, *clock).word,
                run.git_commit,
                run.git_branch,
                run.git_subject,
            )
            for run in (detail.run for detail in named.runs)
        ),
        entries=tuple(entries),
        **queries.drop_unrecorded(distinct, is_observed, has_cuda_graphs),
        functions=tuple(queries.list_function_sums(store.engine, ids)),
        totals=_sum_totals(named.runs) if is_observed else {},
        environment=_load_environment(store, named.runs, [row for row, _parts in merged]),
        config=_load_settings(store, ids),
    )


def _load_baseline(named: NamedSide) -> ComparedSide:
    assert named.baseline is not None
    side = load_baseline(named.baseline.body, f"baseline {named.baseline.name}")
    keys = {row.key: result.key for row, result in zip(side.rows, side.results)}
    distinct: dict[str, Any] = {
        name: None
        if (items := getattr(side, name)) is None
        else tuple(replace(item, model=keys.get(item.model or "")) for item in items)
        for name in queries.DISTINCT
    }
    return ComparedSide(
        asked=named.asked,
        title=side.title,
        entries=side.results,
        **distinct,
        environment={
            name: tuple(str(value).split(", ")) for name, value in side.environment.items() if value
        },
    )


def _load_environment(
    store: Store, runs: Sequence[RunDetail], rows: Sequence[ResultRow]
) -> dict[str, tuple[str, ...]]:
    ids = [detail.run.id for detail in runs]
    versions = queries.list_versions(store.board, ids)
    timings = (
        timing
        for reader, group in group_runs(store, ids)
        for timing in queries.list_timing(reader, group)
    )
    drivers = (gpu.get("driver_version") for detail in runs for gpu in detail.gpus)
    values_by_field: dict[str, Iterable[str | None]] = {
        "device": (row.device for row in rows),
        "hardware": [row.hardware for row in rows]
        or [detail.run.gpu_name or detail.run.device for detail in runs],
        "torch": versions.torch or [detail.run.torch_version for detail in runs],
        "triton": versions.triton,
        "cuda": versions.cuda or [detail.run.cuda_version for detail in runs],
        "driver": (None if driver is None else str(driver) for driver in drivers),
        "timing": (_format_timing(settings) for settings in timings),
        "python": versions.python or [detail.run.python_version for detail in runs],
        "host": (detail.run.host for detail in runs),
    }
    return {
        name: tuple(sorted({value for value in values if value}))
        for name, values in values_by_field.items()
    }


def _format_timing(settings: Mapping[str, Any]) -> str:
    words = [
        f"{name.replace('_', ' ')} {value}" for name, value in settings.items() if name != "quick"
    ]
    return (
        ", ".join([*words, *(["quick"] if settings.get("quick") else [])])
        or "the harness's default"
    )


def _sum_totals(runs: Sequence[RunDetail]) -> dict[str, float]:
    totals: dict[str, float] = {
        name: sum(getattr(detail.run, name) or 0 for detail in runs) for name in _COUNTS
    }
    times = [detail.run.compile_us for detail in runs]
    known = [time_us for time_us in times if time_us is not None]
    # A sum without a run's time is not smaller.
    return totals | ({"compile_s": sum(known) / 1e6} if len(known) == len(times) else {})


def _load_settings(store: Store, run_ids: Sequence[str]) -> dict[tuple[str, str], tuple[str, str]]:
    changed = {
        digest: values
        for reader, group in group_runs(store, run_ids)
        for digest, values in queries.list_changed(reader, group)
    }
    settings: dict[tuple[str, str], tuple[str, str]] = {}
    for change in list_changes(sorted(changed.items(), key=lambda pair: pair[0])):
        known = settings.get((change.module, change.name))
        value = f"{known[0]} or {change.value}" if known else change.value
        settings[change.module, change.name] = (value, change.default)
    return settings


def drop_programs(side: NamedSide, other: NamedSide) -> tuple[NamedSide, str]:
    """Drop observed programs that the other side never ran: their graph breaks are neither new nor
    resolved.
    """
    known = {(detail.run.suite, detail.run.name) for detail in other.runs}
    runs = tuple(
        run for run in side.runs if run.run.result_count or (run.run.suite, run.run.name) in known
    )
    if not runs:
        return side, ""
    names = sorted({detail.run.name for detail in side.runs} - {detail.run.name for detail in runs})
    warning = f"only {side.asked} ran {format_names(names)}, which is left out" if names else ""
    return replace(side, runs=runs), warning


def filter_suite(side: ComparedSide, suite: str) -> ComparedSide:
    """Keep one suite; items without a model stay only if there is no other suite."""
    entries = tuple(entry for entry in side.entries if entry.series["suite"] == suite)
    if len(entries) == len(side.entries) > 0:
        return side
    keys = {entry.key for entry in entries}
    chosen = side.choose(entries, lambda item: item.model in keys)
    unknown: dict[str, Any] = {} if entries else dict.fromkeys(queries.DISTINCT)
    return replace(chosen, functions=(), totals={}, **unknown)
