"""Lines of a metric over runs, with gaps, failures and changes of the environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compileboard.app.benchmarks.metrics import Metric, format_value
from compileboard.app.benchmarks.trend_lines import Axis, TrendLine, TrendPoint, describe_run
from compileboard.app.core.charts import (
    NEARLY_SAME,
    OUTLIERS,
    Chart,
    build_figure,
    count_axis,
    escape,
    split_outliers,
)
from compileboard.app.core.format import format_time

POINTS_ID = "points"
MAX_TABLE_ROWS = 200  # rows of the table; the API has all
_MAX_INTERVALS = 150  # points with an error bar; more would overlap
_MAX_WORDS, _MAX_WORDS_CHARS, _ROWS = 6, 34, 3
_DENSE = 120
_COLORS = 7
_MARKS = {
    "failed": ("x", "state-bad"),
    "skipped": ("circle-open", "state-warn"),
    "not_run": ("circle-open", "state-warn"),
}


def share_runs(axis: Axis, *, links: bool = True) -> dict[str, list[Any]]:
    texts = [
        escape(f"{format_time(run.started_us)[:16]} · {describe_run(run)}") for run in axis.runs
    ]
    shared: dict[str, list[Any]] = {"x": list(axis.positions), "text": texts}
    return shared | ({"runs": [run.id for run in axis.runs]} if links else {})


def chart_metric(
    metric: Metric,
    lines: Sequence[TrendLine],
    axis: Axis,
    *,
    chart_id: str,
    names_changes: bool = True,
) -> Chart:
    positions = {run.id: number for number, run in enumerate(axis.runs)}
    traces: list[dict[str, Any]] = []
    has_outliers = False
    for number, line in enumerate(lines):
        points = {
            positions[point.run_id]: point for point in line.points if point.run_id in positions
        }
        color = f"series-{number % _COLORS + 1}"
        own = _build_line(metric, line.label, points, color, len(axis.runs))
        parts = [own] if metric.kind == "count" else split_outliers(own)
        has_outliers |= len(parts) > 1
        traces += parts
        traces += _build_lone_points(parts[0]) if len(axis.runs) > _DENSE else []
        traces += _build_marks(metric, line.label, points)
    values = [
        value * metric.factor
        for line in lines
        for point in line.points
        if point.drawn is not None
        for value in (point.value, point.low, point.high)
        if value is not None
    ]
    layout = _lay_out(metric, axis, values, names_changes=names_changes)
    note = f"{metric.meaning}, {metric.unit}" if metric.unit else metric.meaning
    note = f"{note}; {OUTLIERS}" if has_outliers else note
    figure = build_figure(traces, **layout)
    return Chart(chart_id, metric.label, figure, (), (), note, "s", show_legend=False)


def _build_line(
    metric: Metric, label: str, points: dict[int, TrendPoint], color: str, count: int
) -> dict[str, Any]:
    own = sorted(points)
    values = [points[at].drawn for at in own]
    unit = "×" if metric.unit == "×" else f" {metric.unit}" if metric.unit else ""
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines" if count > _DENSE else "lines+markers",
        "name": label,
        "x": own,
        "y": [None if value is None else _round_value(value * metric.factor) for value in values],
        "connectgaps": False,
        "meta": {"color": color, "points": POINTS_ID},
        "marker": {"size": 6},
        "line": {"width": 1.5},
        "cliponaxis": False,
        "hovertemplate": f"%{{y:.5~g}}{unit} {_strip_html(label)}\n%{{text}}",
        "hoverlabel": {"namelength": 0},
    }
    notes = [points[at].note for at in own]
    if any(notes):
        trace["hovertext"] = [f"{note}\n" if note else "" for note in notes]
        trace["hovertemplate"] = f"%{{y:.5~g}}{unit} {_strip_html(label)}\n%{{hovertext}}%{{text}}"
    if metric.low and len(own) <= _MAX_INTERVALS:
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "thickness": 1,
            "width": 3,
            "array": [_error_bar(points[at].high, points[at].drawn, metric) for at in own],
            "arrayminus": [_error_bar(points[at].drawn, points[at].low, metric) for at in own],
        }
    return trace


def _build_lone_points(line: dict[str, Any]) -> list[dict[str, Any]]:
    values = [None, *line["y"], None]
    own = [
        at
        for at, (a, b, c) in enumerate(zip(values, values[1:], values[2:]))
        if a is None and c is None is not b
    ]
    if not own:
        return []
    x, y = ([line[name][at] for at in own] for name in ("x", "y"))
    return [
        line | {"mode": "markers", "x": x, "y": y, "name": "", "marker": {"size": 3}, "error_y": {}}
    ]


def _build_marks(metric: Metric, label: str, points: dict[int, TrendPoint]) -> list[dict[str, Any]]:
    marks = []
    for status, (symbol, color) in _MARKS.items():
        own = sorted(
            at
            for at, point in points.items()
            if point.status == status or (point.is_incomplete and status == "failed")
        )
        if own:
            reasons = [_strip_html(_explain_mark(metric, points[at])) for at in own]
            marks.append({
                "type": "scatter",
                "mode": "markers",
                "x": own,
                "y": [0.97] * len(own),
                "yaxis": "y2",
                "meta": {"color": color, "points": POINTS_ID},
                "marker": {"size": 7, "symbol": symbol},
                "hovertext": reasons,
                "hoverlabel": {"namelength": 0},
                "hovertemplate": f"%{{hovertext}}: {_strip_html(label)}\n%{{text}}",
                "showlegend": False,
            })  # fmt: skip
    return marks


def _explain_mark(metric: Metric, point: TrendPoint) -> str:
    if point.is_incomplete and point.value is not None:
        return f"{format_value(metric, point.value)} of the others, {point.note or 'models failed'}"
    return point.reason or point.status.replace("_", " ")


def _strip_html(text: str) -> str:
    return text.replace("%{", "% {")


def _error_bar(high: float | None, low: float | None, metric: Metric) -> float:
    return 0.0 if high is None or low is None else _round_value(max(high - low, 0) * metric.factor)


def _round_value(value: float) -> float:
    return float(f"{value:.5g}")


def _lay_out(
    metric: Metric, axis: Axis, values: Sequence[float], *, names_changes: bool
) -> dict[str, Any]:
    yaxis: dict[str, Any] = {"nticks": 6, "automargin": False, "fixedrange": True}
    if metric.kind == "count":
        yaxis |= count_axis(max(values, default=0))
    elif metric.unit:
        yaxis["ticksuffix"] = "×" if metric.unit == "×" else f" {metric.unit}"
    yaxis |= _widen_range(values) if metric.kind != "count" else {}
    # Plotly's limit of ticks; on a date axis its steps may be twice as long as needed.
    xaxis: dict[str, Any] = {
        "showgrid": False,
        "tickangle": 0,
        "nticks": 8,
        "zeroline": False,
    }
    xaxis |= {"range": _find_range(axis)}
    if axis.name == "date":
        xaxis["type"] = "date"
    else:
        xaxis |= {"tickmode": "array", "tickvals": [at for at, _label in axis.ticks]}
        xaxis["ticktext"] = [label.partition("+")[0] for _at, label in axis.ticks]
    has_words = names_changes and bool(axis.changes)
    return {
        "margin": {"l": 62, "r": 14, "t": 8 + 13 * _ROWS if has_words else 8, "b": 28},
        "uirevision": "kept",
        "dragmode": "zoom",
        "xaxis": xaxis,
        "yaxis": yaxis,
        "yaxis2": {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
        "shapes": [_build_change(at) for at, _label in _position_changes(axis)],
        "annotations": _write_changes(axis) if has_words else [],
    }


def _widen_range(values: Sequence[float]) -> dict[str, Any]:
    low, high = min(values, default=0.0), max(values, default=0.0)
    level = max(abs(low), abs(high))
    if not values or high - low >= NEARLY_SAME * level > 0:
        return {} if values else {"range": [0, 1], "showticklabels": False}
    if level == 0:
        return {"range": [-0.05, 1]}
    middle, half = (
        (low + high) / 2,
        1.1 * NEARLY_SAME * level,
    )  # both sides have a round tick inside
    return {"range": [middle - half, middle + half]}


def _find_range(axis: Axis) -> list[float]:
    first, last = (axis.positions[0], axis.positions[-1]) if axis.positions else (0, 1)
    alone = (
        3_600_000 if axis.name == "date" else 0.5
    )  # an hour around a single run; less for runs minutes apart
    margin = (last - first) * 0.015 or alone
    if axis.name == "date":  # nothing is later than the newest run
        return [first - margin, last]
    margin = max(margin, alone)
    return [first - margin, last + margin]


def _position_changes(axis: Axis) -> list[tuple[int, str]]:
    positions = {run.id: at for run, at in zip(axis.runs, axis.positions)}
    return sorted((positions[change.run.id], change.label) for change in axis.changes)


def _build_change(at: int) -> dict[str, Any]:
    line = {"width": 1, "dash": "dot"}
    return {
        "type": "line",
        "x0": at,
        "x1": at,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "layer": "below",
        "line": line,
    }


def _write_changes(axis: Axis) -> list[dict[str, Any]]:
    low, high = _find_range(axis)
    annotations = []
    for number, (at, label) in enumerate(_position_changes(axis)[-_MAX_WORDS:]):
        text = label if len(label) <= _MAX_WORDS_CHARS else label[: _MAX_WORDS_CHARS - 1] + "…"
        where = {
            "x": at,
            "y": 1,
            "yref": "paper",
            "yanchor": "bottom",
            "yshift": 13 * (number % _ROWS),
        }
        where["xanchor"] = "left" if at - low < (high - low) / 2 else "right"
        annotations.append(where | {"text": text, "showarrow": False, "font": {"size": 10}})
    return annotations


def list_table_rows(
    charts: Sequence[tuple[Metric, Sequence[TrendLine]]], axis: Axis
) -> tuple[list[tuple[str, bool]], list[list[object]]]:
    columns = [("Started", False), ("Run", False), ("Commit", False), ("torch", False)]
    cells: list[dict[str, TrendPoint]] = []
    metrics: list[Metric] = []
    for metric, lines in charts:
        for line in lines:
            columns.append(
                (metric.label if len(lines) == 1 else f"{metric.label}, {line.label}", True)
            )
            cells.append({point.run_id: point for point in line.points})
            metrics.append(metric)
    rows: list[list[object]] = []
    for run in list(axis.runs)[: -MAX_TABLE_ROWS - 1 : -1]:
        row: list[object] = [
            format_time(run.started_us)[:16],
            run.name,
            (run.git_commit or "")[:8],
            run.torch_version or "",
        ]
        rows.append(
            [*row, *(_write_cell(metric, of.get(run.id)) for metric, of in zip(metrics, cells))]
        )
    return columns, rows


def _write_cell(metric: Metric, point: TrendPoint | None) -> str:
    if point is None:
        return "–"
    if point.value is not None:
        return format_value(metric, point.value) + (f", {point.note}" if point.note else "")
    return point.reason or (
        "not measured" if point.status == "measured" else point.status.replace("_", " ")
    )
