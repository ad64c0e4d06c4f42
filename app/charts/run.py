"""A run's charts: its longest compiles, a stacked bar each, by phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from compileboard.app.analysis.phases import sum_phases
from compileboard.app.analysis.words import PHASES
from compileboard.app.charts.base import Chart, duration_axis, finish
from compileboard.app.format import format_duration
from compileboard.app.queries.compiles import CompileRow

_LONGEST_LABEL = 34


def chart_compiles(compiles: Sequence[CompileRow], run_id: str, total_count: int) -> Chart:
    """Stack the phases of compiles, a bar each, in the order they are given, the first on top."""
    highest = max((sum_phases(it.phases) or 0 for it in compiles), default=0)
    divisor, unit = duration_axis(highest)
    places = list(range(len(compiles)))
    traces: list[dict[str, Any]] = []
    for phase in PHASES:
        values = [it.phases.get(phase.name) or 0 for it in compiles]
        if not any(values):
            continue
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "x": [float(f"{value / divisor:.4g}") for value in values],
                "y": places,
                "name": phase.label,
                "meta": {"color": phase.color},
                "customdata": [f"/runs/{run_id}/compiles/{it.id}" for it in compiles],
                "text": [format_duration(it.phases.get(phase.name)) for it in compiles],
                "textposition": "none",
                "hovertemplate": f"{phase.label}: %{{text}}",
            }
        )
    figure = finish(
        traces,
        barmode="stack",
        xaxis={"rangemode": "tozero", "ticksuffix": f" {unit}", "nticks": 6},
        yaxis={
            "tickmode": "array",
            "tickvals": places,
            "ticktext": [_label(it) for it in compiles],
            "autorange": "reversed",
            "showgrid": False,
            "zeroline": False,
            "automargin": True,
        },
    )
    shown = len(compiles)
    note = (
        "by phase; a bar opens its compile"
        if shown >= total_count
        else f"the {shown} longest of {total_count}, by phase"
    )
    columns = [("Compile", False), ("Function", False), ("Sum", True), *((it.label, True) for it in PHASES)]
    rows = [
        [
            it.compile_id,
            it.function,
            format_duration(sum_phases(it.phases)),
            *(_cell(it.phases.get(p.name)) for p in PHASES),
        ]
        for it in compiles
    ]
    height: Literal["s", "m", "l"] = "s" if shown <= 5 else "m" if shown <= 12 else "l"
    return Chart("compiles-chart", "Compile time", figure, columns, rows, note, height)


def _cell(value: int | None) -> str | None:
    return None if value is None else format_duration(value)


def _label(it: CompileRow) -> str:
    name = it.function or "not recorded"
    if len(name) > _LONGEST_LABEL - 8:
        name = "…" + name[-(_LONGEST_LABEL - 9) :]
    rank = "" if it.rank is None else f" r{it.rank}"
    return f"{name} {it.compile_id}{rank} "
