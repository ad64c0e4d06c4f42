"""What the writers of rows have in common."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from compileboard.collectors.store.ingest.artifacts import TraceRows
from compileboard.collectors.store.ingest.frames import FrameIndex
from compileboard.collectors.store.ingest.stacks import StackIndex
from compileboard.collectors.store.rollups.totals import BatchTotals


@dataclass(frozen=True)
class Batch:
    """Hand a writer what it works with: one run's events in one transaction."""

    connection: sqlite3.Connection
    run_id: str
    frames: FrameIndex
    stacks: StackIndex
    totals: BatchTotals
    traces: TraceRows


def find_function(connection: sqlite3.Connection, file: str | None, name: str | None) -> int | None:
    """Return the id of a function, making its row the first time; None if torch did not name it."""
    if not name:
        return None
    key = {"file": file or "", "name": name}
    row = connection.execute("select id from functions where file = :file and name = :name", key).fetchone()
    if row is None:
        row = connection.execute(
            "insert into functions (file, name) values (:file, :name) returning id", key
        ).fetchone()
    return int(row["id"])


def pick(event: object, *names: str) -> dict[str, Any]:
    """Return an event's fields by name, as bound values."""
    return {name: getattr(event, name) for name in names}
