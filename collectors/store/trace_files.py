"""Keep torch's own trace logs of a run, so that they travel with the database and any log reader can have them back."""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path

from compileboard.collectors.store.connect import write_transaction

PIECE_BYTES = 1 << 20


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
