"""Compiles of a run that is over whose end was not recorded, and the timed phases that were open in them."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from compileboard.app.queries.runs import RunRow

MOST = 20
_MOST_OPEN = 100


@dataclass(frozen=True)
class OpenSpan:
    """Hold a timed phase that began and has no end.

    `open_us` is until the run ended, or else until the last record of its thread; None where it is that record.
    """

    name: str
    begin_us: int
    depth: int
    open_us: int | None


@dataclass(frozen=True)
class Unfinished:
    """Hold one compile without an end; `is_last` tells that its process began no compile after it.

    `until_us` is how long the run went on, None where it did not say when it ended or the process began another
    compile. `spans` are the phases open in it, the outermost first; the level light records none.
    """

    compile_key: int
    compile_id: str
    rank: int | None
    function: str | None
    file: str | None
    line: int | None
    started_us: int
    is_last: bool
    until_us: int | None
    spans: tuple[OpenSpan, ...]


UNFINISHED_SQL = """
select
  c.id as compile_key, c.compile_id, coalesce(c.rank, p.rank) as rank, f.name as function, f.file, c.line,
  c.started_us,
  not exists (
    select 1
    from compiles as later
    where later.run_id = c.run_id
      and later.process_id = c.process_id
      and (later.started_us, later.id) > (c.started_us, c.id)
  ) as is_last
from compiles as c
left join functions as f on f.id = c.function_id
left join processes as p on p.id = c.process_id
where c.run_id = :run_id
  and c.outcome = 'started'
  and (:key is null or c.id = :key)
order by is_last desc, c.started_us, c.id
limit :limit
"""
# By the lanes of its process: a phase that began before dynamo named the compile has only torch's id of it.
OPEN_SQL = """
select n.name, s.begin_us, s.depth, l.last_us as seen_us
from compiles as c
join lanes as l on l.process_id = c.process_id
join spans as s on s.lane_id = l.id
join span_names as n on n.id = s.name_id
where c.id = :key
  and s.duration_us is null
  and (s.compile_key = c.id or (s.compile_key is null and s.compile_id = c.compile_id))
order by s.begin_us, s.depth, s.id
limit :limit
"""


def list_unfinished(
    connection: sqlite3.Connection, run: RunRow, key: int | None = None, limit: int = MOST
) -> list[Unfinished]:
    """List a run's compiles without an end, those it was in when it ended first; none while the run goes on."""
    if run.state == "running":
        return []
    found = []
    for row in connection.execute(UNFINISHED_SQL, {"run_id": run.id, "key": key, "limit": limit}):
        values = dict(row) | {"is_last": bool(row["is_last"])}
        spans = connection.execute(OPEN_SQL, {"key": row["compile_key"], "limit": _MOST_OPEN})
        has_end = values["is_last"] and run.ended_us is not None and run.ended_us >= row["started_us"] > 0
        until_us = run.ended_us - row["started_us"] if has_end and run.ended_us is not None else None
        ended_us = None if until_us is None else run.ended_us
        found.append(Unfinished(**values, until_us=until_us, spans=tuple(_open_span(it, ended_us) for it in spans)))
    return found


def _open_span(row: sqlite3.Row, ended_us: int | None) -> OpenSpan:
    open_us = (ended_us or row["seen_us"]) - row["begin_us"]
    return OpenSpan(row["name"], row["begin_us"], row["depth"], open_us if open_us > 0 else None)


COUNT_SQL = """
select count(*)
from compiles as c
where c.run_id = :run_id
  and c.outcome = 'started'
"""


def count_unfinished(connection: sqlite3.Connection, run: RunRow) -> int:
    """Count a run's compiles without an end; none while the run goes on."""
    if run.state == "running":
        return 0
    return int(connection.execute(COUNT_SQL, {"run_id": run.id}).fetchone()[0])
