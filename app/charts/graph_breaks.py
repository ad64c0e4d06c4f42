"""Charts of graph breaks across runs."""

from __future__ import annotations

from collections.abc import Sequence

from compileboard.app.charts.base import Chart
from compileboard.app.charts.trends import chart_history, chart_trend
from compileboard.app.queries.distinct_break import HistoryPoint
from compileboard.app.queries.scope import Slot, Sums


def chart_kinds(kinds: Sequence[Sums], slots: Sequence[Slot]) -> Chart:
    """Stack the kinds of graph breaks over time."""
    return chart_trend(
        "graph-breaks-trend", "Graph breaks over time", "graph breaks", {it.kind: it.line for it in kinds}, slots
    )


def chart_break(points: Sequence[HistoryPoint]) -> Chart:
    """Draw how often one distinct break came, run by run."""
    return chart_history("break-history", "From run to run", "graph breaks", points)
