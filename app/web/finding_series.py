"""The series that a finding is of: read as the trend page reads it, drawn, and where else it is shown."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from flask import url_for

from compileboard.app.analysis.finding_line import (
    choose_runs,
    find_levels,
    make_model_line,
    make_runs_line,
    make_suite_line,
)
from compileboard.app.analysis.finding_words import find_metric_of
from compileboard.app.analysis.metrics import PASSES
from compileboard.app.analysis.summaries import HUD, SUMMARIZE_PERF
from compileboard.app.analysis.trend_lines import find_choice
from compileboard.app.analysis.trends import TrendLine, lay_out
from compileboard.app.charts.base import Chart
from compileboard.app.charts.finding import chart_finding
from compileboard.app.charts.metric_trends import list_twin, share_runs
from compileboard.app.queries.findings import Finding
from compileboard.app.queries.series_points import list_run_points
from compileboard.app.queries.trends import TrendFilter, TrendRun, list_model_rows, list_summaries, list_trend_runs

_SAID = ("suite", "mode", "dtype", "device", "hardware", "backend")


@dataclass(frozen=True)
class DrawnSeries:
    """Hold the chart of a finding's series and its table, and its runs by their ids."""

    chart: Chart
    shared: dict[str, list[Any]]
    columns: list[tuple[str, bool]]
    rows: list[list[object]]
    runs: dict[str, TrendRun]


def chart_series(reader: sqlite3.Connection, it: Finding) -> DrawnSeries | None:
    """Draw the runs around a finding; None where none of them is left."""
    line = _read_line(reader, it)
    runs = choose_runs(it, list_trend_runs(reader, [point.run_id for point in line.points]))
    if not runs:
        return None
    axis, metric = lay_out(runs, "date"), find_metric_of(it)
    columns, rows = list_twin([(metric, [line])], axis)
    chart = chart_finding(it, metric, line, axis, find_levels(it, axis))
    return DrawnSeries(chart, share_runs(axis), columns, rows, {run.id: run for run in axis.runs})


def _read_line(reader: sqlite3.Connection, it: Finding) -> TrendLine:
    if it.subject == "runs":
        found = list_run_points(reader, [it.model])
        own = [rows for key, rows in found if (key["suite"], key["hardware"]) == (it.suite, it.hardware)]
        return make_runs_line(it, own[0] if own else ())
    words: dict[str, Any] = {name: getattr(it, name) for name in _SAID}
    wanted = TrendFilter(**words, dynamic=it.dynamic, world_size=it.world_size, branch=it.branch or None)
    if it.subject == "model":
        columns = () if it.metric == PASSES.name else find_metric_of(it).columns
        return make_model_line(it, list_model_rows(reader, wanted, [it.model], columns))
    for definition in (HUD, SUMMARIZE_PERF):  # as detection does: the second where nobody checks accuracy
        line = make_suite_line(it, list_summaries(reader, wanted, definition.name), f"{it.suite}, {definition.label}")
        if any(point.value is not None for point in line.points):
            return line
    return line


def link_finding(it: Finding) -> list[tuple[str, str]]:
    """List the pages that show more of a finding's series: what they are, and their addresses."""
    found = []
    if it.before_run_id:
        sides: dict[str, Any] = {"base": it.before_run_id, "new": it.first_run_id}
        found.append(("Compare the runs before and after", url_for("compare.index", **sides)))
    said: dict[str, Any] = {name: value for name in _SAID if (value := getattr(it, name))}
    said["dynamic"] = "yes" if it.dynamic else "no"
    if it.world_size:
        said["world_size"] = it.world_size
    if it.subject != "runs":
        of: dict[str, Any] = {"model": it.model} if it.subject == "model" else {}
        metric = find_choice(it.metric)
        of |= {"metric": metric} if metric else {}
        of |= {"branch": it.branch} if it.branch else {}
        found.append(("Trend of this series", url_for("trends.index", **of, **said)))
    if it.subject == "model":
        said |= {"batch_size": it.batch_size} if it.batch_size else {}
        found.append(("The model's page", url_for("models.show", model=it.model, **said)))
    if it.subject == "runs":
        found.append((f"Runs named {it.model[:60]}", url_for("runs.index", name=it.model)))
    return found
