"""Distinct causes of recompiles across runs: function, guard category and the guard's source, what they came to."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.queries.engine import SqliteEngine
from compileboard.app.queries.fields import (
    Category,
    CategoryMeaning,
    CompileId,
    CompileKey,
    CompilesUs,
    CompileUs,
    Count,
    DurationUs,
    EventTime,
    FileName,
    Fingerprint,
    FunctionName,
    GuardSource,
    LineNumber,
    ProcessId,
    RecompiledFrom,
    RunId,
    SequenceNumber,
    SourceLine,
    Suggestion,
    TimeUs,
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
from compileboard.app.queries.page import Page, check_order, decode_cursor, make_page, recorded_us
from compileboard.app.queries.parameters import OTHER_KEYS, Parameter, check_keys, list_names, read_filter
from compileboard.collectors.contract.categories import BY_NAME

# What the list may be ordered by; each is never null.
ORDERS = {
    "recompiles": "recompile_count",
    "guard_failures": "guard_failure_count",
    "runs": "run_count",
    "compile_time": "compile_us",
    "last": "last_us",
    "first": "first_us",
}


@dataclass(frozen=True)
class CauseFilter:
    """Which causes, in which runs; None is no limit."""

    runs: RunFilter
    text: Annotated[str | None, Parameter("q"), "Text to look for; capitals do not matter."] = None
    category: Annotated[str | None, Parameter(choices=tuple(BY_NAME)), "What kind of guard failed."] = None
    function: Annotated[str | None, "Part of `file:function`; capitals do not matter."] = None


FILTERS = list_names(CauseFilter)


@dataclass(frozen=True)
class RecompileCause(CategoryMeaning):
    """One cause of recompiles with what it came to in the runs looked at.

    `recompile_count` counts recompiles whose newest cache entry failed on it, so that each recompile has one cause;
    `guard_failure_count` counts every cache entry that failed on it. `limit_count` is of its function.
    """

    id: Annotated[int, "Number in this database."]
    fingerprint: Fingerprint
    category: Category
    source: GuardSource
    reason: Annotated[str, "The failed guard in torch's words, as first seen."]
    suggestion: Suggestion
    function: FunctionName
    file: FileName
    recompile_count: Annotated[Count, "Recompiles whose newest cache entry failed on it: each recompile has one cause."]
    guard_failure_count: Annotated[Count, "Cache entries that failed on it."]
    run_count: Annotated[Count, "Runs that have it."]
    compile_us: CompilesUs
    first_us: Annotated[TimeUs, "Start of the first run that has it."]
    last_us: Annotated[TimeUs, "Start of the last run."]
    limit_count: Annotated[Count, "Compiles of its function that hit the recompile limit."]


@dataclass(frozen=True)
class CauseSummary:
    """Sums."""

    cause_count: Annotated[Count, "Causes."]
    function_count: Annotated[Count, "Functions."]
    run_count: Annotated[Count, "Runs that have any."]
    recompile_count: Annotated[Count, "Recompiles."]
    guard_failure_count: Annotated[Count, "Failed cache entries."]
    compile_us: Annotated[DurationUs | None, "Time of the compiles that had them."]
    limit_count: Annotated[Count, "Compiles that hit the recompile limit, of all functions."]


MATCHING = """
matching as materialized (
  select c.id, c.category, c.function_id
  from recompile_causes as c
  left join functions as f on f.id = c.function_id
  where (:category is null or c.category = :category)
    and (:function is null or instr(lower(coalesce(f.file, '') || ':' || coalesce(f.name, '')), lower(:function)))
    and (:cause_text is null
      or instr(lower(coalesce(c.source, '')), lower(:cause_text))
      or instr(lower(c.reason), lower(:cause_text))
      or instr(lower(coalesce(c.suggestion, '')), lower(:cause_text))
      or instr(lower(coalesce(f.file, '') || ':' || coalesce(f.name, '')), lower(:cause_text)))
)
"""
LIMITS = """
limits as materialized (
  select u.function_id, sum(u.recompile_limit_count) as limit_count
  from wanted as w
  cross join run_functions as u on u.run_id = w.id
  where u.recompile_limit_count > 0
  group by u.function_id
)
"""
FOUND = f"""
with {WANTED}, {MATCHING}, {LIMITS}, per_cause as materialized (
  select
    b.cause_id,
    sum(b.recompile_count) as recompile_count,
    sum(b.guard_failure_count) as guard_failure_count,
    count(*) as run_count,
    sum(b.compile_us) as compile_us,
    min(w.started_us) as first_us,
    max(w.started_us) as last_us
  from wanted as w
  cross join run_causes as b on b.run_id = w.id
  group by b.cause_id
), found as (
  select
    p.cause_id as id, p.recompile_count, p.guard_failure_count, p.run_count, p.compile_us, p.first_us, p.last_us
  from per_cause as p
  join matching as m on m.id = p.cause_id
)
"""  # noqa: S608  own texts only
CELLS_SQL = f"""
with {WANTED_SLOTS}
select b.cause_id, w.slot, b.recompile_count, b.guard_failure_count, b.compile_us
from wanted as w
cross join run_causes as b on b.run_id = w.id
limit 2000000
"""  # noqa: S608
THINGS_SQL = f"""
with {MATCHING}
select id, category, function_id, null as gb_id
from matching
order by id
limit 200000
"""  # noqa: S608
SCOPE_SQL = f"""
with {WANTED}, {MATCHING}
select
  (
    select count(*)
    from wanted as w
    where exists (
      select 1
      from run_causes as b
      where b.run_id = w.id
        and +b.cause_id in (select id from matching) -- +: walk the run's causes, no seek for each matching one
    )
  ) as run_count,
  (
    select coalesce(sum(t.recompile_limit_count), 0)
    from wanted as w
    cross join run_totals as t on t.run_id = w.id
  ) as limit_count
