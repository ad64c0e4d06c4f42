"""Lookups in a compile cache with the components of their keys, and earlier lookups."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from compileboard.app.core.fields import FunctionName, Rank
from compileboard.app.core.rows import find_row, list_rows
from compileboard.app.core.schema import PRIVATE
from compileboard.app.runs.failures import CacheLookup
from compileboard.app.runs.trace_files import get_event
from compileboard.collectors.store.codec import unpack

# An earlier key takes 0.2 ms to unpack and compare: so many keep a page below 150 ms.
MAX_PER_FUNCTION = 100
RUNS_BACK = 3


@dataclass(frozen=True)
class Lookup(CacheLookup):
    run_id: str
    sequence: int
    function_id: int | None
    file: str | None
    line: int | None
    artifact_id: int | None
    state: str | None
    text: str | None = field(repr=False)

    @staticmethod
    def read_columns(columns: dict[str, Any]) -> dict[str, Any]:
        return columns | {"text": _unpack_text(columns.pop("body"))}


@dataclass(frozen=True)
class NearestLookup:
    """The earlier lookup whose key differs least."""

    tables = ("cache_lookups",)

    id: int
    run_id: Annotated[str, "Its run's id."]
    rank: Rank
    compile_key: int | None
    compile_id: str | None
    function_id: int | None = field(metadata=PRIVATE)
    function: FunctionName
    result: Annotated[str, "hit or miss."]
    key: Annotated[str | None, "Key of the lookup."]
    time_us: int
    payload_id: int = field(metadata=PRIVATE)


LOOKUP_SQL = """
select
  x.id, x.run_id, x.process_id, x.sequence, coalesce(c.rank, p.rank) as rank, x.compile_key,
  x.compile_id,
  c.function_id, f.name as function, f.file, c.line, x.cache, x.result, x.key, x.reason,
  x.time_taken_us,
  x.time_saved_us, x.time_us, a.id as artifact_id, a.state, t.body
from cache_lookups as x
left join compiles as c on c.id = x.compile_key
left join functions as f on f.id = c.function_id
left join processes as p on p.id = x.process_id
left join artifacts as a on a.process_id = x.process_id and a.sequence = x.sequence
left join payloads as t on t.id = a.payload_id
where x.id = :lookup_id
  and x.run_id = :run_id
limit 1
"""
_EARLIER = """
select
  x.id, x.run_id, coalesce(c.rank, p.rank) as rank, x.compile_key, x.compile_id,
  c.function_id, f.name as function, x.result, x.key, x.time_us, a.payload_id
"""
_JOINED = """
join artifacts as a on a.process_id = x.process_id and a.sequence = x.sequence
left join functions as f on f.id = c.function_id
left join processes as p on p.id = x.process_id
"""
_BEFORE = """
  and x.cache = :cache
  and x.result != 'bypass'
  and a.payload_id is not null
  and (x.time_us, x.id) < (:time_us, :lookup_id)
order by x.time_us desc, x.id desc
limit :limit
"""
OF_FUNCTION_SQL = f"""
{_EARLIER}
from compiles as c
join cache_lookups as x on x.compile_key = c.id
{_JOINED}
where c.function_id = :function_id
  and c.run_id = :run_id
  and x.run_id = :run_id
  {_BEFORE}
"""
RUNS_SQL = """
select r.id
from runs as own
join runs as r on r.suite is own.suite and r.name = own.name and r.started_us < own.started_us
where own.id = :run_id
  and r.source <> 'trial'
order by r.started_us desc, r.id desc
limit :limit
"""


def get_lookup(connection: sqlite3.Connection, run_id: str, lookup_id: int) -> Lookup | None:
    return find_row(Lookup, LOOKUP_SQL, connection, run_id, lookup_id=lookup_id)


def _unpack_text(body: bytes | None) -> str | None:
    try:
        return None if body is None else unpack(body)
    except ValueError:
        return None


def get_detail(connection: sqlite3.Connection, lookup: Lookup) -> dict[str, Any]:
    detail = get_event(connection, lookup.process_id, lookup.sequence).get("detail")
    return detail if isinstance(detail, dict) else {}


def list_runs_before(
    connection: sqlite3.Connection, run_id: str, limit: int = RUNS_BACK
) -> list[str]:
    return [row["id"] for row in connection.execute(RUNS_SQL, {"run_id": run_id, "limit": limit})]


def list_earlier(
    open_run: Callable[[str], sqlite3.Connection], lookup: Lookup, run_ids: Sequence[str]
) -> list[NearestLookup]:
    lookups: list[NearestLookup] = []
    values: dict[str, Any] = {
        "cache": lookup.cache,
        "time_us": lookup.time_us,
        "lookup_id": lookup.id,
    }
    values |= {"function_id": lookup.function_id, "limit": MAX_PER_FUNCTION // max(len(run_ids), 1)}
    for run_id in run_ids:
        lookups += list_rows(NearestLookup, OF_FUNCTION_SQL, open_run(run_id), run_id, **values)
    return sorted(lookups, key=lambda earlier_lookup: (earlier_lookup.time_us, earlier_lookup.id))


def read_texts(
    open_run: Callable[[str], sqlite3.Connection], earlier: Sequence[NearestLookup]
) -> Iterator[tuple[NearestLookup, str]]:
    """Yield lookups with torch's records one at a time, since they may be large."""
    for earlier_lookup in earlier:
        connection = open_run(earlier_lookup.run_id)
        row = connection.execute(
            "select body from payloads where id = :id", {"id": earlier_lookup.payload_id}
        ).fetchone()
        text = _unpack_text(row["body"]) if row else None
        if text is not None:
            yield earlier_lookup, text
