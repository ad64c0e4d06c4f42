"""A run's benchmark results, one row per model, and the events of a benchmark task."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from functools import partial
from typing import Any

from compileboard.app.core.fields import BREAK_KIND, CAUSE_COLUMNS, BreakId, CauseId
from compileboard.app.core.rows import list_rows
from compileboard.app.runs.rows import MAX_RESULTS, RESULTS_SQL
from compileboard.collectors.contract.events import BenchMeasured, GraphBroke
from compileboard.collectors.store.reading import read_event, read_json, read_text
from compileboard.collectors.store.results import (
    ExperimentResult,
    ResultRow,
    merge_results,
    read_measured,
)

PARTS_SQL = """
select facts, traceback
from results
where id = :result_id
limit 1
"""
VALUES_SQL = """
select name, value
from result_values
where result_id = :result_id
order by name
limit 10000
"""
REPEATS_SQL = """
select name, body
from result_repeats
where result_id = :result_id
order by name
limit 1000
"""
EVENTS_SQL = """
select body
from events
where run_id = :run_id
  and kind = 'bench_measured'
order by process_id, sequence
limit :limit
"""


@dataclass(frozen=True)
class ResultParts:
    """The measured values, repeats, facts and traceback stored for one result.

    Repeats are in milliseconds, in the order of measurement; each value has the unit of its
    upstream column.
    """

    values: dict[str, float]
    repeats: dict[str, list[float]]
    facts: dict[str, Any]
    traceback: str | None


def list_measured(connection: sqlite3.Connection, run_id: str) -> list[ExperimentResult]:
    values = {"run_id": run_id, "limit": MAX_RESULTS}
    return list(read_measured(connection.execute(RESULTS_SQL, values)))


def list_results(connection: sqlite3.Connection, run_id: str) -> list[ResultRow]:
    return merge_results(list_measured(connection, run_id))


def get_result_parts(connection: sqlite3.Connection, result_id: int) -> ResultParts | None:
    row = connection.execute(PARTS_SQL, {"result_id": result_id}).fetchone()
    if row is None:
        return None
    values = connection.execute(VALUES_SQL, {"result_id": result_id})
    repeats = connection.execute(REPEATS_SQL, {"result_id": result_id})
    return ResultParts(
        values={other_row["name"]: other_row["value"] for other_row in values},
        repeats={
            repeat["name"]: read_json(list[float], repeat["body"]) or [] for repeat in repeats
        },
        facts=read_json(dict[str, Any], row["facts"]) or {},
        traceback=read_text(row["traceback"]),
    )


def load_measured(connection: sqlite3.Connection, run_id: str) -> list[BenchMeasured]:
    rows = connection.execute(EVENTS_SQL, {"run_id": run_id, "limit": MAX_RESULTS})
    events = [read_event(row["body"]) for row in rows]
    return [event for event in events if isinstance(event, BenchMeasured)]


class TaskFields:
    @staticmethod
    def read_columns(columns: dict[str, Any]) -> dict[str, Any]:
        return columns | {"tasks": tuple(sorted(json.loads(columns["tasks"])))}


@dataclass(frozen=True)
class TaskBreak(TaskFields):
    distinct_id: BreakId
    gb_id: str | None
    kind: str
    function: str | None
    file: str | None
    line: int | None
    source_line: str | None
    break_count: int
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class TaskCause(TaskFields):
    cause_id: CauseId
    category: str
    source: str | None
    reason: str
    function: str | None
    file: str | None
    recompile_count: int
    tasks: tuple[str, ...]


_TASKS = """
from json_each(:tasks) as wanted
join processes as p on p.run_id = :run_id and p.task = wanted.value
"""
TASK_BREAKS_SQL = f"""
select
  d.id as distinct_id, d.gb_id, {BREAK_KIND} as kind, f.name as function, f.file,
  max(g.line) as line, d.source_line, count(*) as break_count,
  json_group_array(distinct p.task) as tasks
{_TASKS}
join graph_breaks as g on g.process_id = p.id
join distinct_breaks as d on d.id = g.distinct_id
left join functions as f on f.id = d.function_id
group by d.id
order by break_count desc, d.id
limit 50
"""
TASK_CAUSES_SQL = f"""
select
  u.id as cause_id, {CAUSE_COLUMNS}, f.name as function, f.file,
  count(*) as recompile_count, json_group_array(distinct p.task) as tasks
{_TASKS}
join recompiles as r on r.process_id = p.id
join recompile_causes as u on u.id = r.cause_id
left join functions as f on f.id = u.function_id
group by u.id
order by recompile_count desc, u.id
limit 50
"""


list_task_breaks = partial(list_rows, TaskBreak, TASK_BREAKS_SQL)
list_task_causes = partial(list_rows, TaskCause, TASK_CAUSES_SQL)
TASK_EVENTS_SQL = """
select p.task, e.body
from processes as p
join events as e on e.process_id = p.id
where p.run_id = :run_id
  and p.task is not null
  and e.kind = 'graph_broke'
order by p.task, p.started_us, p.id, e.sequence
limit 1000000
"""


def load_task_breaks(connection: sqlite3.Connection, run_id: str) -> dict[str, list[GraphBroke]]:
    breaks_by_task: dict[str, list[GraphBroke]] = {}
    for row in connection.execute(TASK_EVENTS_SQL, {"run_id": run_id}):
        event = read_event(row["body"])
        if isinstance(event, GraphBroke):
            breaks_by_task.setdefault(row["task"], []).append(event)
    return breaks_by_task
