"""Charts of recompiles across runs."""

from __future__ import annotations

from collections.abc import Sequence

from compileboard.app.charts.base import Chart
from compileboard.app.charts.trends import chart_history, chart_trend
from compileboard.app.queries.distinct_break import HistoryPoint
from compileboard.app.queries.scope import Slot, Sums
from compileboard.collectors.categories import describe


def chart_categories(categories: Sequence[Sums], slots: Sequence[Slot]) -> Chart:
    """Stack the categories of recompiles over time."""
    named = {describe(it.kind).label: it.line for it in categories if it.count}
    return chart_trend("recompiles-trend", "Recompiles over time", "recompiles", named, slots)


def chart_cause(points: Sequence[HistoryPoint]) -> Chart:
    """Draw how often one cause made something recompile, run by run."""
    return chart_history("cause-history", "From run to run", "recompiles", points)
