"""Causes of recompiles across runs."""

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
from compileboard.app.queries.fields import SORT_HELP
from compileboard.app.queries.fleet.reasons import AffectedRun, list_reasons
from compileboard.app.queries.fleet.recompiles import (
    RECOMPILES,
    CauseEvent,
    CauseFilter,
    CauseSummary,
    RecompileCause,
)
from compileboard.app.queries.page import Page, read_content_id
from compileboard.app.queries.parameters import order_by
from compileboard.app.queries.reason_events import ValueChange
from compileboard.app.screens.fleet.reasons import build_recompile_cause


@dataclass(frozen=True)
class CauseSort:
    sort: Annotated[str, order_by(RECOMPILES.orders), SORT_HELP] = RECOMPILES.default_order


@dataclass(frozen=True)
class CauseDetail(RecompileCause):
    """One recompile cause over all runs."""

    values: Annotated[
        list[ValueChange], "The 12 most frequent pairs among the newest thousand failures."
    ]
    events: Annotated[list[CauseEvent], "The newest 20."]
    history: History


@dataclass(frozen=True)
class CauseTrends(Trends):
    """Recompile causes over runs."""

    summary: Annotated[CauseSummary, "Sums."]


@operation("/recompiles")
def list_recompiles(
    selection: CauseFilter, order: CauseSort, page: PageQuery
) -> Page[RecompileCause]:
    """List causes of recompiles across runs, the most recompiles first."""
    return list_reasons(
        get_engine(), RECOMPILES, selection, sort=order.sort, cursor=page.cursor, limit=page.limit
    )


@operation("/recompiles/trends")
def get_recompile_trends(selection: CauseFilter) -> CauseTrends:
    """Return the totals of recompile causes, and their trend over runs."""
    return CauseTrends(**read_trends(RECOMPILES, selection))


@operation("/recompiles/<cause_id>")
def get_recompile(cause_id: str) -> CauseDetail:
    """Return one recompile cause with its values, its newest guard failures and its history."""
    screen = build_recompile_cause(get_store(), read_content_id(cause_id))
    return CauseDetail(**list_fields(screen or refuse_reason(RECOMPILES, cause_id)))


@operation("/recompiles/<cause_id>/runs")
def list_recompile_runs(cause_id: str, page: PageQuery) -> Page[AffectedRun]:
    """List the runs that have one cause of recompiles, newest first."""
    return list_runs(RECOMPILES, cause_id, page)
