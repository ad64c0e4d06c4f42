"""Charts of all recorded runs: their number over time by state, and the cost of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from compileboard.app.core.charts import (
    Chart,
    build_figure,
    count_axis,
    duration_axis,
    to_milliseconds,
)
from compileboard.app.core.format import format_count, format_duration, format_time
from compileboard.app.runs.overview_queries import RunPoint

_HOUR_US = 3_600_000_000
_STATE_COLORS = {
    "finished": "state-good",
    "finished, with failures": "series-2",
    "imported": "series-7",
    "imported, with failures": "series-8",
    "running": "state-busy",
    "failed": "state-bad",
    "killed": "series-5",
    "interrupted": "state-warn",
    "interrupted?": "series-3",
}
_MAX_SERIES = 7  # the eighth colour is for all others
_OTHERS = "all others"
_NOISY = 14  # points of a series above which a connecting line is unreadable
_MIN_BINS = 12  # so that a single bar does not fill its chart
WINDOW = 7
POINTS_ID = "recorded-points"
MAX_TABLE_ROWS = 200  # the list of runs has the same numbers for all


def list_programs(points: Sequence[RunPoint]) -> list[str]:
    """List the programs of runs, newest first. Runs of different programs share no axis."""
    return list(dict.fromkeys(_name_program(point) for point in reversed(points)))


def _name_program(point: RunPoint) -> str:
    return point.suite or point.name


def chart_recorded(points: Sequence[RunPoint], program: str | None = None) -> dict[str, Any]:
    """Chart the states of all runs, and the compile cost of the runs of `program`, or of
    all runs.
    """
    own = [point for point in points if program in (None, _name_program(point))]
    return {
        "points": own,
        "charts": [
            chart_runs(points),
            chart_recompiles(own),
            chart_compile_time(own),
            chart_graph_breaks(own),
        ],
        "shared": share_points(own),
        "points_id": POINTS_ID,
        "columns": TREND_COLUMNS,
        "rows": list_trend_rows(own),
    }


def chart_runs(points: Sequence[RunPoint]) -> Chart:
    """Count runs by state per hour, day or week, depending on the time they span."""
    width_us, unit = _choose_bin_width(points)
    counts = Counter(
        ((point.started_us // width_us) * width_us, _name_state(point)) for point in points
    )
    bins = sorted({start for start, _state in counts})
    states = [
        state for state in _STATE_COLORS if any(run_state == state for _start, run_state in counts)
    ]
    traces = [
        {
            "type": "bar",
            "x": to_milliseconds([start + width_us // 2 for start in bins]),
            "y": [counts[start, state] for start in bins],
            "width": width_us / 1000 * 0.8,
            "name": state,
            "meta": {"color": _STATE_COLORS[state]},
            "customdata": [format_time(start)[:16] for start in bins],
            "hovertemplate": "%{y} from %{customdata}",
        }
        for state in states
    ]
    figure = build_figure(
        traces,
        barmode="stack",
        xaxis=_make_date_axis(points, bins[-1] + width_us if bins else None),
        yaxis=count_axis(
            max(Counter(start for start, _state in counts.elements()).values(), default=0)
        ),
    )
    rows = [
        [format_time(start)[:16], *(counts[start, state] for state in states)] for start in bins
    ]
    columns = [(f"{unit.capitalize()} from", False), *((state, True) for state in states)]
    return Chart("runs-chart", "Runs", figure, columns, rows, f"started per {unit}")


def _name_state(point: RunPoint) -> str:
    has_more = point.has_failed and point.state in ("finished", "imported")
    return f"{point.state}, with failures" if has_more else point.state


def chart_compile_time(points: Sequence[RunPoint]) -> Chart:
    divisor, unit = duration_axis(max((point.compile_us or 0 for point in points), default=0))
    note = f"{unit} per run, all records together"

    def measure(point: RunPoint) -> float | None:
        return None if point.compile_us is None else point.compile_us / divisor

    return _chart_trend(points, "compile-time-chart", "Compile time", note, measure, unit)


def chart_recompiles(points: Sequence[RunPoint]) -> Chart:
    return _chart_trend(
        points, "recompiles-chart", "Recompiles", "per run", lambda point: point.recompile_count
    )


def chart_graph_breaks(points: Sequence[RunPoint]) -> Chart:
    return _chart_trend(
        points,
        "graph-breaks-chart",
        "Graph breaks",
        "per run",
        lambda point: point.graph_break_count,
    )


def share_points(points: Sequence[RunPoint]) -> dict[str, list[Any]]:
    return {
        "x": [point.started_us // 1000 for point in points],
        "runs": [point.run_id for point in points],
    }


def list_trend_rows(points: Sequence[RunPoint]) -> list[list[object]]:
    return [
        [
            format_time(point.started_us),
            point.title or point.name,
            point.suite or "",
            format_count(point.recompile_count),
            format_duration(point.compile_us),
            format_count(point.graph_break_count),
        ]
        for point in points[: -MAX_TABLE_ROWS - 1 : -1]
    ]


TREND_COLUMNS = (
    ("Started", False),
    ("Run", False),
    ("Suite", False),
    ("Recompiles", True),
    ("Compile time", True),
    ("Graph breaks", True),
)


def _chart_trend(
    points: Sequence[RunPoint],
    chart_id: str,
    title: str,
    note: str,
    measure: Callable[[RunPoint], float | None],
    unit: str = "",
) -> Chart:
    values = {
        index: float(f"{value:.4g}")
        for index, point in enumerate(points)
        if (value := measure(point)) is not None
    }
    groups = {
        label: [index for index in positions if index in values]
        for label, positions in _group_by_program(points).items()
    }
    smooth = max(map(len, groups.values()), default=0) > _NOISY
    traces: list[dict[str, Any]] = []
    for number, (label, members) in enumerate(groups.items(), start=1):
        lone = label == _OTHERS  # different series: a line through them would be meaningless
        own = [values[index] for index in members]
        shared = {
            "type": "scatter",
            "x": members,
            "meta": {"color": f"series-{number}", "points": POINTS_ID},
        }
        dots = shared | {
            "y": own,
            "mode": "markers" if smooth or lone else "lines+markers",
            "name": label,
            "line": {"width": 1.5},
            "cliponaxis": False,  # a run without any is a full point on the axis
            "marker": {
                "size": 5 if smooth else 7,
                "opacity": 0.3 if smooth else 0.6 if lone else 1,
            },
            "hovertemplate": "%{y}\n%{x|%Y-%m-%d %H:%M}",
        }
        traces.append(dots)
        if smooth and not lone:
            windows = (own[max(0, end - WINDOW) : end] for end in range(1, len(own) + 1))
            medians = [float(f"{median(window):.4g}") for window in windows]
            traces.append(
                shared | {"y": medians, "mode": "lines", "line": {"width": 2}, "hoverinfo": "skip"}
            )
    figure = build_figure(
        traces,
        xaxis=_make_span_axis(points),
        yaxis={"rangemode": "tozero", "ticksuffix": f" {unit}", "nticks": 6}
        if unit
        else count_axis(max(values.values(), default=0)),
    )
    note += f"; the line is the rolling median of {WINDOW} runs" if smooth else ""
    return Chart(chart_id, title, figure, (), (), note, show_legend=False)


def _group_by_program(points: Sequence[RunPoint]) -> dict[str, list[int]]:
    sizes = Counter((point.suite, point.name) for point in points)
    shown = [key for key, _size in sizes.most_common(_MAX_SERIES)]
    groups: dict[str, list[int]] = {_label_program(*key): [] for key in shown}
    for position, point in enumerate(points):
        key = (point.suite, point.name)
        groups.setdefault(_label_program(*key) if key in shown else _OTHERS, []).append(position)
    return groups


def _label_program(suite: str | None, name: str) -> str:
    text = f"{suite} · {name}" if suite else name
    return text if len(text) <= 40 else text[:39] + "…"


def _make_date_axis(points: Sequence[RunPoint], end_us: int | None) -> dict[str, Any]:
    """Return an axis from the first run to `end_us` with a minimum number of bins."""
    axis = {"type": "date", "showgrid": False}
    if end_us is None:
        return axis
    width_us, _unit = _choose_bin_width(points)
    first_us = points[0].started_us // width_us * width_us
    return axis | {"range": to_milliseconds([min(first_us, end_us - _MIN_BINS * width_us), end_us])}


def _make_span_axis(points: Sequence[RunPoint]) -> dict[str, Any]:
    axis = {"type": "date", "showgrid": False}
    if not points:
        return axis
    first_us, newest_us = points[0].started_us, points[-1].started_us
    margin_us = (newest_us - first_us) // 50 or _HOUR_US
    return axis | {"range": to_milliseconds([first_us - margin_us, newest_us])}


def _choose_bin_width(points: Sequence[RunPoint]) -> tuple[int, str]:
    span_us = points[-1].started_us - points[0].started_us if points else 0
    for hours, unit, most_days in ((1, "hour", 2), (24, "day", 90)):
        if span_us <= most_days * 24 * _HOUR_US:
            return hours * _HOUR_US, unit
    return 7 * 24 * _HOUR_US, "week"
