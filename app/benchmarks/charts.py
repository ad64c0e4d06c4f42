"""A model's charts: each metric over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from compileboard.app.benchmarks.exports import DistributedResult
from compileboard.app.benchmarks.labels import describe_missing
from compileboard.app.benchmarks.metrics import BY_NAME, Metric, get_value
from compileboard.app.benchmarks.series import Point
from compileboard.app.core.charts import (
    OUTLIERS,
    Chart,
    build_figure,
    count_axis,
    split_outliers,
    to_milliseconds,
)
from compileboard.app.core.format import format_number, format_time
from compileboard.collectors.store.results import ResultRow


class ChartLine(NamedTuple):
    metric: Metric
    label: str
    color: str

    def get(self, row: ResultRow) -> float | int | None:
        value = get_value(self.metric, row)
        return value if value is None or self.metric.factor == 1 else value * self.metric.factor


class HistoryChart(NamedTuple):
    key: str
    title: str
    note: str | None
    lines: tuple[ChartLine, ...]

    @property
    def unit(self) -> str:
        return self.lines[0].metric.unit

    @property
    def is_count(self) -> bool:
        return self.lines[0].metric.kind == "count"


def _build_chart(
    key: str, title: str, note: str | None, *lines: tuple[str, str, str]
) -> HistoryChart:
    return HistoryChart(
        key,
        title,
        note,
        tuple(ChartLine(BY_NAME[name], label, color) for name, label, color in lines),
    )


DRAWINGS = (
    _build_chart(
        "speedup",
        "Speedup",
        "median eager ÷ median compiled, bars are 95% intervals",
        ("speedup", "speedup", "series-1"),
    ),
    _build_chart(
        "latency",
        "Latency",
        "medians over the repeats",
        ("eager_latency_ms", "eager", "series-2"),
        ("abs_latency_ms", "compiled", "series-1"),
    ),
    _build_chart(
        "compile-time",
        "Compile time",
        None,
        ("compilation_latency_s", "cold", "series-1"),
        ("warm_compilation_latency_s", "warm", "series-3"),
    ),
    _build_chart(
        "breaks",
        "Graph breaks and recompiles",
        "graph breaks by torch's counters, recorded recompiles",
        ("graph_breaks", "graph breaks", "series-5"),
        ("recompiles", "recompiles", "series-4"),
    ),
    _build_chart(
        "memory",
        "Peak memory",
        "GB of 10⁹ bytes",
        ("eager_peak_mem_gb", "eager", "series-2"),
        ("dynamo_peak_mem_gb", "compiled", "series-1"),
    ),
    _build_chart("ops", "Operations captured", None, ("calls_captured", "operations", "series-3")),
    _build_chart("graphs", "Graphs", None, ("unique_graphs", "graphs", "series-7")),
    _build_chart(
        "compression",
        "Peak memory ratio",
        "peak eager ÷ peak compiled",
        ("compression_ratio", "compression", "series-1"),
    ),
    _build_chart(
        "package",
        "Package size",
        "MB of 10⁶ bytes",
        ("package_bytes", "package", "series-1"),
    ),
    _build_chart(
        "load",
        "Export and load time",
        None,
        ("export_latency_s", "export", "series-2"),
        ("load_latency_s", "load", "series-1"),
        ("second_process_latency_s", "first call in a second process", "series-3"),
    ),
    _build_chart(
        "efficiency", "Scaling efficiency", None, ("scaling_efficiency", "efficiency", "series-1")
    ),
    _build_chart(
        "quantized-error",
        "Quantized error",
        "relative, against eager in float32",
        ("quantized_error", "error", "series-5"),
    ),
    _build_chart(
        "lookup",
        "dynamo's cache lookup",
        "each call",
        ("cache_lookup_latency_us", "lookup", "series-1"),
    ),
)


_MIN_SIZES = 3  # A line needs one process and two rank counts.


def chart_history(points: Sequence[Point], addresses: Sequence[str]) -> list[Chart]:
    rows = [point.row for point in points]
    return [
        _chart_metric(drawing, rows, addresses)
        for drawing in DRAWINGS
        if any(line.get(row) is not None for line in drawing.lines for row in rows)
    ]


def chart_scaling(results: Sequence[DistributedResult]) -> Chart | None:
    points: dict[str, dict[int, float]] = {}
    for result in results:
        if result.scaling_efficiency is not None:
            points.setdefault(result.line, {1: 1.0})[result.world_size] = result.scaling_efficiency
    if max(map(len, points.values()), default=0) < _MIN_SIZES:
        return None
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": sorted(of_line),
            "y": [float(f"{100 * of_line[size]:.4g}") for size in sorted(of_line)],
            "meta": {"color": f"series-{number % 7 + 1}"},
            "marker": {"size": 7},
            "line": {"width": 1.5},
            "hovertemplate": "%{x} ranks: %{y}%<extra></extra>",
        }
        for number, (name, of_line) in enumerate(points.items())
    ]
    sizes = sorted({size for of_line in points.values() for size in of_line})
    layout = {
        "xaxis": {
            "type": "log",
            "tickvals": sizes,
            "ticktext": list(map(str, sizes)),
            "showgrid": False,
        },
        "yaxis": {"rangemode": "tozero", "nticks": 6, "ticksuffix": "%"},
    }
    rows = [
        [name, size, f"{share:.1%}"]
        for name, of_line in points.items()
        for size, share in sorted(of_line.items())
    ]
    columns = [("Way", False), ("Ranks", True), ("Efficiency", True)]
    note = "samples per second ÷ ranks × those of one process"
    return Chart(
        "scaling-chart",
        "Scaling efficiency",
        build_figure(traces, **layout),
        columns,
        rows,
        note,
        "s",
    )


def _chart_metric(
    drawing: HistoryChart, rows: Sequence[ResultRow], addresses: Sequence[str]
) -> Chart:
    lines = [line for line in drawing.lines if any(line.get(row) is not None for row in rows)]
    traces = [
        part
        for line in lines
        for part in _split_at_gaps(drawing, _build_trace(drawing, line, rows, addresses))
    ]
    note = drawing.note
    if len(traces) > len(lines):
        note = f"{note}; {OUTLIERS}" if note else OUTLIERS
    highest = max((line.get(row) or 0 for line in lines for row in rows), default=0)
    yaxis: dict[str, Any] = {
        "rangemode": "tozero",
        "nticks": 6,
        "ticksuffix": drawing.unit and f" {drawing.unit}",
    }
    if drawing.is_count:
        yaxis = count_axis(highest)
    layout: dict[str, Any] = {
        "yaxis": yaxis,
        "xaxis": {"type": "date", "showgrid": False, "nticks": 4, "tickangle": 0},
    }
    if drawing.key == "speedup":
        layout["yaxis"] = {"nticks": 6, "ticksuffix": "×"}
        traces.append(_build_eager_line(rows))
    unit = f", {drawing.unit}" if drawing.unit else ""
    columns = [("Measured", False), *((f"{line.label}{unit}", True) for line in lines)]
    columns += [("95% interval", True)] if drawing.key == "speedup" else []
    table = [
        [
            format_time(row.time_us)[:16],
            *(_format_cell(line.get(row), row) for line in lines),
            *_format_interval(drawing, row),
        ]
        for row in reversed(rows)
    ]
    return Chart(
        f"{drawing.key}-chart",
        drawing.title,
        build_figure(traces, **layout),
        columns,
        table,
        note,
        "s",
    )


def _split_at_gaps(drawing: HistoryChart, trace: dict[str, Any]) -> list[dict[str, Any]]:
    if drawing.is_count:
        return [trace]
    return split_outliers(trace, from_zero=drawing.key != "speedup")


def _build_eager_line(rows: Sequence[ResultRow]) -> dict[str, Any]:
    ends = [min(row.time_us for row in rows), max(row.time_us for row in rows)]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "eager",
        "x": to_milliseconds(ends),
        "y": [1, 1],
        "meta": {"color": "series-2"},
        "line": {"width": 1, "dash": "dot"},
        "hoverinfo": "skip",
    }


def _format_cell(value: float | None, row: ResultRow) -> str:
    return describe_missing(row) if value is None else format_number(value)


def _format_interval(drawing: HistoryChart, row: ResultRow) -> list[str | None]:
    if drawing.key != "speedup":
        return []
    low, high = row.speedup_low, row.speedup_high
    return [None if low is None or high is None else f"{low:.3f}–{high:.3f}"]


def _build_trace(
    drawing: HistoryChart, line: ChartLine, rows: Sequence[ResultRow], addresses: Sequence[str]
) -> dict[str, Any]:
    known = [(row, address) for row, address in zip(rows, addresses) if line.get(row) is not None]
    values = [float(line.get(row) or 0) for row, _address in known]
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": line.label,
        "x": to_milliseconds([row.time_us for row, _address in known]),
        "y": [float(f"{value:.5g}") for value in values],
        "customdata": [address for _row, address in known],
        "meta": {"color": line.color},
        "marker": {"size": 7},
        "line": {"width": 1.5},
        "hovertemplate": (
            f"%{{y}} {drawing.unit} {line.label}, %{{x|%Y-%m-%d %H:%M}}<extra></extra>"
        ),
    }
    if drawing.key == "speedup":
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "thickness": 1.2,
            "width": 4,
            "array": [_relative_distance(row.speedup_high, row.speedup) for row, _address in known],
            "arrayminus": [
                _relative_distance(row.speedup, row.speedup_low) for row, _address in known
            ],
        }
    return trace


def _relative_distance(high: float | None, low: float | None) -> float:
    return 0.0 if high is None or low is None else float(f"{max(high - low, 0):.4g}")


_MIN_BINS, _MAX_BINS = 24, 120


def chart_repeats(repeats: Mapping[str, Sequence[float]]) -> Chart | None:
    """Chart the spread of repeats, in ms; None if none were stored."""
    arrays = {
        name: np.asarray(repeats[name], dtype=float) for name in sorted(repeats, reverse=True)
    }
    finite = {
        name: values[np.isfinite(values)]
        for name, values in arrays.items()
        if np.isfinite(values).any()
    }
    if not finite:
        return None
    together = np.concatenate(list(finite.values()))
    edges = np.histogram_bin_edges(
        together, bins=_count_bins(list(finite.values()), float(np.ptp(together)))
    )
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
        for number, (name, values) in enumerate(finite.items(), start=3)
    ]
    figure = build_figure(
        traces,
        barmode="overlay",
        bargap=0.02,
        xaxis={"ticksuffix": " ms", "nticks": 8, "showgrid": False, "zeroline": False},
        yaxis=count_axis(max(max(trace["y"]) for trace in traces)) | {"title": {"text": "repeats"}},
    )
    columns = [
        ("Repeats of", False),
        *((label, True) for label in ("Count", "Lowest, ms", "Median, ms")),
    ]
    columns += [("Highest, ms", True), ("Spread (IQR ÷ median)", True)]
    rows = [_sum_up(*item) for item in finite.items()]
    return Chart("repeats-chart", "Repeats", figure, columns, rows, None, "s")


def _count_bins(spread: Sequence[Any], reach: float) -> int:
    widths = [
        float(np.diff(np.histogram_bin_edges(values, bins="fd")[:2])[0])
        for values in spread
        if np.ptp(values) > 0
    ]
    bins = reach / min(widths) if widths else 0
    return int(min(max(bins, _MIN_BINS), _MAX_BINS))


def _sum_up(name: str, values: Any) -> list[str]:
    low, first, middle, third, high = (
        float(quantile) for quantile in np.percentile(values, (0, 25, 50, 75, 100))
    )
    spread = f"{100 * (third - first) / middle:.1f}%" if middle else "–"
    return [
        name,
        str(len(values)),
        *(format_number(value) for value in (low, middle, high)),
        spread,
    ]
