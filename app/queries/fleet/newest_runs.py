"""The newest run that has ended of each suite and name, with its counts."""

from __future__ import annotations

from typing import NamedTuple

from compileboard.app.queries.engine import Engine

NEWEST_OF_NAMES_SQL = """
select
  r.suite, r.name, r.started_us, $t.compile_count, $t.graph_break_count, $t.recompile_count,
  $t.failure_count,
  $t.compile_us
from (
  select suite, name, max(started_us) as started_us
  from runs
  where state <> 'running'
    and source <> 'trial'
  group by suite, name
) as newest
join runs as r on r.name = newest.name and r.started_us = newest.started_us
  and r.suite $is newest.suite
$totals
where $t.compile_count > 0
order by r.started_us desc, r.id desc
limit :limit
"""


class NewestRun(NamedTuple):
    suite: str | None
    name: str
    started_us: int
    compile_count: int
    graph_break_count: int
    recompile_count: int
    failure_count: int
    compile_us: int


def list_newest_runs(engine: Engine, limit: int) -> list[NewestRun]:
    return [NewestRun(*row) for row in engine.rows(NEWEST_OF_NAMES_SQL, {"limit": limit})]
