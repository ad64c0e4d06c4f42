"""The trace logs that a run was imported from, and what of them could not be read."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

MOST_LOGS = 1000
MOST_ROWS = 20_000  # a row a log and kind


@dataclass(frozen=True)
class Log:
    """Name one log that was read."""

    name: str
    size_bytes: int | None
    line_count: int
    payloads: str  # kept | left_out
    redacted: bool


@dataclass(frozen=True)
class RejectSum:
    """Count one kind of what could not be read, over all logs of a run."""

    kind: str
    count: int
    log_count: int
    log_name: str  # the first log that has it, by name, and where in it
    first_line: int | None
    example: str | None


def list_logs(reader: sqlite3.Connection, run_id: str, limit: int = MOST_LOGS) -> list[Log]:
    """List the logs of a run by name."""
    rows = reader.execute(
        """
        select name, size_bytes, line_count, payloads, redacted
        from logs
        where run_id = :run_id
        order by name, process_id
        limit :most
        """,
        {"run_id": run_id, "most": limit},
    )
    return [
        Log(row["name"], row["size_bytes"], row["line_count"], row["payloads"], bool(row["redacted"])) for row in rows
    ]


def sum_rejects(reader: sqlite3.Connection, run_id: str) -> list[RejectSum]:
    """Sum what could not be read of a run's logs and spool by kind, the most first."""
    rows = reader.execute(
        """
        select r.kind, r.reject_count, r.first_line, r.example, l.name
        from logs as l
        join log_rejects as r on r.process_id = l.process_id
        where l.run_id = :run_id
        union all
        select kind, reject_count, first_line, example, file_name as name
        from run_rejects
        where run_id = :run_id
        order by name, kind, first_line
        limit :most
        """,
        {"run_id": run_id, "most": MOST_ROWS},
    )
    by_kind: dict[str, list[sqlite3.Row]] = {}
    for row in rows:
        by_kind.setdefault(row["kind"], []).append(row)
    sums = [
        RejectSum(
            kind=kind,
            count=sum(row["reject_count"] for row in found),
            log_count=len(found),
            log_name=found[0]["name"],
            first_line=found[0]["first_line"],
            example=found[0]["example"],
        )
        for kind, found in by_kind.items()
    ]
    return sorted(sums, key=lambda it: (-it.count, it.kind))


def count_rejects(reader: sqlite3.Connection, run_id: str) -> int:
    """Count all that could not be read of a run's logs and spool."""
    row = reader.execute(
        """
        select coalesce(sum(reject_count), 0) as reject_count
        from (
          select r.reject_count
          from logs as l
          join log_rejects as r on r.process_id = l.process_id
          where l.run_id = :run_id
          union all
          select reject_count
          from run_rejects
          where run_id = :run_id
        )
        """,
        {"run_id": run_id},
    ).fetchone()
    return int(row["reject_count"])
