"""A run's trace logs: imported files, unreadable lines, and a compile's events."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from compileboard.app.core.fields import BREAK_KIND, Count
from compileboard.app.core.rows import list_rows
from compileboard.app.core.schema import PRIVATE, one_of
from compileboard.collectors.contract.rejects import KINDS
from compileboard.collectors.store.reading import read_body

MAX_LOGS = 1000
MAX_ROWS = 20_000  # one row per log and reason


@dataclass(frozen=True)
class Log:
    """An imported trace log."""

    tables = ("logs",)

    name: str
    size_bytes: int | None
    line_count: int
    payloads: str
    redacted: bool


@dataclass(frozen=True)
class RejectedLines:
    """Number of unreadable lines in a run's logs, for one reason."""

    kind: Annotated[str, one_of(KINDS), "Why the lines could not be read."]
    count: Annotated[Count, "Lines that could not be read for this reason."]
    log_count: int = field(metadata=PRIVATE)
    log_name: str = field(
        metadata=PRIVATE
    )  # the first log that has it, by name, and the position there
    first_line: Annotated[
        int | None, "The line it happened at first, in the first of the logs that have it."
    ]
    example: str | None = field(metadata=PRIVATE)


LOGS_SQL = """
select name, size_bytes, line_count, payloads, redacted
from logs
where run_id = :run_id
order by name, process_id
limit :limit
"""


def sum_rejects(reader: sqlite3.Connection, run_id: str) -> list[RejectedLines]:
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
        {"run_id": run_id, "most": MAX_ROWS},
    )
    by_kind: dict[str, list[sqlite3.Row]] = {}
    for row in rows:
        by_kind.setdefault(row["kind"], []).append(row)
    sums = [
        RejectedLines(
            kind=kind,
            count=sum(row["reject_count"] for row in rejects),
            log_count=len(rejects),
            log_name=rejects[0]["name"],
            first_line=rejects[0]["first_line"],
            example=rejects[0]["example"],
        )
        for kind, rejects in by_kind.items()
    ]
    return sorted(sums, key=lambda reject_sum: (-reject_sum.count, reject_sum.kind))


def count_rejects(reader: sqlite3.Connection, run_id: str) -> int:
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


MAX_FILES = 1000


@dataclass(frozen=True)
class TraceFile:
    """A trace log that torch wrote and that is stored with the run."""

    name: Annotated[str, "Name of the file."]
    size_bytes: Annotated[Count, "Size of the file."]


def list_trace_files(reader: sqlite3.Connection, run_id: str) -> list[TraceFile]:
    sql = """
        select name, size_bytes
        from trace_files
        where run_id = :run_id
        order by name
        limit :most
        """
    return list_rows(TraceFile, sql, reader, run_id, most=MAX_FILES)


def get_trace_file(reader: sqlite3.Connection, run_id: str, name: str) -> TraceFile | None:
    return next((file for file in list_trace_files(reader, run_id) if file.name == name), None)


def read_trace_file(reader: sqlite3.Connection, run_id: str, name: str) -> Iterator[bytes]:
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


MAX_STEPS = 5_000  # on one page of a compile

