"""Causes of recompiles across runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NoReturn

from compileboard.app.api.answers import PageQuery, operation, read_number, refuse
from compileboard.app.api.fleet.graph_breaks import History, Trends, list_distinct, list_kinds
from compileboard.app.db import get_clock, get_reader
from compileboard.app.queries.fields import SORT_HELP
from compileboard.app.queries.fleet import recompiles
from compileboard.app.queries.fleet.graph_breaks import AffectedRun
from compileboard.app.queries.fleet.recompiles import (
    CauseEvent,
    CauseFilter,
    CauseSummary,
    RecompileCause,
    ValueChange,
)
from compileboard.app.queries.page import Page
from compileboard.app.queries.parameters import order_by
from compileboard.app.screens.fleet.recompiles import (
    build_cause_list,
    build_cause_runs,
    build_recompile_cause,
    build_recompile_trends,
)


@dataclass(frozen=True)
class CauseSort:
    """The order of a list of causes of recompiles."""

    sort: Annotated[str, order_by(recompiles.ORDERS), SORT_HELP] = "recompiles"


@dataclass(frozen=True)
class CauseDetail(RecompileCause):
    """One cause of recompiles over all runs."""

    values: Annotated[list[ValueChange], "The 12 most frequent pairs among the newest thousand failures."]
    events: Annotated[list[CauseEvent], "The newest 20."]
    history: History


@dataclass(frozen=True)
class CauseTrends(Trends):
    """Causes of recompiles over runs."""

    summary: Annotated[CauseSummary, "Sums."]


@operation("/recompiles")
def list_recompiles(wanted: CauseFilter, order: CauseSort, page: PageQuery) -> Page[RecompileCause]:
    """List causes of recompiles across runs, the most recompiles first."""
    listed = build_cause_list(get_reader(), wanted, order.sort, page.cursor, page.limit)
    return Page(tuple(listed.causes), listed.next_cursor)


@operation("/recompiles/trends")
def get_recompile_trends(wanted: CauseFilter) -> CauseTrends:
    """Return causes of recompiles summed, and how they went from run to run."""
    trends = build_recompile_trends(get_reader(), wanted)
    return CauseTrends(list(trends.slots), list_kinds(trends.grid), list_distinct(trends.grid), trends.summary)


@operation("/recompiles/<cause_id>")
def get_recompile(cause_id: str) -> CauseDetail:
    """Return one cause of recompiles with the values that came, its newest guard failures and its history."""
    number = read_number(cause_id)
    screen = build_recompile_cause(get_reader(), number) if number is not None else None
    if screen is None:
        _refuse(cause_id)
    return CauseDetail(
        **vars(screen.cause),
        values=list(screen.values),
        events=list(screen.events),
        history=list(screen.history),
    )


@operation("/recompiles/<cause_id>/runs")
def list_recompile_runs(cause_id: str, page: PageQuery) -> Page[AffectedRun]:
    """List the runs that have one cause of recompiles, newest first."""
    number = read_number(cause_id)
    runs = build_cause_runs(get_reader(), number, page.cursor, page.limit, get_clock()) if number is not None else None
    return runs or _refuse(cause_id)


def _refuse(cause_id: str) -> NoReturn:
    refuse(f"There is no cause of recompiles {cause_id[:40]}; its runs may have been deleted.")
