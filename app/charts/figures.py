"""Charts as figures without a page: for a notebook or a file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from compileboard.app.charts.base import Chart, escape
from compileboard.app.resources import resource_folder

_TOKEN = re.compile(r"--([\w-]+): light-dark\((#\w+),")
_HEIGHTS_PX = {"xs": 220, "s": 320, "m": 420, "l": 600}


@cache
def read_colors() -> Mapping[str, str]:
    return dict(
        _TOKEN.findall(
            (resource_folder("static") / "css" / "tokens.css").read_text(encoding="utf-8")
        )
    )


def make_figure(chart: Chart, shared: Mapping[str, Sequence[Any]] | None = None) -> Any:
    """Return a chart as a `plotly.graph_objects.Figure`."""
    from plotly.graph_objects import Figure  # 0.3 s, which no page needs

    colors = read_colors()
    note = "; ".join(
        part for part in (chart.note or "").split("; ") if " opens its " not in part
    )  # nothing opens here
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
        data=[_paint(trace, shared or {}, colors) for trace in chart.figure["data"]], layout=layout
    )


def _paint(
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
