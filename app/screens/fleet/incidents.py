"""Incidents: the lasting changes of series, grouped by where they came in, and one of them with its series."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from compileboard.app.analysis.incidents.chart_data import (
    LevelLines,
    choose_runs,
    find_levels,
    make_model_line,
    make_runs_line,
    make_suite_line,
)
from compileboard.app.analysis.incidents.groups import Incident, group_incidents
from compileboard.app.analysis.incidents.messages import find_metric_of
from compileboard.app.analysis.metrics import PASSES, Metric
from compileboard.app.analysis.trends.lines import Axis, TrendLine, lay_out
from compileboard.app.queries.dashboard.incidents import (
    Comment,
    IncidentCounts,
    IncidentFilter,
    SeriesChange,
    count_findings,
    count_range_others,
    count_ranges,
    get_detection,
    get_finding,
    list_finding_words,
    list_findings,
)
from compileboard.app.queries.engine import Engine
from compileboard.app.queries.fleet.models import list_bench_runs
from compileboard.app.queries.fleet.series import list_run_points
from compileboard.app.queries.fleet.trends import (
    TrendFilter,
    TrendRun,
    list_model_rows,
    list_summaries,
    list_trend_runs,
)
from compileboard.app.queries.newest import RecorderClock
from compileboard.collectors.store.rollups.summaries import HUD, SUMMARIZE_PERF

SERIES_FIELDS = ("suite", "mode", "dtype", "device", "hardware", "backend")


@dataclass(frozen=True)
class SeriesChangeList:
    """One page of changes of series."""

    changes: Sequence[SeriesChange]
    next_cursor: str | None


@dataclass(frozen=True)
class IncidentsScreen:
    """One page of changes, grouped by the commits or runs that they came with; counts are of the whole database."""

    listed: SeriesChangeList
    incidents: Sequence[Incident]
    counts: IncidentCounts
    detected_us: int | None
    has_runs: bool


@dataclass(frozen=True)
class IncidentRecord:
    """One change of a series, and what people did with it and said of it."""

    change: SeriesChange
    comments: Sequence[Comment]


@dataclass(frozen=True)
class IncidentSeries:
    """The runs around a change as a line on an axis, and where its levels lie."""

    metric: Metric
    line: TrendLine
    axis: Axis
    levels: LevelLines | None

    @property
    def runs(self) -> dict[str, TrendRun]:
        """Return the runs by their ids."""
        return {run.id: run for run in self.axis.runs}


@dataclass(frozen=True)
class IncidentScreen:
    """One change with its series, which is None where no run of it is left; `other_count` came with the same runs."""

    record: IncidentRecord
    series: IncidentSeries | None
    other_count: int


def build_change_list(
    reader: sqlite3.Connection,
    selected: IncidentFilter,
    cursor: str | None,
    limit_count: int,
    moment: Literal["first_us", "noticed_us"] = "first_us",
) -> SeriesChangeList:
    """Build one page of changes, those of the newest runs first, or those that were confirmed here last.

    Raises: FilterError if the cursor cannot be used.
    """
    page = list_findings(reader, selected, cursor, limit_count, moment)
    return SeriesChangeList(page.rows, page.next)


def build_incidents(
    reader: sqlite3.Connection, engine: Engine, selected: IncidentFilter, cursor: str | None, limit_count: int
) -> IncidentsScreen:
    """Build one page of changes in their groups.

    Raises: FilterError if the cursor cannot be used.
    """
    listed = build_change_list(reader, selected, cursor, limit_count)
    ranges = count_ranges(reader, selected, [change.first_run_id for change in listed.changes])
    counts, detection = count_findings(reader), get_detection(reader)
    return IncidentsScreen(
        listed=listed,
        incidents=group_incidents(listed.changes, ranges),
        counts=counts,
        detected_us=detection.finished_us if detection else None,
        has_runs=bool(counts.finding_count or list_bench_runs(engine)),
    )


def build_incident_record(reader: sqlite3.Connection, change_id: str) -> IncidentRecord | None:
    """Build one change with its comments; None where there is none."""
    change = get_finding(reader, change_id)
    return IncidentRecord(change, list_finding_words(reader, change_id)) if change else None


def build_incident(
    reader: sqlite3.Connection, engine: Engine, change_id: str, clock: RecorderClock
) -> IncidentScreen | None:
    """Build one change with its series; None where there is none."""
    record = build_incident_record(reader, change_id)
    if record is None:
        return None
    return IncidentScreen(
        record, _build_series(engine, record.change, clock), count_range_others(reader, record.change)
    )


def _build_series(engine: Engine, change: SeriesChange, clock: RecorderClock) -> IncidentSeries | None:
    """Build the runs around a change; None where none of them is left."""
    line = _read_line(engine, change)
    run_ids = [point.run_id for point in line.points]
    runs = choose_runs(change, list_trend_runs(engine, run_ids, alive_since_us=clock.alive_since_us))
    if not runs:
        return None
    axis = lay_out(runs, "date")
    return IncidentSeries(find_metric_of(change), line, axis, find_levels(change, axis))


def _read_line(engine: Engine, change: SeriesChange) -> TrendLine:
    """Read the series of a change as the trends page reads it."""
    if change.subject == "runs":
        series = list_run_points(engine, [change.model])
        own = [rows for key, rows in series if (key["suite"], key["hardware"]) == (change.suite, change.hardware)]
        return make_runs_line(change, own[0] if own else ())
    words: dict[str, Any] = {name: getattr(change, name) for name in SERIES_FIELDS}
    selected = TrendFilter(**words, dynamic=change.dynamic, world_size=change.world_size, branch=change.branch or None)
    if change.subject == "model":
        columns = () if change.metric == PASSES.name else find_metric_of(change).columns
        return make_model_line(change, list_model_rows(engine, selected, [change.model], columns))
    for definition in (HUD, SUMMARIZE_PERF):  # as detection does: the second where nobody checks accuracy
        summaries = list_summaries(engine, selected, definition.name)
        line = make_suite_line(change, summaries, f"{change.suite}, {definition.label}")
        if any(point.value is not None for point in line.points):
            return line
    return line
