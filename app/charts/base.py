"""Shared parts of charts. Colours are defined in static/css/tokens.css: a trace names one with
`meta={"color": "series-1"}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

MAX_CHART_BYTES = 50_000  # compressed
# Values that differ by less than this share of the highest lie in the middle, else the chart is of
# their last digits. HUD's threshold for a change is 0.05.
NEARLY_SAME = 0.01


@dataclass(frozen=True)
class Chart:
    id: str
    title: str
    figure: dict[str, Any]
    columns: Sequence[tuple[str, bool]]
    rows: Sequence[Sequence[object]]
    note: str | None = None
    height: Literal["xs", "s", "m", "l"] = "m"
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
    """Escape `<` in every text of a figure: Plotly would render an <a href> from outside as a
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


def finish(traces: Sequence[Any], **layout: Any) -> dict[str, Any]:
    """Build an escaped figure from dicts or graph objects; a graph object validates itself, which
    takes 15 ms of a page's 100.
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


def times(microseconds: Sequence[int]) -> list[int]:
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
