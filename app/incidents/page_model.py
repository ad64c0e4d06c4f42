"""Incidents as a list, and one incident with its changes, discussion and series."""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compileboard.app.benchmarks.labels import describe_status
from compileboard.app.benchmarks.metrics import PASSES, Metric
from compileboard.app.benchmarks.series_queries import list_run_points
from compileboard.app.benchmarks.trend_lines import (
    Axis,
    TrendLine,
    TrendPoint,
    build_axis,
    build_model_lines,
    build_suite_line,
)
from compileboard.app.benchmarks.trend_queries import (
    TrendFilter,
    TrendRun,
    list_model_rows,
    list_summaries,
    list_trend_runs,
)
from compileboard.app.core.engine import Engine
from compileboard.app.core.newest import RecorderClock
from compileboard.app.core.store import Store, open_run_or_board
from compileboard.app.incidents.model import (
    Incident,
    IncidentDetail,
    SeriesChange,
    Sparkline,
    find_metric_of,
    judge_pass,
    rank_change,
)
from compileboard.app.incidents.queries import (
    get_change,
    get_incident,
    list_changes_of,
    list_comments,
)
from compileboard.app.repros.queries import ReproRow, list_repros
from compileboard.app.runs.advice import CauseRow
from compileboard.app.runs.model import list_run_causes
from compileboard.app.runs.run_queries import get_run
from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.store.results import ResultRow
from compileboard.collectors.store.rollups import HUD, SUMMARIZE_PERF

AROUND = 90  # runs on either side of the change


@dataclass(frozen=True)
class LevelLines:
    before: tuple[int, int]
    after: tuple[int, int] | None
    changed: tuple[int, int]


def make_model_line(change: SeriesChange, rows: Sequence[ResultRow]) -> TrendLine:
    own = [row for row in rows if (row.batch_size or 0) == change.batch_size]
    if change.metric != PASSES.name:
        lines = build_model_lines(find_metric_of(change), own)
        return lines[0] if lines else TrendLine(change.model, [])
    return TrendLine(change.model, [_judge(row) for row in own])


def _judge(row: ResultRow) -> TrendPoint:
    passed = judge_pass(row.status, row.accuracy)
    if passed is None:
        return TrendPoint(row.run_id, None, status="skipped", reason=describe_status(row).word)
    return TrendPoint(row.run_id, passed)


def choose_runs(change: SeriesChange, runs: Sequence[TrendRun]) -> list[TrendRun]:
    own = [run for run in runs if (run.git_branch or "") == change.branch]
    last = bisect_left([run.started_us for run in own], change.first_us)
    first = next(
        (
            at
            for at, run in enumerate(own[:last])
            if run.id in (change.before_run_id, change.low_run_id)
        ),
        last,
    )
    return own[max(first - AROUND, 0) : last + AROUND]


def find_levels(change: SeriesChange, axis: Axis) -> LevelLines | None:
    positions = {run.id: number for number, run in enumerate(axis.runs)}
    times = [run.started_us for run in axis.runs]
    first = positions.get(change.first_run_id, bisect_left(times, change.first_us))
    before = positions.get(change.before_run_id or "", first - 1)
    if not 0 <= before < first:
        return None
    low, high = (
        positions.get(run_id or "", at)
        for run_id, at in ((change.low_run_id, first), (change.high_run_id, first))
    )
    changed = (min(before, low), max(first, high))
    points = change.points or {}
    since = max(before - max(int(points.get("before") or len(times)), 2) + 1, 0)
    if change.after_value is None or first >= len(times):
        return LevelLines((since, before), None, (changed[0], min(changed[1], len(times) - 1)))
    starts = changed[1] if change.kind == "drift" else first
    recovered = positions.get(change.recovered_run_id or "", len(times))
    until = min(starts + max(int(points.get("after") or len(times)), 2) - 1, len(times) - 1)
    until = min(until, recovered - 1) if recovered > starts else until
    return LevelLines((since, before), (starts, max(until, starts)), changed)


SERIES_FIELDS = ("suite", "mode", "dtype", "device", "hardware", "backend")
SPARKLINE_COUNT = 30
SPARKLINE_US = 20 * 86_400_000_000  # before and after: reading two years takes ten times as long
MAX_REPROS = 5
ABSENT = "There is no incident {}; unconfirmed ones disappear when later runs do not show them."


@dataclass(frozen=True)
class IncidentSeries:
    change: SeriesChange
    metric: Metric
    line: TrendLine
    axis: Axis
    levels: LevelLines | None

    @property
    def runs(self) -> dict[str, TrendRun]:
        return {run.id: run for run in self.axis.runs}

    @property
    def newest(self) -> tuple[TrendRun, float] | None:
        values = {point.run_id: point.drawn for point in self.line.points}
        known = (
            (run, value)
            for run in reversed(self.axis.runs)
            if (value := values.get(run.id)) is not None
        )
        return next(known, None)


