"""A run's charts: its longest compiles, a stacked bar each, by phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from compileboard.app.analysis.labels import PHASES, sum_phases
from compileboard.app.charts.base import Chart, duration_axis, finish
from compileboard.app.format import format_duration
from compileboard.app.queries.run.compiles import Compilation, CompileRow

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
        [
            KINDS.get(it.kind, it.kind),
            _cell_of_record(it.duration_us),
            *(_cell_of_record(it.phases_us.get(p.name)) for p in phases),
        ]
        for it in records
    ]
    return Chart("phases-chart", "Phases", figure, columns, rows, "a bar a compilation record", "s")


def _cell_of_record(value: int | None) -> str | None:
    return None if value is None else format_duration(value)
