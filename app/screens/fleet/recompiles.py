"""Recompiles across runs: their causes, the causes' trend, and one of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.app.queries.engine import SqliteEngine
from compileboard.app.queries.fleet.graph_breaks import AffectedRun, HistoryPoint, list_affected, list_history
from compileboard.app.queries.fleet.models import CAUSES_SQL, AffectedModel, list_affected_models
from compileboard.app.queries.fleet.recompiles import (
    HISTORY_SQL,
    RUNS_SQL,
    CauseEvent,
    CauseFilter,
    CauseSummary,
    RecompileCause,
    ValueChange,
    get_cause,
    get_cause_trends,
    list_cause_events,
    list_causes,
    list_value_changes,
)
from compileboard.app.queries.fleet.scope import Slot, TrendGrid, list_slots
from compileboard.app.queries.newest import RecorderClock
from compileboard.app.queries.page import Page

DEFAULT_ORDER = "recompiles"
EVENT_COUNT = 20
VALUE_COUNT = 12


@dataclass(frozen=True)
class RecompileCauseList:
    """One page of causes of recompiles."""

    causes: Sequence[RecompileCause]
    next_cursor: str | None
    order: str


@dataclass(frozen=True)
class RecompileTrends:
    """What causes of recompiles come to over runs, which are divided into slots."""

    summary: CauseSummary
    grid: TrendGrid
    slots: Sequence[Slot]

    @property
    def run_count(self) -> int:
        """Return how many runs were looked at, with recompiles or without."""
        return sum(slot.run_count for slot in self.slots)


@dataclass(frozen=True)
class RecompilesScreen:
    """The list of causes of recompiles above their trends."""

    listed: RecompileCauseList
    trends: RecompileTrends


@dataclass(frozen=True)
class RecompileCauseScreen:
    """One cause of recompiles: the values that came, its newest guard failures, its runs."""

    cause: RecompileCause
    values: Sequence[ValueChange]
    events: Sequence[CauseEvent]
    history: Sequence[HistoryPoint]
    models: Sequence[AffectedModel]


def build_cause_list(
    reader: sqlite3.Connection, selected: CauseFilter, order: str | None, cursor: str | None, limit_count: int
) -> RecompileCauseList:
    """Build one page of causes of recompiles.

    Raises: FilterError if the order or the cursor cannot be used.
    """
    order = order or DEFAULT_ORDER
    page = list_causes(reader, selected, sort=order, cursor=cursor, limit=limit_count)
    return RecompileCauseList(page.rows, page.next, order)


def build_recompile_trends(reader: sqlite3.Connection, selected: CauseFilter) -> RecompileTrends:
    """Build what causes of recompiles come to over runs."""
    slots = list_slots(SqliteEngine(reader), selected.runs)
    summary, grid = get_cause_trends(reader, selected, slots)
    return RecompileTrends(summary, grid, slots)


def build_recompiles(
    reader: sqlite3.Connection, selected: CauseFilter, order: str | None, cursor: str | None, limit_count: int
) -> RecompilesScreen:
    """Build the list of causes of recompiles with their trends.

    Raises: FilterError if the order or the cursor cannot be used.
    """
    listed = build_cause_list(reader, selected, order, cursor, limit_count)
    return RecompilesScreen(listed, build_recompile_trends(reader, selected))


def build_recompile_cause(reader: sqlite3.Connection, cause_id: int) -> RecompileCauseScreen | None:
    """Build the screen of one cause of recompiles; None where there is none."""
    cause = get_cause(reader, cause_id)
    if cause is None:
        return None
    return RecompileCauseScreen(
        cause=cause,
        values=list_value_changes(reader, cause_id, limit=VALUE_COUNT),
        events=list_cause_events(reader, cause_id, limit=EVENT_COUNT),
        history=list_history(reader, HISTORY_SQL, cause_id),
        models=list_affected_models(reader, CAUSES_SQL, cause_id),
    )


def build_cause_runs(
    reader: sqlite3.Connection, cause_id: int, cursor: str | None, limit_count: int, clock: RecorderClock
) -> Page[AffectedRun] | None:
    """Build one page of the runs that have a cause of recompiles; None where there is none.

    Raises: FilterError if the cursor cannot be used.
    """
    if get_cause(reader, cause_id) is None:
        return None
    return list_affected(
        reader, RUNS_SQL, cause_id, cursor=cursor, limit=limit_count, alive_since_us=clock.alive_since_us
    )
