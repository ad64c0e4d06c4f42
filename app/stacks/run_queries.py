"""The tree of the stacks from which a run's compiles started."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, NamedTuple

from compileboard.app.compiles.run_queries import OUTCOME_SQL
from compileboard.collectors.store.runs import load_process_names

MAX_NODES = 200_000
MAX_COMPILES = 100_000
MAX_LOOSE = 2_000
_AT_ONCE = 500


class StackNode(NamedTuple):
    id: int
    parent_id: int | None
    file: str
    line: int | None
    name: str


class StackCompile(NamedTuple):
    key: int
    stack_id: int | None
    compile_id: str
    outcome: str
    total_us: int
    rank: int | None
    function: str | None
    file: str | None
    process: str


NODES_SQL = """
select id, parent_id, file, line, name
from stack_nodes
where run_id = :run_id
order by id
limit :limit
"""
COMPILES_SQL = f"""
select
  c.id as key, c.stack_id, c.compile_id, {OUTCOME_SQL} as outcome, c.total_us,
  coalesce(c.rank, p.rank) as rank, f.name as function, f.file, c.process_id
from compiles as c
left join functions as f on f.id = c.function_id
left join processes as p on p.id = c.process_id
where c.run_id = :run_id
order by c.started_us, c.id
limit :limit
"""  # noqa: S608 - our own names


LOOSE_SQL = """
select stack_id, name, count(*) as record_count, min(id) as artifact_id
from artifacts
where run_id = :run_id
  and compile_key is null
  and stack_id is not null
group by stack_id, name
union all
select stack_id, kind || ' symbol', count(*), null
from symbols
where run_id = :run_id
  and compile_key is null
  and stack_id is not null
group by stack_id, kind
order by stack_id, name
limit :limit
"""


class RecordOutsideCompile(NamedTuple):
    stack_id: int
    name: str
    record_count: int
    artifact_id: int | None  # the first; symbols have none


def _list_rows(connection: sqlite3.Connection, sql: str, run_id: str, limit: int) -> list[Any]:
    reader = connection.cursor()
    reader.row_factory = None  # plain tuples: there may be 20,000
    return reader.execute(sql, {"run_id": run_id, "limit": limit}).fetchall()


def list_loose_records(connection: sqlite3.Connection, run_id: str) -> list[RecordOutsideCompile]:
    return [
        RecordOutsideCompile(*row) for row in _list_rows(connection, LOOSE_SQL, run_id, MAX_LOOSE)
    ]


def list_nodes(connection: sqlite3.Connection, run_id: str) -> list[StackNode]:
    """Return the frames of all stacks of a run, callers before callees."""
    return [StackNode(*row) for row in _list_rows(connection, NODES_SQL, run_id, MAX_NODES)]


def list_stack_compiles(connection: sqlite3.Connection, run_id: str) -> list[StackCompile]:
    rows = _list_rows(connection, COMPILES_SQL, run_id, MAX_COMPILES)
    names = load_process_names(connection, {row[-1] for row in rows})
    return [StackCompile._make((*row[:-1], names[row[-1]])) for row in rows]


def list_codes(connection: sqlite3.Connection, ids: Iterable[int]) -> dict[int, str]:
    node_ids, codes = sorted(set(ids)), {}
    for first in range(0, len(node_ids), _AT_ONCE):
        batch = {f"id{n}": number for n, number in enumerate(node_ids[first : first + _AT_ONCE])}
        marks = ", ".join(f":{name}" for name in batch)
        sql = (
            f"select id, code from stack_nodes where id in ({marks}) and code is not null "  # noqa: S608 - our own names
            f"order by id limit {_AT_ONCE}"
        )
        codes.update({row["id"]: row["code"] for row in connection.execute(sql, batch)})
    return codes
