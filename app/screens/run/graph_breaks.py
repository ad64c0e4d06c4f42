"""A run's graph breaks, as distinct breaks or as events."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.app.queries.page import Page
from compileboard.app.queries.run import graph_breaks
from compileboard.app.queries.run.graph_breaks import GraphBreakRow, RunDistinctBreak


@dataclass(frozen=True)
class RunGraphBreaksScreen:
    distinct_count: int
    distinct: Sequence[RunDistinctBreak] = ()
    events: Sequence[GraphBreakRow] = ()
    next: str | None = None


def build_distinct_breaks(
    reader: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 20
) -> RunGraphBreaksScreen:
    page = graph_breaks.list_distinct_breaks(reader, run_id, cursor, limit)
    return RunGraphBreaksScreen(
        graph_breaks.count_distinct_breaks(reader, run_id), distinct=page.rows, next=page.next
    )


def build_graph_breaks(
    reader: sqlite3.Connection,
    run_id: str,
    cursor: str | None = None,
    limit: int = 20,
    *,
    distinct_id: int | None = None,
) -> RunGraphBreaksScreen:
    page: Page[GraphBreakRow] = graph_breaks.list_graph_breaks(
        reader, run_id, cursor, limit, distinct_id=distinct_id
    )
    return RunGraphBreaksScreen(
        graph_breaks.count_distinct_breaks(reader, run_id), events=page.rows, next=page.next
    )
