"""Lists of a run that can be long, a page at a time: processes, causes, limit hits, records without a decoder."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from compileboard.app.queries.events import load_body
from compileboard.app.queries.page import Page, decode_cursor, make_page
from compileboard.app.queries.recorded import recorded_us
from compileboard.app.queries.run_detail import ProcessRow, to_process
from compileboard.app.queries.run_recompiles import LimitHit, RunCause

PROCESSES_SQL = """
select
  id, parent_id, pid, rank, local_rank, world_size, level, command, started_us, last_seen_us, python_version,
  torch_version, torch_git, cuda_version, cudnn_version, triton_version, capabilities, environment, counters,
  compile_times, losses, snapshot_final, task, calm_us, calm_cpu_us, calm_fault_count, is_on_stack_cliff
from processes
where run_id = :run_id
  and (started_us, id) > (:after_us, :after_id)
order by started_us, id
limit :limit
"""
CAUSES_SQL = f"""
select
  r.cause_id, u.category, u.source, u.reason, u.suggestion, f.name as function, f.file, r.guard_failure_count,
  r.recompile_count, {recorded_us("r.compile_us", "r.recompile_count")} as compile_us
from run_causes as r
join recompile_causes as u on u.id = r.cause_id
left join functions as f on f.id = u.function_id
where r.run_id = :run_id
  and (r.compile_us, r.cause_id) < (:after_us, :after_id)
order by r.compile_us desc, r.cause_id desc
limit :limit
"""  # noqa: S608  own texts only
LIMITS_SQL = """
select
  c.id as compile_key, c.compile_id, c.process_id, coalesce(c.rank, p.rank) as rank, f.name as function, f.file, c.line,
  c.recompile_category, c.recompiled_from, c.started_us,
  (select k.fail_reason
   from compilations as k
   where k.compile_key = c.id
     and k.fail_reason is not null
   order by k.id
   limit 1) as fail_reason
from compiles as c
left join functions as f on f.id = c.function_id
left join processes as p on p.id = c.process_id
where c.run_id = :run_id
  and c.outcome = 'recompile_limit'
  and (c.started_us, c.id) > (:after_us, :after_id)
order by c.started_us, c.id
limit :limit
"""
NOTES_SQL = """
select rowid as id, process_id, time_us, body
from events
where run_id = :run_id
  and kind = 'noted'
  and rowid > :after_id
order by rowid
limit :limit
"""


@dataclass(frozen=True)
class NoteRow:
    """Hold one record that has no decoder, under torch's own name."""

    id: int
    process_id: str
    time_us: int
    compile_id: str | None
    name: str
    body: Any


def list_processes(
    connection: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 50
) -> Page[ProcessRow]:
    """List a run's processes by start.

    Raises: FilterError if the cursor cannot be used.
    """
    after = decode_cursor(cursor, int, str) or (-(2**62), "")
    values = {"run_id": run_id, "after_us": after[0], "after_id": after[1], "limit": limit + 1}
    rows = [to_process(row) for row in connection.execute(PROCESSES_SQL, values)]
    return make_page(rows, limit, lambda row: (row.started_us, row.id))


def list_causes(
    connection: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 50
) -> Page[RunCause]:
    """List what failed in a run's recompiles, the most compile time first; older cache entries' causes as well.

    Raises: FilterError if the cursor cannot be used.
    """
    after = decode_cursor(cursor, int, int) or (2**62, 2**62)
    values = {"run_id": run_id, "after_us": after[0], "after_id": after[1], "limit": limit + 1}
    rows = [RunCause(**dict(row)) for row in connection.execute(CAUSES_SQL, values)]
    return make_page(rows, limit, lambda row: (row.compile_us or 0, row.cause_id))


def list_limit_hits(
    connection: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 50
) -> Page[LimitHit]:
    """List the compiles that hit the recompile limit, by start.

    Raises: FilterError if the cursor cannot be used.
    """
    after = decode_cursor(cursor, int, int) or (-(2**62), 0)
    values = {"run_id": run_id, "after_us": after[0], "after_id": after[1], "limit": limit + 1}
    rows = [LimitHit(**dict(row)) for row in connection.execute(LIMITS_SQL, values)]
    return make_page(rows, limit, lambda row: (row.started_us, row.compile_key))


def list_notes(
    connection: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 50
) -> Page[NoteRow]:
    """List a run's records that have no decoder, as they were recorded.

    Raises: FilterError if the cursor cannot be used.
    """
    after = decode_cursor(cursor, int) or (0,)
    found = connection.execute(NOTES_SQL, {"run_id": run_id, "after_id": after[0], "limit": limit + 1})
    rows = [_to_note(row) for row in found]
    return make_page(rows, limit, lambda row: (row.id,))


def _to_note(row: sqlite3.Row) -> NoteRow:
    body = load_body(row["body"])
    name = str(body.get("name") or "not readable")
    return NoteRow(row["id"], row["process_id"], row["time_us"], body.get("compile_id"), name, body.get("body"))
