"""Make a side of a comparison: of runs that are recorded, or of what a baseline keeps of one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from compileboard.app.analysis.comparison.differences import compare
from compileboard.app.analysis.comparison.environment import list_changes
from compileboard.app.analysis.comparison.metrics import COMPARED
from compileboard.app.analysis.comparison.model import (
    MACHINE_FIELDS,
    MODEL_FIELDS,
    CompareSide,
    Comparison,
    DistinctItem,
    Key,
    ModelResult,
    RunLabel,
)
from compileboard.app.format import format_time
from compileboard.app.queries.fleet import comparison
from compileboard.app.queries.fleet.baselines import Baseline
from compileboard.app.queries.fleet.comparison import TaskDistinct
from compileboard.app.queries.fleet.models import filter_newest
from compileboard.app.queries.fleet.sides import NamedSide, find_side
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.run.models import list_measured
from compileboard.app.queries.run.run import RunDetail
from compileboard.collectors.contract.result_columns import STORE_NAMES
from compileboard.collectors.store.rollups.results import ExperimentResult, ResultRow, merge_with_parts

Tasks = Mapping[tuple[str, str], tuple[Key, str]]  # run and task -> model and experiment
ListOf = Callable[[sqlite3.Connection, str], list[TaskDistinct]]
BASELINE_VERSION = 1  # of app.checks.sides, which is above this room
_COUNTS = (
    "compile_count",
    "graph_break_count",
    "recompile_count",
    "recompile_limit_count",
    "failure_count",
    "cache_miss_count",
)


def read_comparison(
    reader: sqlite3.Connection, base: str, new: str, *, anyway: bool = False, suite: str | None = None
) -> Comparison:
    """Compare what two texts name, of one suite where it is given.

    Raises: FilterError if a text names nothing, or neither side has the suite.
    """
    named = [find_side(reader, text, name) for name, text in (("base", base), ("new", new))]
    kept, said = zip(*(_filter_programs(*both) for both in zip(named, named[::-1])))
    before, after = (_load_named(reader, it, suite) for it in kept)
    if suite and not (before.entries or after.entries):
        raise FilterError(f"suite: neither {base[:80]} nor {new[:80]} has a result of suite {suite[:80]!r}")
    found = compare(before, after, anyway)
    return replace(found, warnings=(*found.warnings, *filter(None, said)))


def _filter_programs(side: NamedSide, other: NamedSide) -> tuple[NamedSide, str]:
    """Leave out of several runs the observed programs that the other side never ran, and say which: their graph breaks
    are neither new nor resolved.
    """
    known = {(it.run.suite, it.run.name) for it in other.runs}
    kept = tuple(it for it in side.runs if it.run.result_count or (it.run.suite, it.run.name) in known)
    if not kept:
        return side, ""
    names = sorted({it.run.name for it in side.runs} - {it.run.name for it in kept})
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    said = f"only {side.asked} ran {', '.join(names[:3])}{more}, which is left out" if names else ""
    return replace(side, runs=kept), said


def _load_named(reader: sqlite3.Connection, named: NamedSide, suite: str | None) -> CompareSide:
    if not suite:
        return load_side(reader, named)
    return _filter_suite(load_side(reader, _filter_runs(reader, named, suite)), suite)


def _filter_runs(reader: sqlite3.Connection, named: NamedSide, suite: str) -> NamedSide:
    """Keep the runs that measured a suite; all where none did, of which then nothing is kept."""
    having = tuple(run for run in named.runs if any(it.suite == suite for it in list_measured(reader, run.run.id)))
    return replace(named, runs=having or named.runs)


def _filter_suite(side: CompareSide, suite: str) -> CompareSide:
    """Keep of a side what is of one suite: what nobody assigned to a model, only where it had no other suite."""
    entries = tuple(it for it in side.entries if it.series["suite"] == suite)
    if len(entries) == len(side.entries) > 0:
        return side
    keys = {it.key for it in entries}
    kept = [
        None if it is None or not entries else tuple(one for one in it if one.model in keys)
        for it in (side.breaks, side.causes)
    ]
    return replace(side, entries=entries, breaks=kept[0], causes=kept[1], functions=(), totals={})


def load_side(reader: sqlite3.Connection, named: NamedSide) -> CompareSide:
    """Make a side of what a text names.

    Raises: FilterError if a newer CompileBoard wrote the baseline.
    """
    return _read_baseline(named.asked, named.baseline) if named.baseline else _read_runs(reader, named)


def _read_runs(reader: sqlite3.Connection, named: NamedSide) -> CompareSide:
    ids = [it.run.id for it in named.runs]
    merged = merge_with_parts(filter_newest(it for run_id in ids for it in list_measured(reader, run_id)))
    rows = [row for row, _parts in merged]
    kept = comparison.load_repeats(reader, ids) if rows else {}
    entries = tuple(_make_entry(row, found[0], kept.get(row.id, {})) for row, found in merged)
    parts = [(part, entry.key) for (_row, parts), entry in zip(merged, entries) for part in parts]
    tasks = {(part.run_id, part.task): (key, part.experiment) for part, key in parts if part.task}
    observed = any(comparison.count_observed(reader, run_id) for run_id in ids)
    breaks = _read_distinct(reader, ids, tasks, comparison.list_task_breaks)
    causes = _read_distinct(reader, ids, tasks, comparison.list_task_causes)
    return CompareSide(
        asked=named.asked,
        title=_title(named),
        runs=tuple(_words(it) for it in named.runs),
        entries=entries,
        breaks=breaks if breaks or observed else None,
        causes=causes if causes or observed else None,
        functions=tuple(comparison.list_function_sums(reader, ids)),
        totals=_sum_totals(named.runs) if observed else {},
        environment=_read_environment(reader, named.runs, rows),
        config=_read_config(reader, ids),
    )


def _title(named: NamedSide) -> str:
    newest = named.runs[0].run
    if ":" not in named.asked:
        return f"{newest.shown_name}, {format_time(newest.started_us)[:16]}"
    return named.asked.replace(":", " ", 1)


def _words(it: RunDetail) -> RunLabel:
    run = it.run
    return RunLabel(
        run.id, run.shown_name, run.started_us, run.state, run.git_commit, run.git_branch, run.git_subject
    )  # fmt: skip


def _make_entry(row: ResultRow, lead: ExperimentResult, kept: Mapping[str, Sequence[float]]) -> ModelResult:
    values = {it.name: getattr(row, it.name) for it in COMPARED}
    low, high = row.speedup_low, row.speedup_high
    return ModelResult(
        series={name: getattr(row, name) for name in (*MODEL_FIELDS, *MACHINE_FIELDS)},
        status=lead.status,  # what was timed is compared, and a wrong answer said beside it
        values={name: value for name, value in values.items() if value is not None},
        reason=lead.reason,
        accuracy=row.accuracy,
        interval=None if low is None or high is None else (low, high),
        repeats=kept,
        run_id=row.run_id,
        experiments=row.experiments,
    )


def _read_distinct(
    reader: sqlite3.Connection, ids: Iterable[str], tasks: Tasks, list_of: ListOf
) -> tuple[DistinctItem, ...]:
    found: list[DistinctItem] = []
    for run_id in ids:
        for it in list_of(reader, run_id):
            model, experiment = tasks.get((run_id, it.task or ""), (None, None))
            if it.task is None or model is not None:  # else a newer result stands for what this task measured
                where = (it.kind, it.function, it.file, it.line, experiment)
                found.append(DistinctItem(it.fingerprint, model, it.reason, it.count, *where))
    return tuple(found)


def _sum_totals(runs: Sequence[RunDetail]) -> dict[str, float]:
    totals: dict[str, float] = {name: sum(getattr(detail.run, name) for detail in runs) for name in _COUNTS}
    totals["failure_count"] += sum(detail.run.runtime_failure_count for detail in runs)
    times = [detail.run.compile_us for detail in runs]
    known = [time_us for time_us in times if time_us is not None]
    # A sum that lacks a run's time is no less time.
    return totals | ({"compile_s": sum(known) / 1e6} if len(known) == len(times) else {})


def _read_environment(
    reader: sqlite3.Connection, runs: Sequence[RunDetail], rows: Sequence[ResultRow]
) -> dict[str, tuple[str, ...]]:
    ids = [it.run.id for it in runs]
    versions = comparison.list_versions(reader, ids)
    found: dict[str, Iterable[str | None]] = {
        "device": (it.device for it in rows),
        "hardware": [it.hardware for it in rows] or [it.run.gpu_name or "CPU" for it in runs],
        "torch": versions.torch or [it.run.torch_version for it in runs],
        "triton": versions.triton,
        "cuda": versions.cuda or [it.run.cuda_version for it in runs],
        "driver": (_text(gpu.get("driver_version")) for it in runs for gpu in it.gpus),
        "timing": (_format_timing(it) for it in comparison.list_timing(reader, ids)),
        "python": versions.python or [it.run.python_version for it in runs],
        "host": (it.run.host for it in runs),
    }
    return {name: tuple(sorted({it for it in values if it})) for name, values in found.items()}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _format_timing(settings: Mapping[str, Any]) -> str:
    words = [f"{name.replace('_', ' ')} {value}" for name, value in settings.items() if name != "quick"]
    return ", ".join([*words, *(["quick"] if settings.get("quick") else [])]) or "the harness's default"


def _read_config(reader: sqlite3.Connection, ids: Sequence[str]) -> dict[tuple[str, str], tuple[str, str]]:
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for it in list_changes(comparison.list_changed(reader, ids)):
        known = found.get((it.module, it.name))
        found[it.module, it.name] = (f"{known[0]} or {it.value}" if known else it.value, it.default)
    return found


def _read_baseline(asked: str, stored: Baseline) -> CompareSide:
    body = stored.body
    if body.get("version") != BASELINE_VERSION:
        raise FilterError(
            f"baseline {stored.name} has version {body.get('version')}, this knows {BASELINE_VERSION}; upgrade "
            "CompileBoard"
        )
    entries = {row["key"]: _entry_of(row) for row in body["rows"]}
    keys = {name: it.key for name, it in entries.items()}
    environment = {name: tuple(str(value).split(", ")) for name, value in body["environment"].items() if value}
    return CompareSide(
        asked=asked,
        title=f"baseline {stored.name}",
        entries=tuple(entries.values()),
        breaks=_kept_distinct(body["breaks"], keys),
        causes=_kept_distinct(body["causes"], keys),
        environment=environment,
    )


def _entry_of(row: Mapping[str, Any]) -> ModelResult:
    cells = {STORE_NAMES.get(name, name): value for name, value in row["cells"].items()}
    low, high = cells.get("speedup_low"), cells.get("speedup_high")
    names = {it.name for it in COMPARED}
    return ModelResult(
        series={name: row["series"].get(name) for name in (*MODEL_FIELDS, *MACHINE_FIELDS)} | {"model": row["name"]},
        status=cells.get("status", "measured"),
        values={name: value for name, value in cells.items() if name in names and value is not None},
        reason=cells.get("reason"),
        accuracy=cells.get("accuracy"),
        interval=None if low is None or high is None else (low, high),
        repeats=row.get("repeats", {}),  # a baseline of an older CompileBoard has none
    )


def _kept_distinct(found: list[dict[str, Any]] | None, keys: Mapping[str, Key]) -> tuple[DistinctItem, ...] | None:
    if found is None:
        return None
    return tuple(DistinctItem(**(it | {"model": keys.get(it["model"] or "")})) for it in found)
