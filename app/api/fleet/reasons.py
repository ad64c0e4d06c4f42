"""Shared parts of the endpoints for graph breaks and recompiles across runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

from compileboard.app.api.answers import PageQuery, refuse
from compileboard.app.db import get_clock, get_engine
from compileboard.app.queries.fields import ContentId
from compileboard.app.queries.fleet.reason_trends import KindTrend, TrendLine
from compileboard.app.queries.fleet.reasons import (
    AffectedRun,
    AnySubject,
    HistoryPoint,
    ReasonSubject,
    Selection,
    get_reason_trends,
)
from compileboard.app.queries.fleet.runs import Slot
from compileboard.app.queries.page import Page, read_content_id
from compileboard.app.screens.fleet.reasons import ReasonScreen, build_reason_runs

History = Annotated[list[HistoryPoint], "Occurrences in each of the newest 200 runs, oldest first."]


@dataclass(frozen=True)
class DistinctTrend:
    """The trend of one distinct graph break or recompile cause."""

    id: Annotated[ContentId, "Its `id`."]
    trend: TrendLine


@dataclass(frozen=True)
class Trends:
    slots: Annotated[list[Slot], "At most 48, oldest first."]
    kinds: Annotated[list[KindTrend], "The most frequent first."]
    distinct: Annotated[list[DistinctTrend], "By `id`."]


def read_trends(
    subject: ReasonSubject[Selection, Any, Any, Any], selected: Selection
) -> dict[str, Any]:
    trends = get_reason_trends(get_engine(), subject, selected)
    distinct = [
        DistinctTrend(reason_id, line) for reason_id, line in sorted(trends.grid.lines.items())
    ]
    return {
        "slots": trends.slots,
        "kinds": trends.grid.kinds,
        "distinct": distinct,
        "summary": trends.summary,
    }


def list_fields(screen: ReasonScreen[Any, Any]) -> dict[str, Any]:
    of_page = ("reason", "models", "newest_run", "cause")
    beside = {name: part for name, part in vars(screen).items() if name not in of_page}
    return {**vars(screen.reason), **beside}


def list_runs(subject: AnySubject, text: str, page: PageQuery) -> Page[AffectedRun]:
    runs = build_reason_runs(
        get_engine(), subject, read_content_id(text), page.cursor, page.limit, get_clock()
    )
    return runs or refuse_reason(subject, text)


def refuse_reason(subject: AnySubject, text: str) -> NoReturn:
    refuse(subject.describe_absence(text))
