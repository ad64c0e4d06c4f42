"""How often a function was recompiled, a graph break came or a kind of guard failed, run by run."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from compileboard.app.queries import distinct_break
from compileboard.app.queries.distinct_break import HistoryPoint

# Runs of the same suite and name that do not have the function count as 0, as in distinct_break.HISTORY_SQL.
FUNCTION_SQL = """
with series as materialized (
  select distinct r.suite, r.name
  from run_functions as b
  join runs as r on r.id = b.run_id
  where b.function_id = :id
)
select r.id as run_id, r.name, a.title, r.started_us, coalesce(b.recompile_count, 0) as count
from series as s
cross join runs as r on r.suite is s.suite and r.name = s.name
left join run_functions as b on b.run_id = r.id and b.function_id = :id
left join run_annotations as a on a.run_id = r.id
order by r.started_us desc, r.id desc
limit :newest
"""
# Of runs in which something was compiled: in the others no guard can have failed.
CATEGORY_SQL = """
with newest as materialized (
  select r.id, r.name, r.started_us
  from runs as r
  join run_totals as t on t.run_id = r.id
  where t.compile_count > 0
    and (:suite is null or r.suite = :suite)
  order by r.started_us desc, r.id desc
  limit :newest
), failed as (
  select n.id, sum(b.guard_failure_count) as count
  from newest as n
  cross join run_causes as b on b.run_id = n.id
  join recompile_causes as c on c.id = b.cause_id
  where c.category = :category
  group by n.id
)
select n.id as run_id, n.name, a.title, n.started_us, coalesce(f.count, 0) as count
from newest as n
left join failed as f on f.id = n.id
left join run_annotations as a on a.run_id = n.id
order by n.started_us desc, n.id desc
limit :newest
"""
LABEL_SQL = {
    "function": "select name || ' in ' || file as label from functions where id = :id",
    "break": """
select coalesce(gb_id || ': ', '') || coalesce(gb_type, reason) as label
from distinct_breaks
where id = :id
""",
}
_HISTORY_SQL = {"function": FUNCTION_SQL, "break": distinct_break.HISTORY_SQL}


@dataclass(frozen=True)
class Counted:
    """Hold what is counted in every run: its name, and a point a run, the oldest first."""

    label: str
    points: list[HistoryPoint]


def count_runs(connection: sqlite3.Connection, kind: str, thing_id: int, *, newest: int) -> Counted | None:
    """Count the recompiles of a `function`, or the occurrences of a `break`, in the newest runs; None if unknown."""
    row = connection.execute(LABEL_SQL[kind], {"id": thing_id}).fetchone()
    if row is None:
        return None
    return Counted(
        str(row["label"]), distinct_break.list_history(connection, _HISTORY_SQL[kind], thing_id, newest=newest)
    )


def count_guard_failures(
    connection: sqlite3.Connection, category: str, suite: str | None = None, *, newest: int
) -> list[HistoryPoint]:
    """Count the failed guards of a category in the newest runs, the oldest first."""
    values = {"category": category, "suite": suite, "newest": newest}
    rows = connection.execute(CATEGORY_SQL, values).fetchall()
    return [HistoryPoint(**dict(row)) for row in reversed(rows)]
