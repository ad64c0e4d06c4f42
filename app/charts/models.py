"""A model's charts: each metric over time, and its repeats as a distribution."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from app.analysis.model_history import Point
from app.analysis.result_words import describe_missing
from app.charts.base import Chart, count_axis, finish, times
from app.format import format_number, format_time
from app.queries.result_rows import ResultRow

_FEWEST_BINS, _MOST_BINS = 24, 120


class Line(NamedTuple):
    """Name one line of a chart: its label, its colour and its value in a row."""

    label: str
    color: str
    get: Callable[[ResultRow], float | int | None]


class Metric(NamedTuple):
    """Describe a chart of a model's history."""

    key: str
    title: str
    unit: str
    note: str | None
    lines: tuple[Line, ...]


METRICS = (
    Metric(
        "speedup",
        "Speedup",
        "×",
        "median eager ÷ median compiled; a bar is the 95 % interval",
        (Line("speedup", "series-1", lambda it: it.speedup),),
    ),
    Metric(
        "latency",
        "Latency",
        "ms",
        "medians over the repeats",
        (
            Line("eager", "series-2", lambda it: it.eager_latency_ms),
            Line("compiled", "series-1", lambda it: it.abs_latency_ms),
        ),
    ),
    Metric(
        "compile-time",
        "Compile time",
        "s",
        None,
        (
            Line("cold", "series-1", lambda it: it.compilation_latency_s),
            Line("warm", "series-3", lambda it: it.warm_compilation_latency_s),
        ),
    ),
    Metric(
        "memory",
        "Peak memory",
        "GB",
        "GB of 10⁹ bytes",
        (
            Line("eager", "series-2", lambda it: it.eager_peak_mem_gb),
            Line("compiled", "series-1", lambda it: it.dynamo_peak_mem_gb),
        ),
    ),
    Metric(
        "breaks",
        "Graph breaks and recompiles",
        "",
        None,
        (
            Line("graph breaks", "series-5", lambda it: it.graph_breaks),
            Line("recompiles", "series-4", lambda it: it.recompiles),
        ),
    ),
    Metric("ops", "Operations captured", "", None, (Line("operations", "series-3", lambda it: it.calls_captured),)),
    Metric("graphs", "Graphs", "", None, (Line("graphs", "series-7", lambda it: it.unique_graphs),)),
    Metric(
        "compression",
        "Memory compression",
        "×",
        "peak eager ÷ peak compiled",
        (Line("compression", "series-1", lambda it: it.compression_ratio),),
    ),
    Metric(
        "lookup",
        "dynamo's cache look-up",
        "µs",
        "each call",
        (Line("look-up", "series-1", lambda it: it.cache_lookup_latency_us),),
    ),
)


def chart_history(points: Sequence[Point], addresses: Sequence[str]) -> list[Chart]:
    """Draw every metric that some point has, over time; a point leads to what else is known of it."""
    rows = [point.row for point in points]
    return [
        _chart_metric(metric, rows, addresses)
        for metric in METRICS
        if any(line.get(row) is not None for line in metric.lines for row in rows)
    ]


def _chart_metric(metric: Metric, rows: Sequence[ResultRow], addresses: Sequence[str]) -> Chart:
    lines = [line for line in metric.lines if any(line.get(row) is not None for row in rows)]
    traces = [_trace(metric, line, rows, addresses) for line in lines]
    highest = max((line.get(row) or 0 for line in lines for row in rows), default=0)
    yaxis: dict[str, Any] = {"rangemode": "tozero", "nticks": 6, "ticksuffix": metric.unit and f" {metric.unit}"}
    if not metric.unit:
        yaxis = count_axis(highest)
    layout: dict[str, Any] = {"yaxis": yaxis, "xaxis": {"type": "date", "showgrid": False, "nticks": 4, "tickangle": 0}}
    if metric.key == "speedup":
        layout["yaxis"] = {"nticks": 6, "ticksuffix": "×"}
        traces.append(_eager_line(rows))
    unit = f", {metric.unit}" if metric.unit else ""
    columns = [("Measured", False), *((f"{line.label}{unit}", True) for line in lines)]
    columns += [("95 % interval", True)] if metric.key == "speedup" else []
    table = [
        [format_time(row.time_us)[:16], *(_cell(line.get(row), row) for line in lines), *_interval(metric, row)]
        for row in reversed(rows)
    ]
    return Chart(f"{metric.key}-chart", metric.title, finish(traces, **layout), columns, table, metric.note, "s")