"""  # noqa: S608


def read_cause_filter(query: Mapping[str, str]) -> CauseFilter:
    """Turn an address's query into a filter, the same for the page and the API.

    Raises: FilterError if a key is unknown or a value cannot be used.
    """
    check_keys(query, FILTERS, OTHER_KEYS)
    return read_filter(CauseFilter, query)


def _bind_causes(wanted: CauseFilter) -> dict[str, Any]:
    own = {"cause_text": wanted.text, "category": wanted.category, "function": wanted.function}
    return bind_runs(wanted.runs) | own


def causes_sql(order: str, up: bool, after: bool) -> str:
    """Write the list's statement for one order; public for the query-plan test."""
    key, direction, sign = ORDERS[order], "asc" if up else "desc", ">" if up else "<"
    behind = f"where ({key}, id) {sign} (:after_key, :after_id)" if after else ""
    return f"""
{FOUND}, page as materialized (
  select id, recompile_count, guard_failure_count, run_count, compile_us, first_us, last_us
  from found
  {behind}
  order by {key} {direction}, id {direction}
  limit :limit
)
select
  p.id, c.fingerprint, c.category, c.source, c.reason, c.suggestion, f.name as function, f.file,
  p.recompile_count, p.guard_failure_count, p.run_count,
  {recorded_us("p.compile_us", "p.recompile_count")} as compile_us, p.first_us, p.last_us,
  coalesce(l.limit_count, 0) as limit_count
from page as p
join recompile_causes as c on c.id = p.id
left join functions as f on f.id = c.function_id
left join limits as l on l.function_id = c.function_id
order by p.{key} {direction}, p.id {direction}
limit :limit
"""  # noqa: S608


def list_causes(
    connection: sqlite3.Connection,
    wanted: CauseFilter,
    *,
    sort: str = "recompiles",
    cursor: str | None = None,
    limit: int = 50,
) -> Page[RecompileCause]:
    """List causes; `sort` is a name in ORDERS, largest first, or that name with ".asc".

    Raises: FilterError if the sort or the cursor cannot be used.
    """
    order, direction = check_order(sort, ORDERS)
    after = decode_cursor(cursor, int, int)
    values = _bind_causes(wanted) | {"limit": limit + 1}
    if after:
        values |= {"after_key": after[0], "after_id": after[1]}
    found = connection.execute(causes_sql(order, direction == "asc", after is not None), values)
    rows = [RecompileCause(**dict(row)) for row in found]
    return make_page(rows, limit, lambda cause: (getattr(cause, ORDERS[order]) or 0, cause.id))


def get_cause_trends(
    connection: sqlite3.Connection, wanted: CauseFilter, slots: list[Slot]
) -> tuple[CauseSummary, TrendGrid]:
    """Sum over all causes of a filter, and draw the trend of each and of each category."""
    values = _bind_causes(wanted)
    scope = dict(connection.execute(SCOPE_SQL, values).fetchone())
    cells = add_up(SqliteEngine(connection), CELLS_SQL, THINGS_SQL, values | bind_slots(wanted.runs, slots), slots)
    recompile_count = sum(kind.count for kind in cells.kinds)
    summary = CauseSummary(
        **scope,
        cause_count=len(cells.counts),
        function_count=cells.function_count,
        recompile_count=recompile_count,
        guard_failure_count=sum(kind.guard_failure_count for kind in cells.kinds),
        compile_us=sum(kind.compile_us for kind in cells.kinds) or (None if recompile_count else 0),
    )
    return summary, cells


