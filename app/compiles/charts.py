"""Charts of compiles: the longest of a run, and one compile's phases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from compileboard.app.compiles.run_queries import Compilation, CompileRow
from compileboard.app.core.charts import Chart, duration_axis, finish
from compileboard.app.core.format import format_duration
from compileboard.app.core.labels import PHASES, sum_phases

_LONGEST_LABEL = 60


def chart_compiles(compiles: Sequence[CompileRow], run_id: str, total_count: int) -> Chart:
    highest = max((sum_phases(compile_row.phases) or 0 for compile_row in compiles), default=0)
    divisor, unit = duration_axis(highest)
    positions = list(range(len(compiles)))
    traces: list[dict[str, Any]] = []
    for phase in PHASES:
        values = [compile_row.phases.get(phase.name) or 0 for compile_row in compiles]
        if not any(values):
            continue
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "x": [float(f"{value / divisor:.4g}") for value in values],
                "y": positions,
                "name": phase.label,
                "meta": {"color": phase.color},
                "customdata": [
                    f"/runs/{run_id}/compiles/{compile_row.id}" for compile_row in compiles
                ],
                "text": [
                    format_duration(compile_row.phases.get(phase.name)) for compile_row in compiles
                ],
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
            "tickvals": positions,
            "ticktext": [_label(compile_row) for compile_row in compiles],
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
    columns = [
        ("Compile", False),
        ("ID", False),
        ("Sum", True),
        *((phase.label, True) for phase in PHASES),
    ]
    rows = [
        [
            compile_row.label,
            compile_row.compile_id,
            format_duration(sum_phases(compile_row.phases)),
            *(_cell(compile_row.phases.get(p.name)) for p in PHASES),
        ]
        for compile_row in compiles
    ]
    height: Literal["s", "m", "l"] = "s" if shown <= 5 else "m" if shown <= 12 else "l"
    return Chart("compiles-chart", "Compile time", figure, columns, rows, note, height)


def _cell(value: int | None) -> str | None:
    return None if value is None else format_duration(value)


def _label(compile_row: CompileRow) -> str:
    label = compile_row.label
    return (
        f"{label if len(label) <= _LONGEST_LABEL else '…' + label[1 - _LONGEST_LABEL :]} "
        f"{compile_row.compile_id} "
    )


KINDS = {"forward": "forward", "backward": "backward", "runtime": "runtime (first calls)"}


def chart_phases(records: Sequence[Compilation]) -> Chart:
    divisor, unit = duration_axis(max((record.duration_us or 0 for record in records), default=0))
    positions = list(range(len(records)))
    phases = [
        phase for phase in PHASES if any(record.phases_us.get(phase.name) for record in records)
    ]
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "orientation": "h",
            "x": [
                float(f"{(record.phases_us.get(phase.name) or 0) / divisor:.4g}")
                for record in records
            ],
            "y": positions,
            "name": phase.label,
            "meta": {"color": phase.color},
            "customdata": [format_duration(record.phases_us.get(phase.name)) for record in records],
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
            "tickvals": positions,
            "ticktext": [f"{record.kind} " for record in records],
            "autorange": "reversed",
            "showgrid": False,
            "zeroline": False,
            "automargin": True,
        },
    )
    columns = [("Record", False), ("Duration", True), *((phase.label, True) for phase in phases)]
    rows = [
        [
            KINDS.get(record.kind, record.kind),
            _cell_of_record(record.duration_us),
            *(_cell_of_record(record.phases_us.get(p.name)) for p in phases),
        ]
        for record in records
    ]
    return Chart("phases-chart", "Phases", figure, columns, rows, "a bar a compilation record", "s")


def _cell_of_record(value: int | None) -> str | None:
    return None if value is None else format_duration(value)
