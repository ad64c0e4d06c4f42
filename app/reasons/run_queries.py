"""A run's graph breaks, recompiles, their causes, and compiles that reached the recompile limit."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

from compileboard.app.core import fields
from compileboard.app.core.page import Page, bind_page, make_page, recorded_us_sql
from compileboard.app.core.rows import list_page, make_row
from compileboard.app.runs.trace_files import get_event, list_stack
from compileboard.collectors.contract.fingerprints import parse_id
from compileboard.collectors.contract.library_names import is_library_name
from compileboard.collectors.store.reading import read_body
from compileboard.collectors.store.run_causes import (
    find_call_in_stack,
    find_first_call,
    find_user_call,
)
from compileboard.collectors.store.runs import add_process_names


@dataclass(frozen=True)
class GraphBreakRow(fields.TitledBreak):
    """One occurrence of a graph break in the run."""

    tables = ("graph_breaks", "distinct_breaks")

    id: fields.RowId
    process_id: fields.ProcessId
    process: fields.ProcessName
    rank: fields.Rank
    compile_key: fields.CompileKey
    compile_id: fields.CompileId
    distinct_id: fields.BreakId
    fingerprint: str
    gb_id: fields.GbId
    gb_type: fields.GbType
    reason: fields.BreakReason
    explanation: fields.Explanation
    hints: fields.Hints
    debug_context: Annotated[str | None, "Developer context, from torch."]
    function: fields.FunctionName
    file: fields.FileName
    line: int | None
    torch_file: Annotated[
        str | None, "File that torch's text names: a library's where the break is in its code."
    ]
    torch_line: Annotated[int | None, "Line that torch's text names."]
    source_line: fields.SourceLine
    outcome: str
    time_us: fields.EventTime
    compile_us: fields.CompileUs
    stack: fields.Stack
    text: Annotated[str, "torch's full text."]
    called_at: fields.CalledAt = None

    @staticmethod
    def read_columns(columns: dict[str, Any]) -> dict[str, Any]:
        body = read_body(columns.pop("body"))
        text, stack = body.get("text") or "", tuple(list_stack(body))
        own = {"text": text, "stack": stack, "debug_context": body.get("debug_context")}
        own["called_at"] = _find_call(columns["file"], body)
        return columns | _choose_words(columns, body) | _find_torch_line(text, stack) | own


@dataclass(frozen=True)
class RunDistinctBreak(fields.TitledBreak):
    """A distinct graph break with its totals in one run."""

    tables = ("run_breaks", "distinct_breaks")

    distinct_id: fields.BreakId
    gb_id: fields.GbId
    gb_type: fields.GbType
    reason: fields.BreakReason
    explanation: fields.Explanation
    hints: fields.Hints
    function: fields.FunctionName
    file: fields.FileName
    line: fields.LineNumber
    source_line: fields.SourceLine
    break_count: int
    compile_us: fields.CompilesUs
    outcomes: Annotated[dict[str, fields.Count], "Graph breaks by outcome."]
    called_at: fields.CalledAt = None


BREAKS_SQL = f"""
select
  b.id, b.process_id, coalesce(c.rank, p.rank) as rank, b.compile_key, b.compile_id, b.distinct_id,
  d.fingerprint,
  {fields.BREAK_COLUMNS}, f.name as function, f.file, b.line, b.outcome, b.time_us,
  nullif(c.total_us, 0) as compile_us, e.body
from graph_breaks as b
join distinct_breaks as d on d.id = b.distinct_id
left join compiles as c on c.id = b.compile_key
left join functions as f on f.id = coalesce(b.function_id, c.function_id)
left join processes as p on p.id = b.process_id
left join events as e on e.process_id = b.process_id and e.sequence = b.sequence
"""  # noqa: S608  own names
RUN_BREAKS_SQL = f"""
{BREAKS_SQL}
where b.run_id = :run_id
  and (:distinct_id is null or b.distinct_id = :distinct_id)
  and (b.time_us, b.id) > (:after_us, :after_id)
order by b.time_us, b.id
limit :limit
"""
COMPILE_BREAKS_SQL = f"""
{BREAKS_SQL}
where b.compile_key = :key
order by b.time_us, b.id
limit :limit
"""
DISTINCT_SQL = f"""
select
  r.distinct_id, {fields.BREAK_COLUMNS}, f.name as function, f.file, d.line, r.break_count,
  nullif(r.compile_us, 0) as compile_us
from run_breaks as r
join distinct_breaks as d on d.id = r.distinct_id
left join functions as f on f.id = d.function_id
where r.run_id = :run_id
  and (r.compile_us, r.distinct_id) < (:after_us, :after_id)
