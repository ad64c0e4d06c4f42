"""What a check compares beside a run's results: distinct breaks and causes by task, and counts of instructions."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

BREAKS_SQL = """
select
  p.task, d.fingerprint, d.gb_id as kind, d.reason, f.name as function, f.file, max(b.line) as line, count(*) as count
from graph_breaks as b
join distinct_breaks as d on d.id = b.distinct_id
left join functions as f on f.id = d.function_id
left join processes as p on p.id = b.process_id
where b.run_id = :run_id
group by p.task, d.id
order by p.task, d.id
limit :limit
"""
CAUSES_SQL = """
select
  p.task, u.fingerprint, u.category as kind, u.reason, f.name as function, f.file, max(g.line) as line,
  count(*) as count
from recompiles as r
join guard_failures as g on g.recompile_id = r.id and g.position = 0
join recompile_causes as u on u.id = g.cause_id
left join functions as f on f.id = u.function_id
left join processes as p on p.id = r.process_id
where r.run_id = :run_id
group by p.task, u.id
order by p.task, u.id
limit :limit
"""
COUNTS_SQL = """
select v.result_id, v.name, v.value
from results as x
join result_values as v on v.result_id = x.id
where x.run_id = :run_id
  and (v.name like '%instruction_count' or v.name like '%noise_margin')
order by v.result_id, v.name
limit :limit
"""
# What a file of expected results says has names of its own, so that nobody takes it for a measurement.
EXPECTED_SQL = """
select x.id, v.name, v.value, json_extract(x.facts, '$.expected_accuracy') as accuracy
from results as x
left join result_values as v on v.result_id = x.id and v.name like 'expected\\_%' escape '\\'
where x.run_id = :run_id
  and x.experiment like 'expected\\_%' escape '\\'
order by x.id, v.name
limit :limit
"""
OBSERVED_SQL = """
select count(*)
from processes
where run_id = :run_id
  and torch_version is not null
"""
MOST = 100_000


@dataclass(frozen=True)
class TaskDistinct:
    """Hold one distinct break or cause of a run as often as one of its tasks had it."""

    task: str | None
    fingerprint: str
    kind: str | None
    reason: str
    function: str | None
    file: str | None
    line: int | None
    count: int


def list_task_breaks(connection: sqlite3.Connection, run_id: str, limit: int = MOST) -> list[TaskDistinct]:
    """List a run's distinct graph breaks by task."""
    return [TaskDistinct(**dict(row)) for row in connection.execute(BREAKS_SQL, {"run_id": run_id, "limit": limit})]


def list_task_causes(connection: sqlite3.Connection, run_id: str, limit: int = MOST) -> list[TaskDistinct]:
    """List by task what a run's recompiles were for: what failed on the newest cache entry."""
    return [TaskDistinct(**dict(row)) for row in connection.execute(CAUSES_SQL, {"run_id": run_id, "limit": limit})]


def list_instruction_counts(
    connection: sqlite3.Connection, run_id: str, limit: int = MOST
) -> dict[int, dict[str, float]]:
    """List a run's counts of instructions and their margins, by result."""
    found: dict[int, dict[str, float]] = {}
    for row in connection.execute(COUNTS_SQL, {"run_id": run_id, "limit": limit}):
        found.setdefault(row["result_id"], {})[row["name"]] = row["value"]
    return found


def list_expected(connection: sqlite3.Connection, run_id: str, limit: int = MOST) -> dict[int, dict[str, Any]]:
    """List by result what a run's files of expected results say, under upstream's column names."""
    found: dict[int, dict[str, Any]] = {}
    for row in connection.execute(EXPECTED_SQL, {"run_id": run_id, "limit": limit}):
        cells = found.setdefault(row["id"], {"accuracy": row["accuracy"]} if row["accuracy"] else {})
        if row["name"]:
            cells[row["name"].removeprefix("expected_")] = row["value"]
    return found


def count_observed(connection: sqlite3.Connection, run_id: str) -> int:
    """Count the run's processes in which torch was observed."""
    return int(connection.execute(OBSERVED_SQL, {"run_id": run_id}).fetchone()[0])
