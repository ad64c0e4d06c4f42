"""The code locations of an incident's candidate causes: breaks, recompile causes, failed
compiles.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from compileboard.collectors.contract.fingerprints import format_id, parse_id

BREAKS_SQL = """
select
  b.id, f.file, f.name as function, b.line, b.source_line, coalesce(b.gb_type, b.reason) as reason,
  (select e.line from graph_breaks as e where e.distinct_id = b.id
    and e.run_id = :run_id limit 1) as run_line
from json_each(:ids) as wanted
join distinct_breaks as b on b.id = wanted.value
left join functions as f on f.id = b.function_id
"""
CAUSES_SQL = """
select
  c.id, f.file, f.name as function, c.reason, c.source,
  (select r.line from guard_failures as g join recompiles as r on r.id = g.recompile_id
    where g.cause_id = c.id order by r.time_us desc limit 1) as line
from json_each(:ids) as wanted
join recompile_causes as c on c.id = wanted.value
left join functions as f on f.id = c.function_id
"""
FAILURE_SQL = """
select x.status, x.reason, x.accuracy, x.message
from results as x
join series as s on s.id = x.series_id
where x.run_id = :run_id
  and s.suite = :suite
  and s.model = :model
  and (x.status = 'failed' or x.accuracy is not null)
order by x.status <> 'failed', x.id
limit 1
"""
COMPILE_FAILURE_SQL = """
select exists (
  select 1
  from failures as f
  where f.run_id = :run_id
    and f.error_type = :error_type
    and f.phase = 'compile'
)
"""
FILES_SQL = """
select distinct f.file
from run_functions as o
join functions as f on f.id = o.function_id
where o.run_id = :run_id
limit 10000
"""


@dataclass(frozen=True)
class CodeLocation:
    file: str | None
    function: str | None
    line: int | None
    source_line: str | None
    run_line: int | None
    reason: str
    source: str | None = None


@dataclass(frozen=True)
class FailedResult:
    status: str
    reason: str | None
    accuracy: str | None
    message: str | None


def list_break_locations(
    connection: sqlite3.Connection, ids: Iterable[str], run_id: str
) -> dict[str, CodeLocation]:
    values = {"ids": json.dumps([parse_id(id_) for id_ in ids]), "run_id": run_id}
    return {
        format_id(row["id"]): CodeLocation(
            row["file"],
            row["function"],
            row["line"],
            row["source_line"],
            row["run_line"],
            row["reason"],
        )
        for row in connection.execute(BREAKS_SQL, values)
    }


def list_cause_locations(
    connection: sqlite3.Connection, ids: Iterable[str]
) -> dict[str, CodeLocation]:
    values = {"ids": json.dumps([parse_id(id_) for id_ in ids])}
    return {
        format_id(row["id"]): CodeLocation(
            row["file"],
            row["function"],
            row["line"],
            None,
            row["line"],
            row["reason"],
            row["source"],
        )
        for row in connection.execute(CAUSES_SQL, values)
    }


def get_failed_result(
    connection: sqlite3.Connection, run_id: str, suite: str, model: str
) -> FailedResult | None:
    row = connection.execute(
        FAILURE_SQL, {"run_id": run_id, "suite": suite, "model": model}
    ).fetchone()
    return FailedResult(*row) if row else None


def is_compile_failure(connection: sqlite3.Connection, run_id: str, error_type: str) -> bool:
    values = {"run_id": run_id, "error_type": error_type}
    return bool(connection.execute(COMPILE_FAILURE_SQL, values).fetchone()[0])


def list_run_files(connection: sqlite3.Connection, run_id: str) -> list[str]:
    return [row["file"] for row in connection.execute(FILES_SQL, {"run_id": run_id})]