order by r.compile_us desc, r.distinct_id desc
limit :limit
"""  # noqa: S608  own names
OUTCOMES_SQL = """
select b.distinct_id, b.outcome, count(*) as break_count, min(b.time_us) as time_us, b.process_id,
b.sequence, b.line
from graph_breaks as b
where b.run_id = :run_id
group by b.distinct_id, b.outcome
order by b.distinct_id, b.outcome
limit 20000
"""


_NAMED_BY_TORCH = re.compile(
    r"^Graph break in user code at (?P<path>.+):(?P<line>\d{1,9})$", re.MULTILINE
)


def _find_torch_line(text: str, stack: Sequence[dict[str, Any]]) -> dict[str, Any]:
    named = _NAMED_BY_TORCH.search(text)
    if named is None:
        return {"torch_file": None, "torch_line": None}
    line, name = int(named["line"]), named["path"].replace("\\", "/").rsplit("/", 1)[-1]
    files = [
        frame["file"]
        for frame in stack
        if frame.get("line") == line and isinstance(frame.get("file"), str)
    ]
    file = next(
        (file for file in reversed(files) if file.rsplit("/", 1)[-1] == name), named["path"]
    )
    return {"torch_file": file, "torch_line": line}


def _find_call(file: str | None, body: dict[str, Any]) -> str | None:
    call = find_call_in_stack(body) if is_library_name(file or "") else None
    return call.place if call else None


def _choose_words(values: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    names = ("reason", "explanation", "source_line", "hints")
    words = {name: body.get(name) or values[name] for name in names}
    return words | {"hints": tuple(body["hints"]) if body.get("hints") else words["hints"]}


list_graph_breaks = partial(list_page, GraphBreakRow, RUN_BREAKS_SQL, distinct_id=None)


def list_distinct_breaks(
    connection: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 50
) -> Page[RunDistinctBreak]:
    """List the graph breaks with the most compile time first. Raises FilterError for an invalid
    cursor.
    """
    values = bind_page(run_id, cursor, limit, _FIRST)
    records = connection.execute(DISTINCT_SQL, values).fetchall()
    outcomes: dict[int, dict[str, int]] = {}
    first: dict[int, sqlite3.Row] = {}  # The run's first break of each kind.
    if records:
        for row in connection.execute(OUTCOMES_SQL, {"run_id": run_id}):
            outcomes.setdefault(row["distinct_id"], {})[row["outcome"]] = row["break_count"]
            if row["time_us"] <= first.get(row["distinct_id"], row)["time_us"]:
                first[row["distinct_id"]] = row
    rows = []
    for record in records:
        values, own = dict(record), first.get(record["distinct_id"])
        body = get_event(connection, own["process_id"], own["sequence"]) if own else {}
        values |= _choose_words(values, body)
        values["called_at"] = _find_call(values["file"], body)
        values["line"] = own["line"] if own else values["line"]
        values["outcomes"] = outcomes.get(record["distinct_id"], {})
        rows.append(make_row(RunDistinctBreak, values))
    return make_page(rows, limit, lambda row: (row.compile_us or 0, parse_id(row.distinct_id)))


def count_distinct_breaks(connection: sqlite3.Connection, run_id: str) -> int:
    sql = "select count(*) from run_breaks where run_id = :run_id"
    return int(connection.execute(sql, {"run_id": run_id}).fetchone()[0])


@dataclass(frozen=True)
class FailedGuard(fields.CategorizedReason):
    """A guard that failed, so that a cache entry could not be used."""

    tables = ("guard_failures",)

    position: int
    cache_entry: str | None
    reason: str
    category: fields.Category
    source: fields.GuardSource
    expected: str | None
    actual: str | None
    source_line: fields.SourceLine
    line: fields.LineNumber
    also_failed: Annotated[
        tuple[str, ...], "The other failed guards of the cache entry, where they were recorded."
    ] = ()


@dataclass(frozen=True)
class RecompileRow(fields.CategorizedReason):
    """One recompile: a compile of a frame that already had cache entries."""

    tables = ("recompiles", "recompile_causes")

    id: fields.RowId
    cause_id: fields.CauseId | None
    category: fields.Category
    source: fields.GuardSource
    is_partial: bool
    process_id: fields.ProcessId
    process: fields.ProcessName
    rank: fields.Rank
    compile_key: fields.CompileKey
    compile_id: fields.CompileId
    function: fields.FunctionName
    file: fields.FileName
    line: fields.LineNumber
    recompiled_from: fields.RecompiledFrom
    time_us: fields.EventTime
    compile_us: fields.CompileUs
    guards: Annotated[
        tuple[FailedGuard, ...], "The failed guard of every cache entry, the newest first."
    ]


@dataclass(frozen=True)
class Chain:
    """One frame that was compiled more than once."""

    process_id: fields.ProcessId
    process: fields.ProcessName
    generation: fields.Generation
    frame_id: Annotated[int | None, "First number of its compile ids."]
    rank: fields.Rank
    pid: fields.Pid
    function: fields.FunctionName
    file: fields.FileName
    line: fields.LineNumber
    recompile_count: Annotated[fields.Count, "Recompiles of the function in this process."]
    compile_us: Annotated[fields.DurationUs | None, "Time of the recompiles."]
    limit_count: Annotated[fields.Count, "Compiles that reached the recompile limit."]
    called_at: fields.CalledAt = None


@dataclass(frozen=True)
class RunCause(fields.CategoryMeaning):
    """One recompile cause with its totals in one run."""

    tables = ("run_causes", "recompile_causes")

    cause_id: fields.CauseId
    category: fields.Category
    source: fields.GuardSource
    reason: str
    function: fields.FunctionName
    file: fields.FileName
    recompile_count: fields.CauseRecompiles
    partial_count: fields.PartialRecompiles
    compile_us: fields.CompilesUs
    called_at: fields.CalledAt = None


@dataclass(frozen=True)
class LimitHit:
    """One compile that reached the recompile limit."""

    compile_key: Annotated[int, "`id` of the compile."]
    compile_id: Annotated[str, "Compile id as torch prints it."]
    process_id: fields.ProcessId
    process: fields.ProcessName
    rank: fields.Rank
    function: fields.FunctionName
    file: fields.FileName
    line: fields.LineNumber
    recompile_category: fields.RecompileCategory
    recompiled_from: fields.RecompiledFrom
    started_us: fields.StartTime
    fail_reason: Annotated[str | None, "torch's message."]
    called_at: fields.CalledAt = None


# Recompiles whose guards one statement reads: each has one per cache entry, up to torch's
# accumulated limit of 256.
_AT_ONCE = 100
# Sorts before the largest compile time.
_FIRST = {"us": 2**62, "id": 2**62}
_SELECT = """
select
  r.id, r.cause_id, coalesce(u.category, 'unknown') as category, u.source, r.is_partial,
  r.process_id, coalesce(c.rank, p.rank) as rank, r.compile_key, r.compile_id,
  f.name as function, f.file, r.line,
  r.recompiled_from, r.time_us, nullif(c.total_us, 0) as compile_us
