"""The chart of compile time by rank and phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compileboard.app.core.charts import Chart, build_figure, duration_axis
from compileboard.app.core.format import format_count, format_duration
from compileboard.app.core.labels import PHASES
from compileboard.app.ranks.rank_differences import RankSummary

MAX_BARS = 128


def chart_ranks(ranks: Sequence[RankSummary]) -> Chart:
    shown = sorted(
        sorted(ranks, key=lambda rank: -rank.total_us)[:MAX_BARS], key=lambda rank: rank.rank
    )
    divisor, unit = duration_axis(
        max((sum(summary.phases.values()) for summary in shown), default=0)
    )
    names = [f"rank {summary.rank}" for summary in shown]
    traces: list[dict[str, Any]] = []
    for phase in PHASES:
        values = [summary.get(phase.name) or 0 for summary in shown]
        if any(values):
            traces.append(
                {
                    "type": "bar",
                    "x": names,
                    "y": [float(f"{value / divisor:.4g}") for value in values],
                    "name": phase.label,
                    "meta": {"color": phase.color},
                    "text": [format_duration(value) for value in values],
                    "textposition": "none",
                    "hovertemplate": f"%{{x}}, {phase.label}: %{{text}}<extra></extra>",
                }
            )
    figure = build_figure(
        traces,
        barmode="stack",
        xaxis={"type": "category", "showgrid": False, "automargin": True, "nticks": 16},
        yaxis={"rangemode": "tozero", "ticksuffix": f" {unit}", "nticks": 6},
    )
    note = (
        "by phase"
        if len(shown) == len(ranks)
        else f"the {MAX_BARS} slowest of {len(ranks)}, by phase"
    )
    columns = [("Rank", False), ("Compiles", True), ("Recompiles", True), ("Graph breaks", True)]
    columns += [("Graphs cut by DDP into", True), ("Compile time", True)]
    rows = [
        [
            summary.rank,
            format_count(summary.compile_count),
            format_count(summary.recompile_count),
            format_count(summary.graph_break_count),
            None if summary.piece_count is None else format_count(summary.piece_count),
            format_duration(summary.total_us),
            *(None if (us := summary.get(p.name)) is None else format_duration(us) for p in PHASES),
        ]
        for summary in shown
    ]
    return Chart(
        "ranks-chart",
        "Compile time of each rank",
        figure,
        [*columns, *((p.label, True) for p in PHASES)],
        rows,
        note,
        "s",
    )
