"""Distinct graph breaks across runs, and what trends of distinct things have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NoReturn

from compileboard.app.api.answers import PageQuery, operation, read_number, refuse
from compileboard.app.db import get_clock, get_reader
from compileboard.app.queries.fields import SORT_HELP, Count, DurationUs, Stack
from compileboard.app.queries.fleet import graph_breaks
from compileboard.app.queries.fleet.graph_breaks import (
    AffectedRun,
    BreakEvent,
    BreakFilter,
    BreakSummary,
    DistinctBreak,
    HistoryPoint,
)
from compileboard.app.queries.fleet.scope import Slot, TrendGrid
from compileboard.app.queries.page import Page
from compileboard.app.queries.parameters import order_by
from compileboard.app.screens.fleet.graph_breaks import (
    build_break_list,
    build_break_runs,
    build_break_trends,
    build_graph_break,
)

TrendLine = Annotated[list[float], "Mean count a run, one number for each of `slots`."]
History = Annotated[list[HistoryPoint], "How often it came in each of the newest 200 runs, oldest first."]


@dataclass(frozen=True)
class BreakSort:
    """The order of a list of distinct graph breaks."""

    sort: Annotated[str, order_by(graph_breaks.ORDERS), SORT_HELP] = "breaks"


@dataclass(frozen=True)
class DistinctBreakDetail(DistinctBreak):
    """One distinct graph break over all runs."""

    stack: Stack
    text: Annotated[str | None, "All that torch wrote, the newest time."]
    debug_context: Annotated[str | None, "torch's context of it, the newest time."]
    events: Annotated[list[BreakEvent], "The newest 20."]
    history: History


@dataclass(frozen=True)
class KindTrend:
    """What distinct things of one kind came to."""

    kind: Annotated[str, "The kind."]
    gb_id: Annotated[str | None, "torch's id, for graph breaks."]
    distinct_count: Annotated[Count, "Distinct things."]
    function_count: Annotated[Count, "Functions."]
    count: Annotated[Count, "How often."]
    guard_failure_count: Annotated[Count, "Failed cache entries, for recompiles."]
    compile_us: Annotated[DurationUs | None, "Time of the compiles."]
    trend: TrendLine


@dataclass(frozen=True)
class DistinctTrend:
    """One distinct thing."""

    id: Annotated[int, "Its `id`."]
    trend: TrendLine


@dataclass(frozen=True)
class Trends:
    slots: Annotated[list[Slot], "At most 48, oldest first."]
    kinds: Annotated[list[KindTrend], "The most frequent first."]
    distinct: Annotated[list[DistinctTrend], "By `id`."]


@dataclass(frozen=True)
class BreakTrends(Trends):
    """Distinct graph breaks over runs."""

    summary: Annotated[BreakSummary, "Sums."]


@operation("/graph_breaks")
def list_graph_breaks(wanted: BreakFilter, order: BreakSort, page: PageQuery) -> Page[DistinctBreak]:
    """List distinct graph breaks across runs, the most frequent first."""
    listed = build_break_list(get_reader(), wanted, order.sort, page.cursor, page.limit)
    return Page(tuple(listed.graph_breaks), listed.next_cursor)


@operation("/graph_breaks/trends")
def get_graph_break_trends(wanted: BreakFilter) -> BreakTrends:
    """Return distinct graph breaks summed, and how they went from run to run."""
    trends = build_break_trends(get_reader(), wanted)
    return BreakTrends(list(trends.slots), list_kinds(trends.grid), list_distinct(trends.grid), trends.summary)


def list_kinds(cells: TrendGrid) -> list[KindTrend]:
    return [
        KindTrend(
            kind=totals.kind,
            gb_id=totals.gb_id,
            distinct_count=totals.things,
            function_count=len(totals.functions),
            count=totals.count,
            guard_failure_count=totals.guard_failure_count,
            compile_us=totals.compile_us,
            trend=totals.line,
        )
        for totals in cells.kinds
    ]


def list_distinct(cells: TrendGrid) -> list[DistinctTrend]:
    return [DistinctTrend(key, line) for key, line in sorted(cells.lines.items())]


@operation("/graph_breaks/<distinct_id>")
def get_graph_break(distinct_id: str) -> DistinctBreakDetail:
    """Return one distinct graph break with its newest events and its history."""
    number = read_number(distinct_id)
    screen = build_graph_break(get_reader(), number) if number is not None else None
    if screen is None:
        _refuse(distinct_id)
    return DistinctBreakDetail(
        **vars(screen.graph_break),
        stack=tuple(screen.stack),
        text=screen.text,
        debug_context=screen.debug_context,
        events=list(screen.events),
        history=list(screen.history),
    )


@operation("/graph_breaks/<distinct_id>/runs")
def list_graph_break_runs(distinct_id: str, page: PageQuery) -> Page[AffectedRun]:
    """List the runs that have one distinct graph break, newest first."""
    number = read_number(distinct_id)
    runs = build_break_runs(get_reader(), number, page.cursor, page.limit, get_clock()) if number is not None else None
    return runs or _refuse(distinct_id)


def _refuse(distinct_id: str) -> NoReturn:
    refuse(f"There is no graph break {distinct_id[:40]}; its runs may have been deleted.")
