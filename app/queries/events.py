"""Events as they came: what a page shows beyond the columns that are kept for filters and sums."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from compileboard.collectors.store.codec import unpack

# How far before a compile's first record its start is looked for; a start is the event right before it.
_MOST_STEPS = 5000
BEFORE_SQL = """
select kind, time_us, case when kind = 'compile_started' then body end as body
from events
where process_id = :process_id
  and sequence <= :sequence
order by sequence desc
limit :limit
"""
NOTES_SQL = """
select process_id, sequence, time_us, body
from events
where run_id = :run_id
  and kind = 'noted'
order by process_id, sequence
limit :limit
"""


@dataclass(frozen=True)
class Note:
    """Hold one record that has no decoder, under torch's own name."""

    name: str
    compile_id: str | None
    time_us: int
    body: Any


def load_body(blob: bytes | None) -> dict[str, Any]:
    """Read one stored event; empty where there is none or it cannot be read."""
    if blob is None:
        return {}
    try:
        body = json.loads(unpack(blob))
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def get_event(connection: sqlite3.Connection, process_id: str, sequence: int) -> dict[str, Any]:
    """Return one event's fields; empty if it is not there."""
    row = connection.execute(
        "select body from events where process_id = :process_id and sequence = :sequence",
        {"process_id": process_id, "sequence": sequence},
    ).fetchone()
    return load_body(row["body"] if row else None)


def find_start(
    connection: sqlite3.Connection, process_id: str, compile_id: str, started_us: int, before: int | None
) -> dict[str, Any]:
    """Find the event with which dynamo began a compile, walking back from an event of that compile."""
    values = {"process_id": process_id, "sequence": 2**62 if before is None else before, "limit": _MOST_STEPS}
    for row in connection.execute(BEFORE_SQL, values):
        if row["time_us"] < started_us - 1_000_000:
            break
        if row["body"] is not None:
            body = load_body(row["body"])
            if body.get("compile_id") == compile_id:
                return body
    return {}


def list_notes(connection: sqlite3.Connection, run_id: str, limit: int = 100) -> list[Note]:
    """List the run's records that have no decoder."""
    found = []
    for row in connection.execute(NOTES_SQL, {"run_id": run_id, "limit": limit}):
        body = load_body(row["body"])
        found.append(Note(str(body.get("name")), body.get("compile_id"), row["time_us"], body.get("body")))
    return found


def list_stack(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an event's stack, outermost frame first."""
    stack = body.get("stack")
    return [frame for frame in stack if isinstance(frame, dict)] if isinstance(stack, list) else []
