"""Which big tables a statement reads from end to end, by SQLite's own plan."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping

from compileboard.app.core.engine import SqliteEngine

BIG = (
    frozenset(
        {
            "events",
            "compiles",
            "compilations",
            "graph_breaks",
            "recompiles",
            "guard_failures",
            "failures",
            "cache_lookups",
            "cudagraphs",
            "step_windows",
            "cudagraph_skips",
        }
    )
    | frozenset(
        {
            "artifacts",
            "guard_sets",
            "aot_graphs",
            "search_documents",
            "stack_nodes",
            "symbols",
            "spans",
        }
    )
    | frozenset({"results", "result_values", "result_repeats", "commits"})
)
_NAMED = re.compile(r"\b(?:from|join)\s+(\w+)(?:\s+as\s+(\w+))?", re.IGNORECASE)
_SCAN = re.compile(r"^SCAN (\w+)")


def list_scans(
    connection: sqlite3.Connection, sql: str, values: Mapping[str, object] = {}
) -> set[str]:
    """List the big tables that a statement scans; an index read from end to end is a scan as
    well.
    """
    tables: dict[str, set[str]] = {}
    for table, alias in _NAMED.findall(sql):
        tables.setdefault(alias or table, set()).add(table)
    steps = SqliteEngine(connection).rows(f"explain query plan {sql}", values)
    scanned = [match[1] for row in steps if (match := _SCAN.match(row["detail"]))]
    return {table for name in scanned for table in tables.get(name, {name}) if table in BIG}


def assert_no_scan(
    connection: sqlite3.Connection, sql: str, values: Mapping[str, object] = {}
) -> None:
    """Fail if a statement reads a big table from end to end."""
    assert list_scans(connection, sql, values) == set(), sql
