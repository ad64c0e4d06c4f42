"""Parts of a comparison's side: its models' results, and which of them are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from compileboard.app.comparison.environment import list_changes
from compileboard.app.comparison.model import (
    COMPARED,
    MACHINE_FIELDS,
    MODEL_FIELDS,
    ComparedRun,
    CompareSide,
    ModelResult,
)
from compileboard.app.comparison.sides import NamedSide
from compileboard.app.core.format import format_time
from compileboard.app.core.newest import RecorderClock
from compileboard.app.runs.run_queries import RunDetail
from compileboard.app.runs.states import describe_state
from compileboard.collectors.contract.result_columns import STORE_NAMES
from compileboard.collectors.store.results import ExperimentResult, ResultRow

_NAMES = tuple(metric.name for metric in COMPARED)
_COUNTS = (
    "compile_count",
    "graph_break_count",
    "recompile_count",
    "recompile_limit_count",
    "failure_count",
    "cache_miss_count",
)


def make_result(
    row: ResultRow, lead: ExperimentResult, repeats: Mapping[str, Sequence[float]]
) -> ModelResult:
    values = {name: getattr(row, name) for name in _NAMES}
    return ModelResult(
        series={name: getattr(row, name) for name in (*MODEL_FIELDS, *MACHINE_FIELDS)},
        status=lead.status,  # what was timed is compared, and a wrong answer said beside it
        values={name: value for name, value in values.items() if value is not None},
        reason=lead.reason,
        accuracy=read_accuracy(row),
        interval=_pair(row.speedup_low, row.speedup_high),
        repeats=repeats,
        run_id=row.run_id,
        experiments=row.experiments,
    )


def read_accuracy(row: ResultRow) -> str | None:
    failure = row.judge.reason if row.judge is not None and row.judge.status == "failed" else None
    return row.accuracy or failure


def read_stored_result(row: Mapping[str, Any]) -> ModelResult:
    cells = {STORE_NAMES.get(name, name): value for name, value in row["cells"].items()}
    return ModelResult(
        series={name: row["series"].get(name) for name in (*MODEL_FIELDS, *MACHINE_FIELDS)}
        | {"model": row["name"]},
        status=cells.get("status", "measured"),
        values={
            name: value for name, value in cells.items() if name in _NAMES and value is not None
        },
        reason=cells.get("reason"),
        accuracy=cells.get("accuracy"),
        interval=_pair(cells.get("speedup_low"), cells.get("speedup_high")),
        repeats=row.get("repeats", {}),  # a baseline of an older CompileBoard has none
    )


def _pair(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None else (low, high)


def drop_programs(side: NamedSide, other: NamedSide) -> tuple[NamedSide, str]:
    """Drop observed programs that the other side never ran: their breaks are neither new nor
    resolved.
    """
    known = {(detail.run.suite, detail.run.name) for detail in other.runs}
    runs = tuple(
        run for run in side.runs if run.run.result_count or (run.run.suite, run.run.name) in known
    )
    if not runs:
        return side, ""
    names = sorted({detail.run.name for detail in side.runs} - {detail.run.name for detail in runs})
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    warning = (
        f"only {side.asked} ran {', '.join(names[:3])}{more}, which is left out" if names else ""
    )
    return replace(side, runs=runs), warning


def filter_suite(side: CompareSide, suite: str) -> CompareSide:
    """Filter to one suite; items without a model stay only if there is no other suite."""
    entries = tuple(entry for entry in side.entries if entry.series["suite"] == suite)
    if len(entries) == len(side.entries) > 0:
        return side
    keys = {entry.key for entry in entries}
    breaks, causes = (
        None
        if items is None or not entries
        else tuple(item for item in items if item.model in keys)
        for items in (side.breaks, side.causes)
    )
    return replace(side, entries=entries, breaks=breaks, causes=causes, functions=(), totals={})


def name_side(named: NamedSide) -> str:
    newest = named.runs[0].run
    if ":" not in named.asked:
        return f"{newest.shown_name}, {format_time(newest.started_us)[:16]}"
    return named.asked.replace(":", " ", 1)


def label_run(detail: RunDetail, clock: RecorderClock) -> ComparedRun:
    run, state = detail.run, describe_state(detail.run, *clock).word
    return ComparedRun(
        run.id,
        run.shown_name,
        run.started_us,
        run.state,
        state,
        run.git_commit,
        run.git_branch,
        run.git_subject,
    )


def sum_totals(runs: Sequence[RunDetail]) -> dict[str, float]:
    totals: dict[str, float] = {
        name: sum(getattr(detail.run, name) for detail in runs) for name in _COUNTS
    }
    times = [detail.run.compile_us for detail in runs]
    known = [time_us for time_us in times if time_us is not None]
    # A sum that lacks a run's time is no less time.
    return totals | ({"compile_s": sum(known) / 1e6} if len(known) == len(times) else {})


def format_timing(settings: Mapping[str, Any]) -> str:
    words = [
        f"{name.replace('_', ' ')} {value}" for name, value in settings.items() if name != "quick"
    ]
    return (
        ", ".join([*words, *(["quick"] if settings.get("quick") else [])])
        or "the harness's default"
    )


def merge_settings(
    changed: Sequence[tuple[str, Mapping[str, Mapping[str, Any]]]],
) -> dict[tuple[str, str], tuple[str, str]]:
    settings: dict[tuple[str, str], tuple[str, str]] = {}
    for change in list_changes(changed):
        known = settings.get((change.module, change.name))
        value = f"{known[0]} or {change.value}" if known else change.value
        settings[change.module, change.name] = (value, change.default)
    return settings
