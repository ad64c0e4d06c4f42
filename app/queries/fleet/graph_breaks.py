"""Distinct graph breaks across runs: how often, where, since when, at what cost; and one of them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.queries.engine import SqliteEngine
from compileboard.app.queries.fields import (
    BreakReason,
    CompileId,
    CompileKey,
    CompilesUs,
    CompileUs,
    Count,
    DurationUs,
    EventTime,
    Explanation,
    FileName,
    Fingerprint,
    FunctionName,
    GbId,
    GbType,
    Hints,
    LineNumber,
    ProcessId,
    PublicBreak,
    RunId,
    SequenceNumber,
    SourceLine,
    StartTime,
    TimeUs,
    Title,
)
from compileboard.app.queries.fleet.runs import RunFilter
from compileboard.app.queries.fleet.scope import (
    WANTED,
    WANTED_SLOTS,
    Slot,
    TrendGrid,
    add_up,
    bind_runs,
    bind_slots,
)
from compileboard.app.queries.newest import SHOWN_STATE
from compileboard.app.queries.page import Page, check_order, decode_cursor, make_page
from compileboard.app.queries.parameters import OTHER_KEYS, Parameter, check_keys, list_names, read_filter

# What the list may be ordered by; each is never null.
ORDERS = {
    "breaks": "break_count",
    "runs": "run_count",
    "compile_time": "compile_us",
    "last": "last_us",
    "first": "first_us",
}


@dataclass(frozen=True)
class BreakFilter:
    """Which distinct breaks, in which runs; None is no limit."""

    runs: RunFilter
    text: Annotated[str | None, Parameter("q"), "Text to look for; capitals do not matter."] = None
    gb_id: Annotated[
        str | None,
        Parameter("gb", read=lambda _name, text: text.upper()),
        "torch's id of a kind of graph break: `GB0059`.",
    ] = None
    kind: Annotated[str | None, "torch's name of a kind of graph break, whole."] = None
    function: Annotated[str | None, "Part of `file:function`; capitals do not matter."] = None


FILTERS = list_names(BreakFilter)


@dataclass(frozen=True)
class DistinctBreak(PublicBreak):
    """One distinct graph break with what it came to in the runs looked at."""

    id: Annotated[int, "Number in this database."]
    fingerprint: Fingerprint
    gb_id: GbId
    gb_type: GbType
    reason: BreakReason
    explanation: Explanation
    hints: Hints
    function: FunctionName
    file: FileName
    line: LineNumber
    source_line: SourceLine
    break_count: Annotated[Count, "Graph breaks."]
    run_count: Annotated[Count, "Runs that have it."]
    compile_us: CompilesUs
    first_us: Annotated[TimeUs, "Start of the first run that has it."]
    last_us: Annotated[TimeUs, "Start of the last run."]

    @property
    def kind(self) -> str:
        """Return torch's name for this kind of break, else its first line."""
        return self.gb_type or self.reason.partition("\n")[0]


@dataclass(frozen=True)
class BreakSummary:
    """Sums."""

    distinct_count: Annotated[Count, "Distinct graph breaks."]
    function_count: Annotated[Count, "Functions."]
    run_count: Annotated[Count, "Runs that have any."]
    break_count: Annotated[Count, "Graph breaks."]
    compile_us: Annotated[DurationUs | None, "Time of the compiles that had them."]


# The runs' filter has :text and :name of its own; the page's text is about breaks.
MATCHING = """
matching as materialized (
  select d.id, d.gb_id, d.function_id, coalesce(d.gb_type, d.reason) as kind
  from distinct_breaks as d
  left join functions as f on f.id = d.function_id
  where (:gb_id is null or d.gb_id = :gb_id)
    and (:kind is null or coalesce(d.gb_type, d.reason) = :kind)
    and (:function is null or instr(lower(coalesce(f.file, '') || ':' || coalesce(f.name, '')), lower(:function)))
    and (:break_text is null
      or instr(lower(coalesce(d.gb_type, '')), lower(:break_text))
      or instr(lower(d.reason), lower(:break_text))
      or instr(lower(coalesce(d.explanation, '')), lower(:break_text))
      or instr(lower(coalesce(d.source_line, '')), lower(:break_text))
      or instr(lower(coalesce(f.file, '') || ':' || coalesce(f.name, '')), lower(:break_text)))
)
"""
FOUND = f"""
with {WANTED}, {MATCHING}, per_break as materialized (
  select
    b.distinct_id,
    sum(b.break_count) as break_count,
    count(*) as run_count,
    sum(b.compile_us) as compile_us,
    min(w.started_us) as first_us,
    max(w.started_us) as last_us
  from wanted as w
  cross join run_breaks as b on b.run_id = w.id
  group by b.distinct_id
), found as (
  select p.distinct_id as id, p.break_count, p.run_count, p.compile_us, p.first_us, p.last_us
  from per_break as p
  join matching as m on m.id = p.distinct_id
)
"""  # noqa: S608  own texts only
CELLS_SQL = f"""
with {WANTED_SLOTS}
select b.distinct_id, w.slot, b.break_count, 0 as guard_failure_count, b.compile_us
from wanted as w
cross join run_breaks as b on b.run_id = w.id
limit 2000000
"""  # noqa: S608
THINGS_SQL = f"""
with {MATCHING}
select id, kind, function_id, gb_id
from matching
order by id
limit 200000
"""  # noqa: S608
RUN_COUNT_SQL = f"""
with {WANTED}, {MATCHING}
select count(*) as run_count
from wanted as w
where exists (
  select 1
  from run_breaks as b
  where b.run_id = w.id
    and +b.distinct_id in (select id from matching) -- +: walk the run's breaks, no seek for each matching one
)
"""  # noqa: S608


