"""Graph breaks across runs: the distinct ones, their trend, and one of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from compileboard.app.queries.engine import SqliteEngine
from compileboard.app.queries.fleet.graph_breaks import (
    HISTORY_SQL,
    RUNS_SQL,
    AffectedRun,
    BreakEvent,
    BreakFilter,
    BreakSummary,
    DistinctBreak,
    HistoryPoint,
    get_break_trends,
    get_distinct_break,
    list_affected,
    list_break_events,
    list_distinct_breaks,
    list_history,
)
from compileboard.app.queries.fleet.models import BREAKS_SQL, AffectedModel, list_affected_models
from compileboard.app.queries.fleet.scope import Slot, TrendGrid, list_slots
from compileboard.app.queries.newest import RecorderClock
from compileboard.app.queries.page import Page
from compileboard.app.queries.run.trace_files import get_event, list_stack

DEFAULT_ORDER = "breaks"
EVENT_COUNT = 20


@dataclass(frozen=True)
class GraphBreakList:
    """One page of distinct graph breaks."""

    graph_breaks: Sequence[DistinctBreak]
    next_cursor: str | None
    order: str


@dataclass(frozen=True)
class GraphBreakTrends:
    """What distinct graph breaks come to over runs, which are divided into slots."""

    summary: BreakSummary
    grid: TrendGrid
    slots: Sequence[Slot]

    @property
    def run_count(self) -> int:
        """Return how many runs were looked at, with graph breaks or without."""
        return sum(slot.run_count for slot in self.slots)


@dataclass(frozen=True)
class GraphBreaksScreen:
    """The list of distinct graph breaks above their trends."""

    listed: GraphBreakList
    trends: GraphBreakTrends


@dataclass(frozen=True)
class GraphBreakScreen:
    """One distinct graph break: its newest events, of which the newest has a stack and a text, and its runs."""

    graph_break: DistinctBreak
    events: Sequence[BreakEvent]
    stack: Sequence[dict[str, Any]]
    text: str | None
    debug_context: str | None
    history: Sequence[HistoryPoint]
    models: Sequence[AffectedModel]


def build_break_list(
    reader: sqlite3.Connection, selected: BreakFilter, order: str | None, cursor: str | None, limit_count: int
) -> GraphBreakList:
    """Build one page of distinct graph breaks.

    Raises: FilterError if the order or the cursor cannot be used.
    """
    order = order or DEFAULT_ORDER
    page = list_distinct_breaks(reader, selected, sort=order, cursor=cursor, limit=limit_count)
    return GraphBreakList(page.rows, page.next, order)


def build_break_trends(reader: sqlite3.Connection, selected: BreakFilter) -> GraphBreakTrends:
    """Build what distinct graph breaks come to over runs."""
    slots = list_slots(SqliteEngine(reader), selected.runs)
    summary, grid = get_break_trends(reader, selected, slots)
    return GraphBreakTrends(summary, grid, slots)


def build_graph_breaks(
    reader: sqlite3.Connection, selected: BreakFilter, order: str | None, cursor: str | None, limit_count: int
) -> GraphBreaksScreen:
    """Build the list of distinct graph breaks with their trends.

    Raises: FilterError if the order or the cursor cannot be used.
    """
    listed = build_break_list(reader, selected, order, cursor, limit_count)
    return GraphBreaksScreen(listed, build_break_trends(reader, selected))


def build_graph_break(reader: sqlite3.Connection, distinct_id: int) -> GraphBreakScreen | None:
    """Build the screen of one distinct graph break; None where there is none."""
    graph_break = get_distinct_break(reader, distinct_id)
    if graph_break is None:
        return None
    events = list_break_events(reader, distinct_id, limit=EVENT_COUNT)
    newest = get_event(reader, events[0].process_id, events[0].sequence) if events else {}
    return GraphBreakScreen(
        graph_break=graph_break,
        events=events,
        stack=list_stack(newest),
        text=newest.get("text") or None,
        debug_context=newest.get("debug_context"),
        history=list_history(reader, HISTORY_SQL, distinct_id),
        models=list_affected_models(reader, BREAKS_SQL, distinct_id),
    )


def build_break_runs(
    reader: sqlite3.Connection, distinct_id: int, cursor: str | None, limit_count: int, clock: RecorderClock
) -> Page[AffectedRun] | None:
    """Build one page of the runs that have a distinct graph break; None where there is none.

    Raises: FilterError if the cursor cannot be used.
    """
    if get_distinct_break(reader, distinct_id) is None:
        return None
    return list_affected(
        reader, RUNS_SQL, distinct_id, cursor=cursor, limit=limit_count, alive_since_us=clock.alive_since_us
    )
