"""Distinct graph breaks across runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from compileboard.app.api.answers import PageQuery, operation
from compileboard.app.api.fleet.reasons import (
    History,
    Trends,
    list_fields,
    list_runs,
    read_trends,
    refuse_reason,
)
from compileboard.app.db import get_engine, get_store
from compileboard.app.queries.fields import SORT_HELP, Stack
from compileboard.app.queries.fleet.graph_breaks import (
    GRAPH_BREAKS,
    BreakEvent,
    BreakFilter,
    BreakSummary,
    DistinctBreak,
)
from compileboard.app.queries.fleet.reasons import AffectedRun, list_reasons
from compileboard.app.queries.page import Page, read_content_id
from compileboard.app.queries.parameters import order_by
from compileboard.app.screens.fleet.reasons import build_graph_break


@dataclass(frozen=True)
class BreakSort:
    sort: Annotated[str, order_by(GRAPH_BREAKS.orders), SORT_HELP] = GRAPH_BREAKS.default_order


@dataclass(frozen=True)
class DistinctBreakDetail(DistinctBreak):
    """One graph break over all runs."""

    stack: Stack
    text: Annotated[str | None, "All that torch wrote, the newest time."]
    debug_context: Annotated[str | None, "torch's context of it, the newest time."]
    events: Annotated[list[BreakEvent], "The newest 20."]
    history: History


@dataclass(frozen=True)
class BreakTrends(Trends):
    """Graph breaks over runs."""

    summary: Annotated[BreakSummary, "Sums."]


@operation("/graph_breaks")
def list_graph_breaks(
    selection: BreakFilter, order: BreakSort, page: PageQuery
) -> Page[DistinctBreak]:
    """List distinct graph breaks across runs, the most frequent first."""
    return list_reasons(
        get_engine(), GRAPH_BREAKS, selection, sort=order.sort, cursor=page.cursor, limit=page.limit
    )


@operation("/graph_breaks/trends")
def get_graph_break_trends(selection: BreakFilter) -> BreakTrends:
    """Return the totals of distinct graph breaks, and their trend over runs."""
    return BreakTrends(**read_trends(GRAPH_BREAKS, selection))


@operation("/graph_breaks/<distinct_id>")
def get_graph_break(distinct_id: str) -> DistinctBreakDetail:
    """Return one distinct graph break with its newest events and its history."""
    screen = build_graph_break(get_store(), read_content_id(distinct_id))
    return DistinctBreakDetail(**list_fields(screen or refuse_reason(GRAPH_BREAKS, distinct_id)))


@operation("/graph_breaks/<distinct_id>/runs")
def list_graph_break_runs(distinct_id: str, page: PageQuery) -> Page[AffectedRun]:
    """List the runs that have one distinct graph break, newest first."""
    return list_runs(GRAPH_BREAKS, distinct_id, page)
