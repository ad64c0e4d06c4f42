"""A compile's chart: each of its records, a stacked bar each, by phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compileboard.app.analysis.words import PHASES
from compileboard.app.charts.base import Chart, duration_axis, finish
from compileboard.app.format import format_duration
from compileboard.app.queries.compiles import Compilation

KINDS = {"forward": "forward", "backward": "backward", "runtime": "runtime (first calls)"}


def chart_phases(records: Sequence[Compilation]) -> Chart:
    """Stack the phases of a compile's records, the first on top."""
    divisor, unit = duration_axis(max((it.duration_us or 0 for it in records), default=0))
    places = list(range(len(records)))
    phases = [phase for phase in PHASES if any(it.phases_us.get(phase.name) for it in records)]
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "orientation": "h",
            "x": [float(f"{(it.phases_us.get(phase.name) or 0) / divisor:.4g}") for it in records],
            "y": places,
            "name": phase.label,
            "meta": {"color": phase.color},
            "customdata": [format_duration(it.phases_us.get(phase.name)) for it in records],
            "hovertemplate": f"{phase.label}: %{{customdata}}",
        }
        for phase in phases
    ]
    figure = finish(
        traces,
        barmode="stack",
        bargap=max(0.25, 1 - 0.22 * len(records)),
        xaxis={"rangemode": "tozero", "ticksuffix": f" {unit}", "nticks": 6},
        yaxis={
            "tickmode": "array",
            "tickvals": places,
            "ticktext": [f"{it.kind} " for it in records],
            "autorange": "reversed",
            "showgrid": False,
            "zeroline": False,
            "automargin": True,
        },
    )
    columns = [("Record", False), ("Duration", True), *((phase.label, True) for phase in phases)]
    rows = [
        [KINDS.get(it.kind, it.kind), _cell(it.duration_us), *(_cell(it.phases_us.get(p.name)) for p in phases)]
        for it in records
    ]
    return Chart("phases-chart", "Phases", figure, columns, rows, "a bar a compilation record", "s")


def _cell(value: int | None) -> str | None:
    return None if value is None else format_duration(value)