from recompiles as r
left join recompile_causes as u on u.id = r.cause_id
left join compiles as c on c.id = r.compile_key
left join functions as f on f.id = r.function_id
left join processes as p on p.id = r.process_id
"""
RUN_RECOMPILES_SQL = f"""
{_SELECT}
where r.run_id = :run_id
  and (r.time_us, r.id) > (:after_us, :after_id)
order by r.time_us, r.id
limit :limit
"""
CHAINS_SQL = """
select
  c.process_id, c.generation, c.frame_id, max(coalesce(c.rank, p.rank)) as rank, max(p.pid) as pid,
  max(f.name) as function, max(f.file) as file, max(c.line) as line, count(*) as recompile_count,
  nullif(sum(c.total_us), 0) as compile_us, sum(c.outcome = 'recompile_limit') as limit_count,
  min(c.id) as first_id
from compiles as c
left join functions as f on f.id = c.function_id
left join processes as p on p.id = c.process_id
where c.run_id = :run_id
  and c.recompiled_from is not null
group by c.process_id, c.generation, c.frame_id
having (sum(c.total_us), min(c.id)) < (:after_us, :after_id)
order by compile_us desc, first_id desc
limit :limit
"""
CAUSES_SQL = f"""
select
  r.cause_id, {fields.CAUSE_COLUMNS}, f.name as function, f.file, r.recompile_count,
  r.partial_count, {recorded_us_sql("r.compile_us", "r.recompile_count")} as compile_us
from run_causes as r
join recompile_causes as u on u.id = r.cause_id
left join functions as f on f.id = u.function_id
where r.run_id = :run_id
  and (r.compile_us, r.recompile_count, r.cause_id) < (:after_us, :after_count, :after_id)
order by r.compile_us desc, r.recompile_count desc, r.cause_id desc
limit :limit
"""  # noqa: S608  own texts only
LIMITS_SQL = """
select
  c.id as compile_key, c.compile_id, c.process_id, coalesce(c.rank, p.rank) as rank,
  f.name as function, f.file, c.line,
  c.recompile_category, c.recompiled_from, c.started_us, c.stack_id,
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


def keyed_sql(count: int) -> str:
    marks = ", ".join(f":key{n}" for n in range(count))
    return f"{_SELECT} where r.compile_key in ({marks}) order by r.time_us, r.id limit 2000"


def guards_sql(count: int) -> str:
    marks = ", ".join(f":key{n}" for n in range(count))
    return f"""
select
  g.recompile_id, g.position, g.cache_entry, g.reason, g.category, g.source, g.expected,
  g.actual, g.source_line, g.line, e.body
from guard_failures as g
join recompiles as r on r.id = g.recompile_id
left join events as e on g.position = 0 and e.process_id = r.process_id
  and e.sequence = r.sequence
where g.recompile_id in ({marks})
order by g.recompile_id, g.position
limit 50000
"""  # noqa: S608  marks are ours


