"""Every row that a run has, table by table, a page at a time: a report of a large run needs no more memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from compileboard.app.analysis import rows
from compileboard.app.queries import compiles, run_breaks, run_detail, run_events, run_recompiles
from compileboard.app.queries.page import Page
from compileboard.app.reports.benched import BENCH_TABLES
from compileboard.app.reports.explored_tables import EXPLORED_TABLES
from compileboard.app.reports.source import clean_row
from compileboard.app.reports.table import Row, Table

PAGE = 200


def _list_all(read: Callable[..., Any], connection: sqlite3.Connection, run_id: str, **_page: Any) -> Page[Any]:
    return Page(tuple(read(connection, run_id, limit=100_000)), None)


def _list_changed(connection: sqlite3.Connection, run_id: str, **_page: Any) -> Page[Any]:
    found = run_detail.list_changed_configs(connection, run_id)
    return Page(tuple({"process_id": process_id, "changed": changed} for process_id, changed in found), None)


def _list_caches(connection: sqlite3.Connection, run_id: str, **_page: Any) -> Page[Any]:
    return Page(tuple(run_events.count_cache_results(connection, run_id)), None)


TABLES: tuple[Table, ...] = (
    Table("processes", partial(_list_all, run_detail.list_processes), rows.process_row),
    Table("changed_configuration", _list_changed, dict),
    Table("compiles", compiles.list_compiles, rows.compile_row),
    Table("compilations", compiles.list_compilations, rows.compilation_row),
    Table("distinct_graph_breaks", run_breaks.list_distinct_breaks, rows.distinct_break_row),
    Table("graph_breaks", run_breaks.list_graph_breaks, rows.graph_break_row),
    Table("recompile_causes", partial(_list_all, run_recompiles.list_causes), rows.cause_row),
    Table("recompiles", run_recompiles.list_recompiles, rows.recompile_row),
    Table("recompile_limit_hits", partial(_list_all, run_recompiles.list_limit_hits), rows.limit_hit_row),
    Table("failures", run_events.list_failures, rows.failure_row),
    Table("cache_lookups", run_events.list_cache_lookups, rows.cache_lookup_row),
    Table("caches", _list_caches, rows.plain_row),
    Table("cudagraph_skips", run_events.list_cudagraph_skips, rows.cudagraph_skip_row),
    *BENCH_TABLES,
    *EXPLORED_TABLES,
)
BY_NAME = {table.name: table for table in TABLES}


def read_rows(connection: sqlite3.Connection, run_id: str, table: Table, source: bool) -> Iterator[Row]:
    """Yield every row of a table; each page is read whole, so that no reader's lock is held while a client is slow."""
    cursor: str | None = None
    while True:
        page = table.list(connection, run_id, cursor=cursor, limit=PAGE)
        for found in page.rows:
            row = table.to_row(found)
            yield row if source else clean_row(row)
        cursor = page.next
        if cursor is None:
            return
