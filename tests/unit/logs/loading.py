"""Import logs into a fresh database, in the test's own process."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from compileboard.collectors.logs.discovery import find_sources
from compileboard.collectors.logs.log_loader import ImportSummary, LoadOptions, LogLoader
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.migrations import migrate_connection

CAPTURES = Path(__file__).parents[2] / "data" / "captures"
PROGRAMS = CAPTURES / "h200-torch2.11.tar.xz"
DDP = CAPTURES / "h200x2-ddp-torch2.11.tar.xz"


def load(database: Path, path: Path, *, process_count: int = 1, **options: Any) -> ImportSummary:
    """Import a path as the command does."""
    with closing(open_writer(database)) as connection:
        migrate_connection(connection)
        group = find_sources(str(path))
        loader = LogLoader(
            connection, str(database), group, LoadOptions(**options), process_count=process_count
        )
        done = loader.read()
        loader.finish()
        return done


def rows(database: Path, sql: str, **values: Any) -> list[sqlite3.Row]:
    """Ask a database."""
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        return connection.execute(sql, values).fetchall()


def query_value(database: Path, sql: str, **values: Any) -> Any:
    """Ask for one value."""
    return rows(database, sql, **values)[0][0]


TABLES = [
    "runs",
    "processes",
    "compiles",
    "compilations",
    "graph_breaks",
    "recompiles",
    "guard_failures",
]
TABLES += [
    "cache_lookups",
    "failures",
    "artifacts",
    "payloads",
    "spans",
    "symbols",
    "stack_nodes",
    "guard_sets",
]
TABLES += ["aot_graphs", "logs", "log_rejects"]


def counts(database: Path) -> dict[str, int]:
    """Count the rows of every table that an import fills; each reading of a log ends its run
    anew.
    """
    events = query_value(database, "select count(*) from events where kind <> 'run_ended'")
    return {"events": events} | {
        table: query_value(database, f"select count(*) from {table}") for table in TABLES
    }


def dump(database: Path, *hidden: str) -> dict[str, list[tuple[Any, ...]]]:
    """Read all that tables hold, but for when it was stored and in how many batches."""
    hidden = (*hidden, "read_us", "heartbeat_us", "applied_at", "pub")
    tables = [
        row[0] for row in rows(database, "select name from pragma_table_list where type = 'table'")
    ]
    content = {}
    for table in tables:
        columns = [
            row[0]
            for row in rows(database, "select name from pragma_table_info(:table)", table=table)
        ]
        shown = ", ".join(name for name in columns if name not in hidden)
        content[table] = [tuple(row) for row in rows(database, f"select {shown} from {table}")]
    return content