GET_SQL = f"""
select
  c.id, c.fingerprint, c.category, c.source, c.reason, c.suggestion, f.name as function, f.file,
  sum(b.recompile_count) as recompile_count,
  sum(b.guard_failure_count) as guard_failure_count,
  count(*) as run_count,
  {recorded_us("sum(b.compile_us)", "sum(b.recompile_count)")} as compile_us,
  min(r.started_us) as first_us,
  max(r.started_us) as last_us,
  (
    select coalesce(sum(u.recompile_limit_count), 0)
    from run_functions as u
    where u.function_id = c.function_id
  ) as limit_count
from recompile_causes as c
join run_causes as b on b.cause_id = c.id
join runs as r on r.id = b.run_id
left join functions as f on f.id = c.function_id
where c.id = :id
group by c.id
limit 1
"""  # noqa: S608  own texts only
RUNS_SQL = f"""
select
  r.id, r.name, a.title, r.suite, {SHOWN_STATE} as state, r.started_us, r.torch_version, r.host, r.git_commit,
  b.recompile_count as count,
  {recorded_us("b.compile_us", "b.recompile_count")} as compile_us,
  coalesce(a.pinned, 0) as pinned
from run_causes as b
join runs as r on r.id = b.run_id
left join run_annotations as a on a.run_id = r.id
where b.cause_id = :id
  and (:after_us is null or (r.started_us, r.id) < (:after_us, :after_id))
order by r.started_us desc, r.id desc
limit :limit
"""  # noqa: S608
# Runs of the same suite and name that do not have it count as 0: that is how one sees that it is gone.
HISTORY_SQL = """
with series as materialized (
  select distinct r.suite, r.name
  from run_causes as b
  join runs as r on r.id = b.run_id
  where b.cause_id = :id
)
select r.id as run_id, r.name, a.title, r.started_us, coalesce(b.recompile_count, 0) as count
from series as s
cross join runs as r on r.suite is s.suite and r.name = s.name
left join run_causes as b on b.run_id = r.id and b.cause_id = :id
left join run_annotations as a on a.run_id = r.id
order by r.started_us desc, r.id desc
limit :newest
"""
EVENTS_SQL = """
with newest as materialized (
  select g.recompile_id, g.position
  from guard_failures as g
  where g.cause_id = :id
  order by g.recompile_id desc, g.position desc
  limit :limit
)
select
  e.id, e.run_id, e.process_id, e.sequence, e.compile_key, e.compile_id, e.recompiled_from, e.time_us,
  g.position, g.cache_entry, g.reason, g.expected, g.actual, g.source_line, g.line,
  c.outcome as compile_outcome, nullif(c.total_us, 0) as compile_us
from newest as n
join guard_failures as g on g.recompile_id = n.recompile_id and g.position = n.position
join recompiles as e on e.id = n.recompile_id
left join compiles as c on c.id = e.compile_key
order by e.id desc, g.position desc
limit :limit
"""
VALUES_SQL = """
with newest as materialized (
  select g.expected, g.actual
  from guard_failures as g
  where g.cause_id = :id
  order by g.recompile_id desc, g.position desc
  limit 1000
)
select expected, actual, count(*) as count
from newest
where expected is not null or actual is not null
group by expected, actual
order by count desc, expected, actual
limit :limit
"""


@dataclass(frozen=True)
class CauseEvent:
    """One guard failure and the recompile it led to."""

    id: Annotated[int, "`id` of the recompile."]
    run_id: RunId
    process_id: ProcessId
    sequence: SequenceNumber
    compile_key: CompileKey
    compile_id: CompileId
    recompiled_from: RecompiledFrom
    time_us: EventTime
    position: Annotated[Count, "0 is the newest cache entry."]
    cache_entry: Annotated[str | None, "Compile id of the cache entry."]
    reason: Annotated[str, "The failed guard."]
    expected: Annotated[str | None, "Expected."]
    actual: Annotated[str | None, "Came."]
    source_line: SourceLine
    line: LineNumber
    compile_outcome: Annotated[str | None, "What became of the compile."]
    compile_us: CompileUs


@dataclass(frozen=True)
class ValueChange:
    """What a guard expected and what came."""

    expected: Annotated[str | None, "Expected."]
    actual: Annotated[str | None, "Came."]
    count: Annotated[Count, "How often."]


def get_cause(connection: sqlite3.Connection, cause_id: int) -> RecompileCause | None:
    """Return one cause over all runs, or None if no run has it."""
    row = connection.execute(GET_SQL, {"id": cause_id}).fetchone()
    return RecompileCause(**dict(row)) if row else None


def list_cause_events(connection: sqlite3.Connection, cause_id: int, *, limit: int = 20) -> list[CauseEvent]:
    """List the newest guard failures of a cause."""
    return [CauseEvent(**dict(row)) for row in connection.execute(EVENTS_SQL, {"id": cause_id, "limit": limit})]


def list_value_changes(connection: sqlite3.Connection, cause_id: int, *, limit: int = 12) -> list[ValueChange]:
    """List the pairs of expected and actual value among the newest thousand failures, most frequent first."""
    return [ValueChange(**dict(row)) for row in connection.execute(VALUES_SQL, {"id": cause_id, "limit": limit})]
