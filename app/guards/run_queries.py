"""The guards of a run: one set for each compile, summed up when it was recorded."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import starmap
from typing import Annotated, Any, NamedTuple

from compileboard.app.core import fields
from compileboard.app.core.page import Page, check_order, decode_cursor, make_page
from compileboard.collectors.contract.shapes import GuardSummary
from compileboard.collectors.store.reading import read_json

# Orders of the list; none is ever null.
ORDERS = {
    "latency": ("coalesce(g.latency_us, -1.0)", float),
    "guards": ("coalesce(g.guard_count, -1)", int),
}


class GuardRoot(NamedTuple):
    """One input or global with guards."""

    root: Annotated[str, "Input or global: `L['x']`."]
    guard_count: Annotated[fields.Count, "Guards about it."]


Kinds = Annotated[dict[str, int], "Guards by torch's name of their kind, the most frequent first."]
Roots = Annotated[
    tuple[GuardRoot, ...],
    "Places that guards are about, the most guards first; a set keeps twenty.",
]


@dataclass(frozen=True)
class GuardSet:
    """The guards of one compile, summed up; `kinds` and `roots` are counts, the largest first."""

    tables = ("guard_sets",)

    id: fields.RowId
    run_id: fields.RunId
    artifact_id: int
    process_id: fields.ProcessId
    rank: fields.Rank
    compile_key: fields.CompileKey
    compile_id: fields.CompileId
    function: fields.FunctionName
    file: fields.FileName
    line: fields.LineNumber
    guard_count: int | None
    latency_us: float | None
    kinds: Kinds
    roots: Roots
    root_count: Annotated[fields.Count | None, "Places in all."]


@dataclass(frozen=True)
class GuardTotals:
    set_count: Annotated[fields.Count, "Sets of guards that the run recorded."]
    guard_count: Annotated[fields.Count | None, "Guards of all sets."]
    timed_count: Annotated[fields.Count, "Sets that torch timed."]
    median_us: Annotated[
        float | None,
        "Median time that checking a whole set takes, measured by torch once. Microseconds.",
    ]
    highest_us: Annotated[
        float | None,
        "Longest time that checking a whole set takes, measured by torch once. Microseconds.",
    ]


_COLUMNS = """
  g.id, g.run_id, g.artifact_id, a.process_id, coalesce(c.rank, p.rank) as rank, g.compile_key,
  g.compile_id, f.name as function, f.file, c.line, g.guard_count, g.latency_us, g.summary
"""
_SOURCE = """
from guard_sets as g
join artifacts as a on a.id = g.artifact_id
left join compiles as c on c.id = g.compile_key
left join functions as f on f.id = c.function_id
left join processes as p on p.id = a.process_id
"""
TOTALS_SQL = """
select count(*) as set_count, sum(guard_count) as guard_count, count(latency_us) as timed_count,
  max(latency_us) as highest_us
from guard_sets
where run_id = :run_id
"""
RANKED_SQL = """
select latency_us
from guard_sets
where run_id = :run_id
  and latency_us is not null
order by latency_us desc, id
limit 1
offset :place
"""
SUMMARIES_SQL = """
select summary
from guard_sets
where run_id = :run_id
order by id
limit :limit
"""
ONE_SQL = f"""
select {_COLUMNS}
{_SOURCE}
where g.artifact_id = :artifact_id
  and g.run_id = coalesce(:run_id, g.run_id)
limit 1
"""
PREVIOUS_SQL = f"""
select {_COLUMNS}
{_SOURCE}
join compiles as own on own.id = :compile_key
where c.process_id = own.process_id
  and c.generation = own.generation
  and c.frame_id = own.frame_id
  and c.frame_compile_id < own.frame_compile_id
order by c.frame_compile_id desc, g.id desc
limit 1
"""


def list_sql(order: str, up: bool, after: bool) -> str:
    key, direction, sign = ORDERS[order][0], "asc" if up else "desc", ">" if up else "<"
    behind = f"and ({key}, g.id) {sign} (:after_key, :after_id)" if after else ""
    # Rows are chosen by number first, so that sorting carries no summaries. Every part is a
    # constant of this module.
    return f"""
select {_COLUMNS}
{_SOURCE}
where g.id in (
    select g.id
    from guard_sets as g
    where g.run_id = :run_id
      {behind}
    order by {key} {direction}, g.id {direction}
    limit :limit
  )
order by {key} {direction}, g.id {direction}
limit :limit
"""  # noqa: S608 - our own names


def _to_guard_set(row: sqlite3.Row) -> GuardSet:
    values = dict(row)
    summary: GuardSummary | None = read_json(GuardSummary, values.pop("summary"))
    return GuardSet(
        **values,
        kinds=summary["kinds"] if summary else {},
        roots=tuple(starmap(GuardRoot, summary["roots"])) if summary else (),
        root_count=summary["root_count"] if summary else None,
    )


def list_guard_sets(
    connection: sqlite3.Connection,
    run_id: str,
    sort: str = "latency",
    cursor: str | None = None,
    limit: int = 50,
) -> Page[GuardSet]:
    """List a run's sets of guards. `sort` is a name in ORDERS, largest first, or that name with
    ".asc".

    Raises FilterError for an invalid sort or cursor.
    """
    order, direction = check_order(sort, ORDERS)
    after = decode_cursor(cursor, ORDERS[order][1], int)
    values: dict[str, Any] = {"run_id": run_id, "limit": limit + 1}
    if after:
        values |= {"after_key": after[0], "after_id": after[1]}
    rows = connection.execute(list_sql(order, direction == "asc", after is not None), values)
    return make_page(
        [_to_guard_set(row) for row in rows], limit, lambda row: (_sort_value(row, order), row.id)
    )


def _sort_value(row: GuardSet, order: str) -> float | int:
    value = row.latency_us if order == "latency" else row.guard_count
    return -1 if value is None else value


def get_totals(connection: sqlite3.Connection, run_id: str) -> GuardTotals:
    row = connection.execute(TOTALS_SQL, {"run_id": run_id}).fetchone()
    # The index is in order of latency: two lookups are cheaper than a sort.
    ranks = (
        {(row["timed_count"] - 1) // 2, row["timed_count"] // 2} if row["timed_count"] else set()
    )
    middle = [
        connection.execute(RANKED_SQL, {"run_id": run_id, "place": rank}).fetchone()[0]
        for rank in ranks
    ]
    return GuardTotals(**dict(row), median_us=sum(middle) / len(middle) if middle else None)


def list_summaries(
    connection: sqlite3.Connection, run_id: str, limit: int = 20_000
) -> Iterator[GuardSummary]:
    for row in connection.execute(SUMMARIES_SQL, {"run_id": run_id, "limit": limit}):
        if (summary := read_json(GuardSummary, row["summary"])) is not None:
            yield summary


def get_guard_set(
    connection: sqlite3.Connection, run_id: str | None, artifact_id: int
) -> GuardSet | None:
    row = connection.execute(ONE_SQL, {"run_id": run_id, "artifact_id": artifact_id}).fetchone()
    return None if row is None else _to_guard_set(row)


def get_previous_set(connection: sqlite3.Connection, compile_key: int | None) -> GuardSet | None:
    """Return the guards of the previous cache entry of the same frame."""
    if compile_key is None:
        return None
    row = connection.execute(PREVIOUS_SQL, {"compile_key": compile_key}).fetchone()
    return None if row is None else _to_guard_set(row)
