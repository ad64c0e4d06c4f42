"""torch's own trace logs of runs recorded with --level full."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

MOST_FILES = 1000


@dataclass(frozen=True)
class TraceFile:
    """Name a kept trace log."""

    name: str
    size_bytes: int


def list_trace_files(reader: sqlite3.Connection, run_id: str) -> list[TraceFile]:
    """List the trace logs kept of a run."""
    rows = reader.execute(
        """
        select name, size_bytes
        from trace_files
        where run_id = :run_id
        order by name
        limit :most
        """,
        {"run_id": run_id, "most": MOST_FILES},
    )
    return [TraceFile(row["name"], row["size_bytes"]) for row in rows]


def get_trace_file(reader: sqlite3.Connection, run_id: str, name: str) -> TraceFile | None:
    """Return one kept trace log, None if there is none of that name."""
    return next((file for file in list_trace_files(reader, run_id) if file.name == name), None)


def read_trace_file(reader: sqlite3.Connection, run_id: str, name: str) -> Iterator[bytes]:
    """Yield a kept trace log piece by piece."""
    rows = reader.execute(
        """
        select body
        from trace_pieces
        where run_id = :run_id
          and name = :name
        order by position
        """,
        {"run_id": run_id, "name": name},
    )
    for row in rows:
        yield zlib.decompress(row["body"])
