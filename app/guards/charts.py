"""Charts of a run's guards."""

from __future__ import annotations

from collections.abc import Sequence

from compileboard.app.core.charts import Chart, build_figure, count_axis
from compileboard.app.core.format import format_count, format_percent
from compileboard.app.guards.model import describe_kind

_SHOWN = 12
_MAX_LABEL_LENGTH = 32


def chart_kinds(kinds: Sequence[tuple[str, int]], guard_count: int) -> Chart:
    shown = kinds[:_SHOWN]
    positions = list(range(len(shown)))
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": [count for _kind, count in shown],
        "y": positions,
        "name": "guards",
        "meta": {"color": "series-1"},
        "text": [f"{kind}: {format_count(count)}\n{describe_kind(kind)}" for kind, count in shown],
        "textposition": "none",
        "hovertemplate": "%{text}",
    }
    figure = build_figure(
        [trace],
        xaxis=count_axis(shown[0][1] if shown else 0),
        yaxis={
            "tickmode": "array",
            "tickvals": positions,
            "ticktext": [f"{kind[:_MAX_LABEL_LENGTH]} " for kind, _count in shown],
            "autorange": "reversed",
            "showgrid": False,
            "zeroline": False,
            "automargin": True,
        },
    )
    columns = [("Kind", False), ("Guards", True), ("Share", True), ("What is checked", False)]
    rows = [
        [
            kind,
            format_count(count),
            format_percent(count / guard_count if guard_count else None),
            describe_kind(kind),
        ]
        for kind, count in kinds
    ]
    left_out = len(kinds) - len(shown)
    note = f"the {len(shown)} most frequent of {len(kinds)}" if left_out else "all sets together"
    return Chart(
        "guard-kinds-chart",
        "Guards by kind",
        figure,
        columns,
        rows,
        note,
        "m" if len(shown) > 5 else "s",
    )