def _eager_line(rows: Sequence[ResultRow]) -> dict[str, Any]:
    ends = [min(row.time_us for row in rows), max(row.time_us for row in rows)]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "eager",
        "x": times(ends).tolist(),
        "y": [1, 1],
        "meta": {"color": "series-2"},
        "line": {"width": 1, "dash": "dot"},
        "hoverinfo": "skip",
    }


def _cell(value: float | None, row: ResultRow) -> str:
    return describe_missing(row) if value is None else format_number(value)


def _interval(metric: Metric, row: ResultRow) -> list[str | None]:
    if metric.key != "speedup":
        return []
    low, high = row.speedup_low, row.speedup_high
    return [None if low is None or high is None else f"{low:.3f}–{high:.3f}"]


def _trace(metric: Metric, line: Line, rows: Sequence[ResultRow], addresses: Sequence[str]) -> dict[str, Any]:
    known = [(row, address) for row, address in zip(rows, addresses) if line.get(row) is not None]
    values = [float(line.get(row) or 0) for row, _address in known]
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": line.label,
        "x": times([row.time_us for row, _address in known]).tolist(),
        "y": [float(f"{value:.5g}") for value in values],
        "customdata": [address for _row, address in known],
        "meta": {"color": line.color},
        "marker": {"size": 7},
        "line": {"width": 1.5},
        "hovertemplate": f"%{{y}} {metric.unit} {line.label}, %{{x|%Y-%m-%d %H:%M}}<extra></extra>",
    }
    if metric.key == "speedup":
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "thickness": 1.2,
            "width": 4,
            "array": [_away(row.speedup_high, row.speedup) for row, _address in known],
            "arrayminus": [_away(row.speedup, row.speedup_low) for row, _address in known],
        }
    return trace


def _away(high: float | None, low: float | None) -> float:
    return 0.0 if high is None or low is None else float(f"{max(high - low, 0):.4g}")


def chart_repeats(repeats: Mapping[str, Sequence[float]], chart_id: str = "repeats-chart") -> Chart | None:
    """Draw how eager and compiled repeats are spread, in the same bins; None where no repeats were kept.

    Units: ms.
    """
    kept = {
        name: np.asarray(repeats[name], dtype=float) for name in sorted(repeats, reverse=True) if len(repeats[name])
    }
    if not kept:
        return None
    together = np.concatenate(list(kept.values()))
    edges = np.histogram_bin_edges(together, bins=_count_bins(list(kept.values()), float(np.ptp(together))))
    middles = (edges[:-1] + edges[1:]) / 2
    colors = {"eager": "series-2", "compiled": "series-1"}
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": name,
            "x": [float(f"{value:.5g}") for value in middles],
            "y": np.histogram(values, edges)[0].tolist(),
            "width": float(edges[1] - edges[0]),
            "opacity": 0.75,
            "meta": {"color": colors.get(name.rpartition("/")[2], f"series-{number}")},
            "hovertemplate": f"%{{y}} repeats of {name} near %{{x}} ms<extra></extra>",
        }
        for number, (name, values) in enumerate(kept.items(), start=3)
    ]
    figure = finish(
        traces,
        barmode="overlay",
        bargap=0.02,
        xaxis={"ticksuffix": " ms", "nticks": 8, "showgrid": False, "zeroline": False},
        yaxis=count_axis(max(max(trace["y"]) for trace in traces)) | {"title": {"text": "repeats"}},
    )
    columns = [("Repeats of", False), *((label, True) for label in ("Count", "Lowest, ms", "Median, ms"))]
    columns += [("Highest, ms", True), ("Spread (IQR ÷ median)", True)]
    return Chart(chart_id, "Repeats", figure, columns, [_sum_up(*it) for it in kept.items()], None, "s")


def _count_bins(spread: Sequence[Any], reach: float) -> int:
    """Return how many bins show the narrowest of some distributions that may lie far apart."""
    widths = [float(np.diff(np.histogram_bin_edges(it, bins="fd")[:2])[0]) for it in spread if np.ptp(it) > 0]
    wanted = reach / min(widths) if widths else 0
    return int(min(max(wanted, _FEWEST_BINS), _MOST_BINS))


def _sum_up(name: str, values: Any) -> list[str]:
    low, first, middle, third, high = (float(it) for it in np.percentile(values, (0, 25, 50, 75, 100)))
    spread = f"{100 * (third - first) / middle:.1f} %" if middle else "–"
    return [name, str(len(values)), *(format_number(it) for it in (low, middle, high)), spread]
