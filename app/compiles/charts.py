"""Charts of compiles: the longest of a run, and one compile's phases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from compileboard.app.compiles.run_queries import Compilation, CompileRow
from compileboard.app.core.charts import Chart, build_figure, duration_axis
from compileboard.app.core.format import format_duration
from compileboard.app.core.labels import PHASES, HasPhases, Phase, sum_phases

_MAX_LABEL_LENGTH = 60


def _list_traces(bars: Sequence[HasPhases], divisor: float) -> dict[Phase, dict[str, Any]]:
    traces: dict[Phase, dict[str, Any]] = {}
    for phase in PHASES:
        times = [bar.get(phase.name) or 0 for bar in bars]
        if any(times):
            traces[phase] = {
                "type": "bar",
                "orientation": "h",
                "x": [float(f"{time / divisor:.4g}") for time in times],
                "y": list(range(len(bars))),
                "name": phase.label,
                "meta": {"color": phase.color},
            }
    return traces


def _stack_traces(
    traces: Sequence[dict[str, Any]], unit: str, labels: Sequence[str], **layout: Any
) -> dict[str, Any]:
    return build_figure(
        traces,
        barmode="stack",
        **layout,
        xaxis={"rangemode": "tozero", "ticksuffix": f" {unit}", "nticks": 6},
        yaxis={
            "tickmode": "array",
            "tickvals": list(range(len(labels))),
            "ticktext": labels,
            "autorange": "reversed",
            "showgrid": False,
            "zeroline": False,
            "automargin": True,
        },
    )


def _format_times(bars: Sequence[HasPhases], phase: Phase) -> list[str]:
    return [format_duration(bar.get(phase.name)) for bar in bars]


def _stack_compiles(
    compiles: Sequence[CompileRow], run_ids: Sequence[str], labels: Sequence[str]
) -> dict[str, Any]:
    bars = [compile_row.phases for compile_row in compiles]
    divisor, unit = duration_axis(max((sum_phases(phases) or 0 for phases in bars), default=0))
    addresses = [f"/runs/{run_id}/compiles/{row.id}" for run_id, row in zip(run_ids, compiles)]
    traces = [
        trace
        | {
            "customdata": addresses,
            "text": _format_times(bars, phase),
            "textposition": "none",
            "hovertemplate": f"{phase.label}: %{{text}}",
        }
        for phase, trace in _list_traces(bars, divisor).items()
    ]
    return _stack_traces(traces, unit, labels)


def chart_pair(compiles: Sequence[CompileRow], run_ids: Sequence[str]) -> Chart:
    """Draw the phases of two compiles, which the page also has as a table."""
    labels = [f"{side} · {row.compile_id} " for side, row in zip("AB", compiles)]
    figure = _stack_compiles(compiles, run_ids, labels)
    return Chart("phases-chart", "Time by phase", figure, (), (), "a bar opens its compile", "s")


def chart_compiles(compiles: Sequence[CompileRow], run_id: str, total_count: int) -> Chart:
    shown = len(compiles)
    figure = _stack_compiles(compiles, [run_id] * shown, [_label_compile(row) for row in compiles])
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
            *(_format_cell(compile_row.phases.get(p.name)) for p in PHASES),
        ]
        for compile_row in compiles
    ]
    height: Literal["s", "m", "l"] = "s" if shown <= 5 else "m" if shown <= 12 else "l"
    return Chart("compiles-chart", "Compile time", figure, columns, rows, note, height)


def _format_cell(value: int | None) -> str | None:
    return None if value is None else format_duration(value)


def _label_compile(compile_row: CompileRow) -> str:
    label = compile_row.label
    return (
        f"{label if len(label) <= _MAX_LABEL_LENGTH else '…' + label[1 - _MAX_LABEL_LENGTH :]} "
        f"{compile_row.compile_id} "
    )


KINDS = {"forward": "forward", "backward": "backward", "runtime": "runtime (first calls)"}


def chart_phases(records: Sequence[Compilation]) -> Chart:
    divisor, unit = duration_axis(max((record.duration_us or 0 for record in records), default=0))
    bars = [record.phases_us for record in records]
    phases = _list_traces(bars, divisor)
    traces = [
        trace
        | {
            "customdata": _format_times(bars, phase),
            "hovertemplate": f"{phase.label}: %{{customdata}}",
        }
        for phase, trace in phases.items()
    ]
    labels = [f"{record.kind} " for record in records]
    figure = _stack_traces(traces, unit, labels, bargap=max(0.25, 1 - 0.22 * len(records)))
    columns = [("Record", False), ("Duration", True), *((phase.label, True) for phase in phases)]
    rows = [
        [
            KINDS.get(record.kind, record.kind),
            _format_cell(record.duration_us),
            *(_format_cell(record.phases_us.get(p.name)) for p in phases),
        ]
        for record in records
    ]
    return Chart("phases-chart", "Phases", figure, columns, rows, "a bar a compilation record", "s")