def _marks(keys: Iterable[int]) -> dict[str, int]:
    return {f"key{n}": key for n, key in enumerate(keys)}


def _to_rows(connection: sqlite3.Connection, records: list[sqlite3.Row]) -> list[RecompileRow]:
    guards: dict[int, list[FailedGuard]] = {}
    failed: dict[str | None, list[dict[str, Any]]] = {}
    for first in range(0, len(records), _AT_ONCE):
        some = records[first : first + _AT_ONCE]
        for row in connection.execute(guards_sql(len(some)), _marks(row["id"] for row in some)):
            values = dict(row)
            body = values.pop("body")
            if values["position"] == 0:
                failed = _group_failed(read_body(body))
            values |= _describe_failed(values, failed.get(values["cache_entry"], []))
            guards.setdefault(values.pop("recompile_id"), []).append(make_row(FailedGuard, values))
    return [
        make_row(RecompileRow, {**row, "guards": tuple(guards.get(row["id"], ()))})
        for row in add_process_names(connection, records)
    ]


def _group_failed(body: dict[str, Any]) -> dict[str | None, list[dict[str, Any]]]:
    groups: dict[str | None, list[dict[str, Any]]] = {}
    for guard in body.get("failed") or ():
        groups.setdefault(guard.get("cache_entry"), []).append(guard)
    return groups


def _describe_failed(
    guard: dict[str, Any], failed: Sequence[dict[str, Any]]
) -> dict[str, str | tuple[str, ...] | None]:
    """Return the value that torch's own guard saw, if the hook read it, and the other guards."""
    is_own = [
        (other.get("category"), other.get("source")) == (guard["category"], guard["source"])
        for other in failed
    ]
    seen = (other.get("actual") for other, own in zip(failed, is_own, strict=True) if own)
    return {
        "actual": guard["actual"] or next(filter(None, seen), None),
        "also_failed": tuple(
            f"{other['reason']}, now {other['actual']}" if other.get("actual") else other["reason"]
            for other, own in zip(failed, is_own, strict=True)
            if not own
        ),
    }


def list_recompiles(
    connection: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 50
) -> Page[RecompileRow]:
    """List a run's recompiles in order. Raises FilterError for an invalid cursor."""
    values = bind_page(run_id, cursor, limit)
    rows = _to_rows(connection, connection.execute(RUN_RECOMPILES_SQL, values).fetchall())
    return make_page(rows, limit, lambda row: (row.time_us, row.id))


def list_compile_recompiles(connection: sqlite3.Connection, keys: list[int]) -> list[RecompileRow]:
    if not keys:
        return []
    return _to_rows(connection, connection.execute(keyed_sql(len(keys)), _marks(keys)).fetchall())


def list_chains(
    connection: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 10
) -> Page[Chain]:
    """List frames that were compiled several times, those with most recompile time first.

    Raises FilterError for an invalid cursor.
    """
    values = bind_page(run_id, cursor, limit, _FIRST)
    records = add_process_names(connection, connection.execute(CHAINS_SQL, values))
    rows = []
    for row in records:
        first_id = row.pop("first_id")
        called_at = find_first_call(connection, run_id, row["file"], row["function"])
        rows.append((Chain(**row, called_at=called_at), first_id))
    page = make_page(rows, limit, lambda chain: (chain[0].compile_us or 0, chain[1]))
    return Page(tuple(chain for chain, _first in page.rows), page.next)


def list_causes(
    connection: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 50
) -> Page[RunCause]:
    """List a run's recompile causes, those with most compile time first. Raises FilterError for an
    invalid cursor.
    """
    page = list_page(
        RunCause,
        CAUSES_SQL,
        connection,
        run_id,
        cursor,
        limit,
        first={"us": 2**62, "count": 2**62, "id": 2**62},
        key=lambda row: (row.compile_us or 0, row.recompile_count, parse_id(row.cause_id)),
    )
    return page.map(
        lambda row: replace(
            row, called_at=find_first_call(connection, run_id, row.file, row.function)
        )
    )


def list_limit_hits(
    connection: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 50
) -> Page[LimitHit]:
    """List the compiles that reached the recompile limit. Raises FilterError for an invalid
    cursor.
    """
    values = bind_page(run_id, cursor, limit, {"us": -(2**62), "id": 0})
    rows = []
    for row in add_process_names(connection, connection.execute(LIMITS_SQL, values)):
        called_at = find_user_call(connection, row["file"], row.pop("stack_id"))
        rows.append(LimitHit(**row, called_at=called_at))
    return make_page(rows, limit, attrgetter("started_us", "compile_key"))
