"""The series of one finding as a trend line."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compileboard.app.analysis.incidents.messages import find_metric_of
from compileboard.app.analysis.metrics import PASSES
from compileboard.app.analysis.models.labels import describe_status
from compileboard.app.analysis.trends.lines import (
    Axis,
    TrendLine,
    TrendPoint,
    build_model_lines,
    build_suite_line,
)
from compileboard.app.queries.dashboard.series_changes import SeriesChange
from compileboard.app.queries.fleet.trends import StoredSummary, TrendRun
from compileboard.collectors.store.rollups.results import ResultRow
from compileboard.collectors.store.rollups.summaries import HUD_PASSING

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
    if row.status not in ("measured", "failed"):
        return TrendPoint(row.run_id, None, status="skipped", reason=describe_status(row).word)
    wrong = row.status == "failed" or (row.accuracy is not None and row.accuracy not in HUD_PASSING)
    return TrendPoint(row.run_id, 0.0 if wrong else 1.0)


def make_suite_line(
    change: SeriesChange, summaries: Sequence[StoredSummary], label: str
) -> TrendLine:
    return build_suite_line(find_metric_of(change), summaries, label)


def make_runs_line(change: SeriesChange, totals: Iterable[Mapping[str, Any]]) -> TrendLine:
    return TrendLine(change.model, [TrendPoint(row["id"], row[change.metric]) for row in totals])


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
    points = change.evidence.get("points") or {}
    since = max(before - max(int(points.get("before") or len(times)), 2) + 1, 0)
    if change.after_value is None or first >= len(times):
        return LevelLines((since, before), None, (changed[0], min(changed[1], len(times) - 1)))
    starts = changed[1] if change.kind == "drift" else first
    recovered = positions.get(change.recovered_run_id or "", len(times))
    until = min(starts + max(int(points.get("after") or len(times)), 2) - 1, len(times) - 1)
    until = min(until, recovered - 1) if recovered > starts else until
    return LevelLines((since, before), (starts, max(until, starts)), changed)
