"""Shared parts of charts. A trace selects a colour of static/css/tokens.css in its `meta`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any, Literal

from compileboard.app.core.resources import resource_folder

MAX_CHART_BYTES = 50_000  # compressed
# If all values differ by less than this share of the highest, the axis is widened around them. The
# value is the HUD's threshold for a change.
NEARLY_SAME = 0.01


@dataclass(frozen=True)
class Chart:
    id: str
    title: str
    figure: dict[str, Any]
    columns: Sequence[tuple[str, bool]]
    rows: Sequence[Sequence[object]]
    note: str | None = None
    height: Literal["s", "m", "l"] = "m"
    show_legend: bool = True

    @property
    def legend(self) -> list[tuple[str, str]]:
        traces = [trace for trace in self.figure["data"] if trace.get("name")]
        return [
            (
                trace["name"].replace("&lt;", "<"),
                (trace.get("meta") or {}).get("color", f"series-{number}"),
            )
            for number, trace in enumerate(traces, start=1)
        ]


_HARMLESS = frozenset({int, float, bool, type(None)})


def escape(value: Any) -> Any:
    """Escape `<` in every string of a figure: Plotly would render an <a href> from outside as a
    link.
    """
    if isinstance(value, str):
        return value.replace("<", "&lt;").replace("\n", "<br>")
    if isinstance(value, dict):
        return {key: escape(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if _HARMLESS.issuperset(map(type, value)):  # most are numbers, thousands of them
            return list(value)
        return [escape(item) for item in value]
    return value


def build_figure(traces: Sequence[Any], **layout: Any) -> dict[str, Any]:
    """Build an escaped figure from dicts or graph objects. Dicts are faster: validation by graph
    objects takes 15 of a page's 100 ms.
    """
    plain = [trace if isinstance(trace, dict) else trace.to_plotly_json() for trace in traces]
    common = {
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "hovermode": "closest",
        "showlegend": False,
        "bargap": 0.25,
    }
    figure: dict[str, Any] = escape({"data": plain, "layout": common | layout})
    return figure


def to_milliseconds(microseconds: Sequence[int]) -> list[int]:
    return [time_us // 1000 for time_us in microseconds]


def duration_axis(highest_us: float) -> tuple[float, str]:
    for divisor, unit in ((60e6, "min"), (1e6, "s"), (1e3, "ms")):
        if highest_us >= 2 * divisor:
            return divisor, unit
    return 1.0, "µs"


def count_axis(highest: float) -> dict[str, Any]:
    return {"rangemode": "tozero", "tickformat": ",d"} | (
        {"dtick": 1} if highest <= 5 else {"nticks": 6}
    )


MIN_FOR_OUTLIERS = 6
OUTLIERS = "▲ ▼ lie beyond the axis, the table has them"


def find_outliers(values: Sequence[float | None], *, from_zero: bool = False) -> list[int]:
    """Return the positions of values so far from the others that they would flatten the chart.

    A value is far if its distance from the median exceeds both ten times the median absolute
    deviation and the median itself (`from_zero`) or a tenth of it. It is kept if a neighbour is at
    least half as far away, because then the series has changed level; the newest value is always
    kept, because it may be the first of a new level.
    """
    known = [(position, value) for position, value in enumerate(values) if value is not None]
    if len(known) < MIN_FOR_OUTLIERS:
        return []
    middle = median(value for _position, value in known)
    scatter = median(abs(value - middle) for _position, value in known)
    reach = max(10 * scatter, abs(middle) * (1 if from_zero else 0.1))
    distances = [0.0, *(abs(value - middle) for _position, value in known)]
    return [
        position
        for (position, _value), before, own, after in zip(
            known, distances, distances[1:], distances[2:]
        )
        if own > reach > 0 and 2 * max(before, after) < own
    ]


def split_outliers(trace: dict[str, Any], *, from_zero: bool = False) -> list[dict[str, Any]]:
    """Remove outliers from a line. Each becomes an arrow at the edge, labelled with its value."""
    outliers = find_outliers(trace["y"], from_zero=from_zero)
    if not outliers:
        return [trace]
    kept = [position for position in range(len(trace["y"])) if position not in outliers]
    line = _select_points(trace, kept)
    inside = [value for value in line["y"] if value is not None]
    arrows = []
    for position in outliers:
        value, arrow = trace["y"][position], _select_points(trace, [position])
        is_above = value > max(inside)
        arrow |= {
            "name": "",
            "mode": "markers",
            "y": [max(inside) if is_above else min(inside)],
            "marker": {"size": 10, "symbol": "triangle-up" if is_above else "triangle-down"},
            "hovertemplate": re.sub(r"%\{y[^}]*\}", f"{value:.5g}", trace["hovertemplate"]),
        }
        arrow.pop("error_y", None)
        arrows.append(arrow)
    return [line, *arrows]


def _select_points(trace: Mapping[str, Any], positions: Sequence[int]) -> dict[str, Any]:
    """Keep only these positions of every list as long as `y`."""
    count = len(trace["y"])
    picked = {
        key: [value[position] for position in positions]
        if isinstance(value, list) and len(value) == count
        else value
        for key, value in trace.items()
    }
    if "error_y" in trace:
        reach = {key: trace["error_y"][key] for key in ("array", "arrayminus")}
        picked["error_y"] = trace["error_y"] | {
            key: [values[position] for position in positions] for key, values in reach.items()
        }
    return picked


_TOKEN = re.compile(r"--([\w-]+): light-dark\((#\w+),")
_HEIGHTS_PX = {"s": 320, "m": 420, "l": 600}


@cache
def read_colors() -> Mapping[str, str]:
    return dict(
        _TOKEN.findall(
            (resource_folder("static") / "css" / "tokens.css").read_text(encoding="utf-8")
        )
    )


def make_figure(chart: Chart, shared: Mapping[str, Sequence[Any]] | None = None) -> Any:
    """Return a chart as a `plotly.graph_objects.Figure`."""
    from plotly.graph_objects import Figure  # takes 0.3 s, and no page needs it

    colors = read_colors()
    note = "; ".join(
        part for part in (chart.note or "").split("; ") if " opens its " not in part
    )  # the figure is not shown here
    subtitle = {"subtitle": {"text": escape(note)}} if note else {}
    layout = chart.figure["layout"] | {
        "template": "plotly_white",
        "title": {"text": escape(chart.title), **subtitle},
        "showlegend": chart.show_legend and len(chart.legend) > 1,
        "legend": {"orientation": "h", "y": -0.12, "yanchor": "top"},
        "colorway": [colors[f"series-{number}"] for number in range(1, 9)],
        "height": _HEIGHTS_PX[chart.height],
        "margin": {
            **chart.figure["layout"]["margin"],
            "t": chart.figure["layout"]["margin"]["t"] + 80,
        },
    }
    for name in [name for name in layout if re.fullmatch(r"[xy]axis\d*", name)]:
        layout[name] = {"automargin": True} | layout[name]
    return Figure(
        data=[_paint_trace(trace, shared or {}, colors) for trace in chart.figure["data"]],
        layout=layout,
    )


def _paint_trace(
    trace: dict[str, Any], shared: Mapping[str, Sequence[Any]], colors: Mapping[str, str]
) -> dict[str, Any]:
    meta = trace.get("meta") or {}
    painted = {key: value for key, value in trace.items() if key != "meta"}
    if "points" in meta and shared:
        painted |= {
            name: [shared[name][at] for at in trace["x"]]
            for name in ("x", "text")
            if name in shared
        }
    if "color" in meta:
        color = {"color": colors[meta["color"]]}
        painted["marker"] = painted.get("marker", {}) | color
        if trace.get("type") == "scatter":
            painted["line"] = painted.get("line", {}) | color
    return painted


MARGIN_PX = 3


@dataclass(frozen=True)
class SparklineDrawing:
    """The shapes of a sparkline, for templates/_macros/sparkline.html. Units: pixels.

    `parts` are the line's segments between gaps, as the points of an SVG polyline. `hollow` are
    values outside the line, `dots` the newest value and those between two gaps. `shade` is the left
    edge and the width of the shaded area.
    """

    width: int
    height: int
    parts: Sequence[str]
    hollow: Sequence[tuple[float, float]]
    dots: Sequence[tuple[float, float]]
    shade: tuple[float, float] | None


def draw_sparkline(
    values: Sequence[float | None],
    *,
    hollow: Collection[int] = (),
    bad_from: int | None = None,
    bad_to: int | None = None,
    width: int = 96,
    height: int = 30,
) -> SparklineDrawing:
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    span = max(high - low, NEARLY_SAME * max(abs(low), abs(high)))
    step = (width - 2 * MARGIN_PX) / max(len(values) - 1, 1)

    def place_point(position: int, value: float) -> tuple[float, float]:
        share = 0.5 + (value - (low + high) / 2) / span if span else 0.5
        return round(MARGIN_PX + position * step, 1), round(
            height - MARGIN_PX - share * (height - 2 * MARGIN_PX), 1
        )

    points = [
        None if value is None else place_point(position, value)
        for position, value in enumerate(values)
    ]
    parts: list[list[tuple[float, float]]] = [[]]
    for position, point in enumerate(points):
        if position in hollow:
            continue
        if point is None:
            parts.append([])
        else:
            parts[-1].append(point)
    parts = [part for part in parts if part]
    shade = None
    if bad_from is not None and values:
        start, end = (
            MARGIN_PX + (bad_from - 0.5) * step,
            MARGIN_PX + ((bad_to or len(values)) - 0.5) * step,
        )
        left, right = max(start, 0.0), min(end, float(width))
        shade = (round(left, 1), round(max(right - left, 0.0), 1))
    return SparklineDrawing(
        width=width,
        height=height,
        parts=[" ".join(f"{x},{y}" for x, y in part) for part in parts if len(part) > 1],
        hollow=[
            point
            for position, point in enumerate(points)
            if point is not None and position in hollow
        ],
        dots=[part[0] for part in parts[:-1] if len(part) == 1] + [part[-1] for part in parts[-1:]],
        shade=shade,
    )
