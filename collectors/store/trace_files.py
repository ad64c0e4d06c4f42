"""Keep torch's own trace logs of a run, so that they travel with the database and any log reader can have them back."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collectors.store.connect import write_transaction

PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class TraceFile:
    """Name a kept trace log."""

    name: str
    size_bytes: int


def keep_trace_file(connection: sqlite3.Connection, run_id: str, path: Path) -> None:
    """Store a trace log whole, replacing a shorter copy of it."""
    size_bytes = path.stat().st_size
    key = {"run_id": run_id, "name": path.name, "size_bytes": size_bytes}
    known = connection.execute(
        "select size_bytes from trace_files where run_id = :run_id and name = :name", key
    ).fetchone()
    if known is not None and known["size_bytes"] >= size_bytes:
        return
    with write_transaction(connection), path.open("rb") as file:
        if connection.execute("select 1 from runs where id = :run_id", key).fetchone() is None:
            return  # a deleted run
        connection.execute("delete from trace_files where run_id = :run_id and name = :name", key)
        connection.execute(
            "insert into trace_files (run_id, name, size_bytes) values (:run_id, :name, :size_bytes)", key
        )
        position = 0
        while piece := file.read(PIECE_BYTES):
            connection.execute(
                "insert into trace_pieces (run_id, name, position, body) values (:run_id, :name, :position, :body)",
                {**key, "position": position, "body": zlib.compress(piece, 6)},
            )
            position += 1


def list_trace_files(connection: sqlite3.Connection, run_id: str) -> list[TraceFile]:
    """List the trace logs kept of a run."""
    rows = connection.execute(
        "select name, size_bytes from trace_files where run_id = :run_id order by name limit 1000", {"run_id": run_id}
    )
    return [TraceFile(row["name"], row["size_bytes"]) for row in rows]


def read_trace_file(connection: sqlite3.Connection, run_id: str, name: str) -> Iterator[bytes]:
    """Yield a kept trace log piece by piece."""
    rows = connection.execute(
        "select body from trace_pieces where run_id = :run_id and name = :name order by position",
        {"run_id": run_id, "name": name},
    )
    for row in rows:
        yield zlib.decompress(row["body"])
