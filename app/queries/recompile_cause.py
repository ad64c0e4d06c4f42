"""One cause of recompiles: its totals, the runs it came in, how it went from run to run, its newest recompiles."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from compileboard.app.queries.recompiles import RecompileCause
from compileboard.app.queries.recorded import recorded_us

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
  r.id, r.name, a.title, r.suite, r.state, r.started_us, r.torch_version, r.host, r.git_commit,
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
    """Hold one guard failure of a cause, with the recompile it led to."""

    id: int
    run_id: str
    process_id: str
    sequence: int
    compile_key: int | None
    compile_id: str | None
    recompiled_from: str | None
    time_us: int
    position: int
    cache_entry: str | None
    reason: str
    expected: str | None
    actual: str | None
    source_line: str | None
    line: int | None
    compile_outcome: str | None
    compile_us: int | None


@dataclass(frozen=True)
class ValueChange:
    """Hold what a guard expected and what came instead, and how often."""

    expected: str | None
    actual: str | None
    count: int


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