_KEYS = "in (select value from json_each(:keys))"
_DESCRIPTIONS = "('describe_source', 'describe_storage', 'describe_tensor')"
STEPS_SQL = f"""
select
  a.compile_key, a.process_id, a.sequence, 'artifact' as kind, a.id as ref_id, a.attempt, a.name,
  a.title as detail,
  a.state, a.size_bytes as number
from artifacts as a
where a.compile_key {_KEYS}
  and a.name not in {_DESCRIPTIONS}
union all
select
  a.compile_key, a.process_id, min(a.sequence), 'descriptions', min(a.id), a.attempt,
  'describe_tensor', null, null,
  count(*)
from artifacts as a
where a.compile_key {_KEYS}
  and a.name in {_DESCRIPTIONS}
group by a.compile_key, a.process_id, a.attempt
union all
select
  b.compile_key, b.process_id, b.sequence, 'graph_break', b.id, null, {BREAK_KIND}, d.gb_id,
  b.outcome,
  b.line
from graph_breaks as b
join distinct_breaks as d on d.id = b.distinct_id
where b.compile_key {_KEYS}
union all
select r.compile_key, r.process_id, r.sequence, 'recompile', r.id, null, 'recompile',
r.recompiled_from, null, null
from recompiles as r
where r.compile_key {_KEYS}
union all
select
  f.compile_key, f.process_id, f.sequence, 'failure', f.id, null,
  coalesce(f.error_type, 'exception'), null, null, null
from failures as f
where f.compile_key {_KEYS}
union all
select l.compile_key, l.process_id, l.sequence, 'lookup', l.id, null, l.cache, l.reason, l.result,
l.time_saved_us
from cache_lookups as l
where l.compile_key {_KEYS}
union all
select s.compile_key, s.process_id, s.sequence, 'skip', s.id, null, 'cudagraph skipped', s.reason,
null, null
from cudagraph_skips as s
where s.compile_key {_KEYS}
union all
select k.compile_key, k.process_id, k.sequence, 'record', k.id, null, k.kind, null, k.outcome,
k.duration_us
from compilations as k
where k.compile_key {_KEYS}
union all
select y.compile_key, y.process_id, min(y.sequence), 'symbols', min(y.id), null, 'symbolic shapes',
null, null, count(*)
from symbols as y
where y.compile_key {_KEYS}
group by y.compile_key, y.process_id
order by 1, 2, 3, 4
limit :limit
"""  # noqa: S608  own texts only


STRETCH_SQL = """
select min(begin_us) as from_us, max(begin_us + coalesce(duration_us, 0)) as to_us
from spans
where compile_key = :key
"""


@dataclass(frozen=True)
class CompileEvent:
    """One event in a compile's log.

    `kind` is artifact, descriptions, graph_break, recompile, failure, lookup, skip, record or
    symbols; `ref_id` is the id of its row. `number` is an artifact's bytes, a break's line, a
    lookup's saved time, a record's duration, or the number of rows that descriptions and symbols
    represent.
    """

    compile_key: int
    process_id: str
    sequence: int
    kind: str
    ref_id: int
    attempt: int | None
    name: str
    detail: str | None
    state: str | None
    number: int | None


def list_steps(
    connection: sqlite3.Connection, keys: Sequence[int], limit: int = MAX_STEPS
) -> list[CompileEvent]:
    if not keys:
        return []
    return list_rows(CompileEvent, STEPS_SQL, connection, keys=json.dumps(list(keys)), limit=limit)


def get_stretch(reader: sqlite3.Connection, key: int) -> tuple[int, int] | None:
    """Return the start of the first and the end of the last timed phase of a compile, in
    microseconds since the epoch; None if none was timed.
    """
    row = reader.execute(STRETCH_SQL, {"key": key}).fetchone()
    return None if row["from_us"] is None else (row["from_us"], row["to_us"])


# How far before a compile's first record its start may be; the start is the event right before it.
_MAX_STEPS = 5000
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
    name: str
    compile_id: str | None
    time_us: int
    body: Any


def get_event(connection: sqlite3.Connection, process_id: str, sequence: int) -> dict[str, Any]:
    row = connection.execute(
        "select body from events where process_id = :process_id and sequence = :sequence",
        {"process_id": process_id, "sequence": sequence},
    ).fetchone()
    return read_body(row["body"] if row else None)


def find_start(
    connection: sqlite3.Connection,
    process_id: str,
    compile_id: str,
    started_us: int,
    before: int | None,
) -> dict[str, Any]:
    values = {
        "process_id": process_id,
        "sequence": 2**62 if before is None else before,
        "limit": _MAX_STEPS,
    }
    for row in connection.execute(BEFORE_SQL, values):
        if row["time_us"] < started_us - 1_000_000:
            break
        if row["body"] is not None:
            body = read_body(row["body"])
            if body.get("compile_id") == compile_id:
                return body
    return {}


def list_notes(connection: sqlite3.Connection, run_id: str, limit: int = 100) -> list[Note]:
    notes = []
    for row in connection.execute(NOTES_SQL, {"run_id": run_id, "limit": limit}):
        body = read_body(row["body"])
        notes.append(
            Note(str(body.get("name")), body.get("compile_id"), row["time_us"], body.get("body"))
        )
    return notes


def list_stack(body: dict[str, Any]) -> list[dict[str, Any]]:
    stack = body.get("stack")
    return [frame for frame in stack if isinstance(frame, dict)] if isinstance(stack, list) else []