def read_break_filter(query: Mapping[str, str]) -> BreakFilter:
    """Turn an address's query into a filter, the same for the page and the API.

    Raises: FilterError if a key is unknown or a value cannot be used.
    """
    check_keys(query, FILTERS, OTHER_KEYS)
    return read_filter(BreakFilter, query)


def _bind_breaks(wanted: BreakFilter) -> dict[str, Any]:
    own = {"break_text": wanted.text, "gb_id": wanted.gb_id, "kind": wanted.kind, "function": wanted.function}
    return bind_runs(wanted.runs) | own


def breaks_sql(order: str, up: bool, after: bool) -> str:
    """Write the list's statement for one order; public for the query-plan test."""
    key, direction, sign = ORDERS[order], "asc" if up else "desc", ">" if up else "<"
    behind = f"where ({key}, id) {sign} (:after_key, :after_id)" if after else ""
    return f"""
{FOUND}, page as materialized (
  select id, break_count, run_count, compile_us, first_us, last_us
  from found
  {behind}
  order by {key} {direction}, id {direction}
  limit :limit
)
select
  p.id, d.fingerprint, d.gb_id, d.gb_type, d.reason, d.explanation, d.hints, f.name as function, f.file, d.line,
  d.source_line, p.break_count, p.run_count, nullif(p.compile_us, 0) as compile_us, p.first_us, p.last_us
from page as p
join distinct_breaks as d on d.id = p.id
left join functions as f on f.id = d.function_id
order by p.{key} {direction}, p.id {direction}
limit :limit
"""  # noqa: S608


def list_distinct_breaks(
    connection: sqlite3.Connection,
    wanted: BreakFilter,
    *,
    sort: str = "breaks",
    cursor: str | None = None,
    limit: int = 50,
) -> Page[DistinctBreak]:
    """List distinct breaks; `sort` is a name in ORDERS, largest first, or that name with ".asc".

    Raises: FilterError if the sort or the cursor cannot be used.
    """
    order, direction = check_order(sort, ORDERS)
    after = decode_cursor(cursor, int, int)
    values = _bind_breaks(wanted) | {"limit": limit + 1}
    if after:
        values |= {"after_key": after[0], "after_id": after[1]}
    found = connection.execute(breaks_sql(order, direction == "asc", after is not None), values)
    return make_page(
        [to_break(row) for row in found],
        limit,
        lambda graph_break: (getattr(graph_break, ORDERS[order]) or 0, graph_break.id),
    )


def to_break(row: sqlite3.Row) -> DistinctBreak:
    """Make a distinct break of a row that has its columns."""
    values = {name: row[name] for name in DistinctBreak.__dataclass_fields__}
    return DistinctBreak(**(values | {"hints": tuple(json.loads(row["hints"]))}))


def get_break_trends(
    connection: sqlite3.Connection, wanted: BreakFilter, slots: list[Slot]
) -> tuple[BreakSummary, TrendGrid]:
    """Sum over all distinct breaks of a filter, and draw the trend of each and of each kind."""
    values = _bind_breaks(wanted)
    run_count = connection.execute(RUN_COUNT_SQL, values).fetchone()["run_count"]
    cells = add_up(SqliteEngine(connection), CELLS_SQL, THINGS_SQL, values | bind_slots(wanted.runs, slots), slots)
    summary = BreakSummary(
        distinct_count=len(cells.counts),
        function_count=cells.function_count,
        run_count=run_count,
        break_count=sum(kind.count for kind in cells.kinds),
        compile_us=sum(kind.compile_us for kind in cells.kinds) or (None if cells.counts else 0),
    )
    return summary, cells