@dataclass(frozen=True)
class IncidentScreen:
    """One incident with the series of one of its changes; the series is None if all its runs are
    gone.

    `fixable` is its cause with known fixes, from the newest run that has it.
    """

    detail: IncidentDetail
    series: IncidentSeries | None
    fixable: CauseRow | None
    repros: Sequence[ReproRow]  # Repros of the first bad run.


def build_sparkline(
    reader: sqlite3.Connection, engine: Engine, incident: Incident, clock: RecorderClock
) -> Sparkline | None:
    change = get_change(reader, incident.lead_change_id)
    until_us = incident.recovered_us and incident.recovered_us + SPARKLINE_US
    within = {"since_us": incident.first_us - SPARKLINE_US, "until_us": until_us}
    series = build_series(engine, change, clock, **within) if change else None
    if series is None:
        return None
    runs = series.axis.runs[-SPARKLINE_COUNT:]
    values = {point.run_id: point.drawn for point in series.line.points}
    start = next((at for at, run in enumerate(runs) if run.started_us >= incident.first_us), None)
    recovered_id = incident.recovered.run_id if incident.recovered else None
    end = next((at for at, run in enumerate(runs) if run.id == recovered_id), len(runs))
    return Sparkline([values.get(run.id) for run in runs], start, end)


def build_detail(reader: sqlite3.Connection, incident_id: str) -> IncidentDetail | None:
    incident = get_incident(reader, incident_id)
    if incident is None:
        return None
    changes = sorted(list_changes_of(reader, [incident_id]), key=rank_change)
    comments = list_comments(reader, incident_id)
    return IncidentDetail(**vars(incident), changes=changes, comments=comments)


def build_incident(
    store: Store, incident_id: str, clock: RecorderClock, change_id: str | None = None
) -> IncidentScreen | None:
    detail = build_detail(store.board, incident_id)
    if detail is None:
        return None
    wanted_id = change_id or detail.lead_change_id
    change = next((change for change in detail.changes if change.id == wanted_id), None)
    series = build_series(store.engine, change, clock) if change else None
    first_id = detail.first_bad.run_id
    repros = list_repros(open_run_or_board(store, first_id), run_id=first_id, limit=MAX_REPROS).rows
    return IncidentScreen(detail, series, _find_fixable(store, detail, series), repros)


def _find_fixable(
    store: Store, incident: Incident, series: IncidentSeries | None
) -> CauseRow | None:
    cause = incident.cause
    cause_id = (cause.break_id or cause.cause_id) if cause else None
    if cause_id is None:
        return None
    newest = series.newest[0].id if series and series.newest else incident.first_bad.run_id
    for run_id in dict.fromkeys((newest, incident.first_bad.run_id)):
        detail = get_run(store.board, run_id)
        causes = list_run_causes(open_run_or_board(store, run_id), detail.run) if detail else []
        same = [row for row in causes if cause_id in map(format_id, row.content_ids)]
        if same:
            return same[0]
    return None


def build_series(
    engine: Engine, change: SeriesChange, clock: RecorderClock, **within: int | None
) -> IncidentSeries | None:
    line = _read_line(engine, change, within)
    run_ids = [point.run_id for point in line.points]
    runs = choose_runs(
        change, list_trend_runs(engine, run_ids, alive_since_us=clock.alive_since_us)
    )
    if not runs:
        return None
    axis = build_axis(runs, "date")
    return IncidentSeries(change, find_metric_of(change), line, axis, find_levels(change, axis))


def _read_line(engine: Engine, change: SeriesChange, within: Mapping[str, Any]) -> TrendLine:
    if change.subject == "runs":
        series = list_run_points(engine, [change.model])
        own = [
            rows
            for key, rows in series
            if (key["suite"], key["hardware"]) == (change.suite, change.hardware)
        ]
        totals = own[0] if own else []
        points = [TrendPoint(row["id"], row[change.metric]) for row in totals]
        return TrendLine(change.model, points)
    words: dict[str, Any] = {name: getattr(change, name) for name in SERIES_FIELDS}
    words.update(within)
    selected = TrendFilter(
        **words, dynamic=change.dynamic, world_size=change.world_size, branch=change.branch or None
    )
    if change.subject == "model":
        columns = () if change.metric == PASSES.name else find_metric_of(change).columns
        return make_model_line(change, list_model_rows(engine, selected, [change.model], columns))
    for definition in (
        HUD,
        SUMMARIZE_PERF,
    ):  # Like detection: the second definition if accuracy is not checked.
        summaries = list_summaries(engine, selected, definition.name)
        line = build_suite_line(find_metric_of(change), summaries, change.suite)
        if any(point.value is not None for point in line.points):
            return line
    return line
