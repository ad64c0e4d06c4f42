"""The chart of a changed series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from compileboard.app.benchmarks.metrics import Metric
from compileboard.app.benchmarks.trend_charts import POINTS_ID, chart_metric
from compileboard.app.benchmarks.trend_lines import Axis, TrendLine
from compileboard.app.core.charts import Chart, build_figure
from compileboard.app.incidents.model import SeriesChange
from compileboard.app.incidents.page_model import LevelLines

_MARKS = {
    "worse": ("triangle-up", "state-bad"),
    "better": ("triangle-down", "state-good"),
    "changed": ("diamond", "series-4"),
}
_MAX_NAMED = 4  # More changes of one run are only counted.


def chart_incident(
    change: SeriesChange, metric: Metric, line: TrendLine, axis: Axis, levels: LevelLines | None
) -> Chart:
    chart = chart_metric(metric, [line], axis, chart_id="series")
    traces = list(chart.figure["data"])
    if levels is not None:
        traces += build_figure(_build_levels(change, metric, levels))["data"]
    figure = chart.figure | {
        "data": [*traces[len(chart.figure["data"]) :], *traces[: len(chart.figure["data"])]]
    }
    return replace(chart, figure=figure, height="m", show_legend=True)


def mark_incidents(chart: Chart, changes: Sequence[SeriesChange], axis: Axis) -> Chart:
    positions = {run.id: number for number, run in enumerate(axis.runs)}
    traces = []
    for direction, (symbol, color) in _MARKS.items():
        own: dict[int, list[SeriesChange]] = {}
        for change in changes:
            if change.direction == direction and change.first_run_id in positions:
                own.setdefault(positions[change.first_run_id], []).append(change)
        if own:
            traces.append(_build_markers(own, symbol, color))
    data = [*chart.figure["data"], *build_figure(traces)["data"]]
    return replace(chart, figure=chart.figure | {"data": data}) if traces else chart


def _build_markers(
    changes: Mapping[int, Sequence[SeriesChange]], symbol: str, color: str
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": list(changes),
        "y": [0.04] * len(changes),
        "yaxis": "y2",
        "meta": {"color": color, "points": POINTS_ID},
        "marker": {"size": 10, "symbol": symbol},
        "customdata": [_changes_url(own) for own in changes.values()],
        "hovertext": [
            "\n".join(_describe(change) for change in own[:_MAX_NAMED]) for own in changes.values()
        ],
        "hoverlabel": {"namelength": 0},
        "hovertemplate": "%{hovertext}\n%{text}",
        "showlegend": False,
    }


def _changes_url(changes: Sequence[SeriesChange]) -> str:
    if len(changes) == 1:
        change = changes[0]
        incident_id, change_id = (
            quote(key, safe="") for key in (change.incident_id or change.id, change.id)
        )
        return f"/incidents/{incident_id}?change={change_id}"
    return f"/incidents?state=any&status=any&run={quote(changes[0].first_run_id, safe='')}"


def _describe(change: SeriesChange) -> str:
    return change.sentence.replace("%{", "% {")[:200]


def _build_levels(change: SeriesChange, metric: Metric, levels: LevelLines) -> list[dict[str, Any]]:
    start, end = levels.changed
    band = _build_trace([start, start, end, end], [0, 1, 1, 0], "state-warn", "commit range", 0)
    traces = [band | {"fill": "toself", "yaxis": "y2", "opacity": 0.35}]
    if change.before_value is not None:
        traces.append(
            _build_level(
                levels.before, change.before_value * metric.factor, "state-quiet", "before"
            )
        )
    if levels.after is not None and change.after_value is not None:
        _symbol, color = _MARKS[change.direction]
        traces.append(
            _build_level(levels.after, change.after_value * metric.factor, color, "after")
        )
        if change.kind == "drift" and change.before_value is not None:
            ends = [levels.before[1], levels.after[0]]
            values = [
                _round_value(value * metric.factor)
                for value in (change.before_value, change.after_value)
            ]
            traces.append(
                _build_trace(ends, values, color, "", 2) | {"line": {"width": 2, "dash": "dot"}}
            )
    return traces


def _build_level(span: tuple[int, int], value: float, color: str, name: str) -> dict[str, Any]:
    dashed = _build_trace(list(span), [_round_value(value)] * 2, color, name, 2)
    return dashed | {"line": {"width": 2, "dash": "dash"}}


def _round_value(value: float) -> float:
    return float(f"{value:.5g}")


def _build_trace(x: list[int], y: list[float], color: str, name: str, width: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "meta": {"color": color, "points": POINTS_ID},
        "line": {"width": width},
        "hoverinfo": "skip",
    }