GET_SQL = """
select
  d.id, d.fingerprint, d.gb_id, d.gb_type, d.reason, d.explanation, d.hints, f.name as function, f.file, d.line,
  d.source_line, d.function_id,
  sum(b.break_count) as break_count,
  count(*) as run_count,
  nullif(sum(b.compile_us), 0) as compile_us,
  min(r.started_us) as first_us,
  max(r.started_us) as last_us
from distinct_breaks as d
join run_breaks as b on b.distinct_id = d.id
join runs as r on r.id = b.run_id
left join functions as f on f.id = d.function_id
where d.id = :id
group by d.id
limit 1
"""
RUNS_SQL = f"""
select
  r.id, r.name, a.title, r.suite, {SHOWN_STATE} as state, r.started_us, r.torch_version, r.host, r.git_commit,
  b.break_count as count, nullif(b.compile_us, 0) as compile_us, coalesce(a.pinned, 0) as pinned
from run_breaks as b
join runs as r on r.id = b.run_id
left join run_annotations as a on a.run_id = r.id
where b.distinct_id = :id
  and (:after_us is null or (r.started_us, r.id) < (:after_us, :after_id))
order by r.started_us desc, r.id desc
limit :limit
"""  # noqa: S608  own texts only
# Runs of the same suite and name that do not have it count as 0: that is how one sees that it is gone.
HISTORY_SQL = """
with series as materialized (
  select distinct r.suite, r.name
  from run_breaks as b
  join runs as r on r.id = b.run_id
  where b.distinct_id = :id
)
select r.id as run_id, r.name, a.title, r.started_us, coalesce(b.break_count, 0) as count
from series as s
cross join runs as r on r.suite is s.suite and r.name = s.name
left join run_breaks as b on b.run_id = r.id and b.distinct_id = :id
left join run_annotations as a on a.run_id = r.id
order by r.started_us desc, r.id desc
limit :newest
"""
EVENTS_SQL = """
select
  g.id, g.run_id, g.process_id, g.sequence, g.compile_key, g.compile_id, g.line, g.outcome, g.time_us,
  c.outcome as compile_outcome, nullif(c.total_us, 0) as compile_us
from graph_breaks as g
left join compiles as c on c.id = g.compile_key
where g.distinct_id = :id
order by g.time_us desc, g.id desc
limit :limit
"""


@dataclass(frozen=True)
class AffectedRun:
    """One run, and how often something came in it."""

    id: RunId
    name: Annotated[str, "Its name."]
    title: Title
    suite: Annotated[str | None, "Its suite."]
    state: Annotated[str, "Its state."]
    started_us: StartTime
    torch_version: Annotated[str | None, "Version of torch."]
    host: Annotated[str | None, "Machine."]
    git_commit: Annotated[str | None, "Commit."]
    count: Annotated[Count, "How often it came in this run."]
    compile_us: CompilesUs
    pinned: Annotated[bool, "Whether a person pinned the run."]

    @property
    def shown_name(self) -> str:
        """Return what a person called the run, else its own name."""
        return self.title or self.name


@dataclass(frozen=True)
class HistoryPoint:
    """One run of the same suite and name."""

    run_id: RunId
    name: Annotated[str, "The run's name."]
    title: Title
    started_us: StartTime
    count: Annotated[Count, "How often it came; 0 where it did not."]


@dataclass(frozen=True)
class BreakEvent:
    """One graph break."""

    id: Annotated[int, "Number of the row."]
    run_id: RunId
    process_id: ProcessId
    sequence: SequenceNumber
    compile_key: CompileKey
    compile_id: CompileId
    line: LineNumber
    outcome: Annotated[str, "What came of it."]
    time_us: EventTime
    compile_outcome: Annotated[str | None, "What became of the compile."]
    compile_us: CompileUs


def get_distinct_break(connection: sqlite3.Connection, distinct_id: int) -> DistinctBreak | None:
    """Return one distinct break over all runs, or None if no run has it."""
    row = connection.execute(GET_SQL, {"id": distinct_id}).fetchone()
    return to_break(row) if row else None


def list_affected(
    connection: sqlite3.Connection,
    sql: str,
    thing_id: int,
    *,
    cursor: str | None = None,
    limit: int = 50,
    alive_since_us: int = 0,
) -> Page[AffectedRun]:
    """List the runs that have something, newest first; `sql` is RUNS_SQL here or that of recompile_cause.

    Raises: FilterError if the cursor cannot be used.
    """
    after = decode_cursor(cursor, int, str) or (None, None)
    values = {"id": thing_id, "after_us": after[0], "after_id": after[1], "limit": limit + 1}
    values["alive_since_us"] = alive_since_us
    rows = [AffectedRun(**(dict(row) | {"pinned": bool(row["pinned"])})) for row in connection.execute(sql, values)]
    return make_page(rows, limit, lambda run: (run.started_us, run.id))


def list_history(connection: sqlite3.Connection, sql: str, thing_id: int, *, newest: int = 200) -> list[HistoryPoint]:
    """List a point for each of the newest runs of the suites and names that have something, oldest first."""
    rows = connection.execute(sql, {"id": thing_id, "newest": newest}).fetchall()
    return [HistoryPoint(**dict(row)) for row in reversed(rows)]


def list_break_events(connection: sqlite3.Connection, distinct_id: int, *, limit: int = 20) -> list[BreakEvent]:
    """List the newest events of a distinct break."""
    found = connection.execute(EVENTS_SQL, {"id": distinct_id, "limit": limit})
    return [BreakEvent(**dict(row)) for row in found]
