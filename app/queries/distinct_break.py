"""One distinct graph break: its totals, the runs it came in, how it went from run to run, its newest events."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from compileboard.app.queries.graph_breaks import DistinctBreak, to_break
from compileboard.app.queries.page import Page, decode_cursor, make_page

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
RUNS_SQL = """
select
  r.id, r.name, a.title, r.suite, r.state, r.started_us, r.torch_version, r.host, r.git_commit,
  b.break_count as count, nullif(b.compile_us, 0) as compile_us, coalesce(a.pinned, 0) as pinned
from run_breaks as b
join runs as r on r.id = b.run_id
left join run_annotations as a on a.run_id = r.id
where b.distinct_id = :id
  and (:after_us is null or (r.started_us, r.id) < (:after_us, :after_id))
order by r.started_us desc, r.id desc
limit :limit
"""
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
    """Hold one run with how often something came in it, and the time of the compiles that had it."""

    id: str
    name: str
    title: str | None
    suite: str | None
    state: str
    started_us: int
    torch_version: str | None
    host: str | None
    git_commit: str | None
    count: int
    compile_us: int | None
    pinned: bool

    @property
    def shown_name(self) -> str:
        """Return what a person called the run, else its own name."""
        return self.title or self.name


@dataclass(frozen=True)
class HistoryPoint:
    """Hold how often something came in one run, 0 where it did not."""

    run_id: str
    name: str
    title: str | None
    started_us: int
    count: int


@dataclass(frozen=True)
class BreakEvent:
    """Hold one graph break as it happened."""

    id: int
    run_id: str
    process_id: str
    sequence: int
    compile_key: int | None
    compile_id: str | None
    line: int | None
    outcome: str
    time_us: int
    compile_outcome: str | None
    compile_us: int | None


def get_distinct_break(connection: sqlite3.Connection, distinct_id: int) -> DistinctBreak | None:
    """Return one distinct break over all runs, or None if no run has it."""
    row = connection.execute(GET_SQL, {"id": distinct_id}).fetchone()
    return to_break(row) if row else None


def list_affected(
    connection: sqlite3.Connection, sql: str, thing_id: int, *, cursor: str | None = None, limit: int = 50
) -> Page[AffectedRun]:
    """List the runs that have something, newest first; `sql` is RUNS_SQL here or that of recompile_cause.

    Raises: FilterError if the cursor cannot be used.
    """
    after = decode_cursor(cursor, int, str) or (None, None)
    values = {"id": thing_id, "after_us": after[0], "after_id": after[1], "limit": limit + 1}
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
