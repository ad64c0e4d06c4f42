"""Which benchmarked models a graph break or a cause of recompiles came in, newest: where mending it pays."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

# The newest runs alone: a nightly suite may have had a break for years, and it is the newest speedup that counts.
_RUNS, _MODELS = 10, 50

_REST = """
, tasks as materialized (
  select e.run_id, newest.started_us, p.task, count(*) as event_count
  {events}
  join processes as p on p.id = e.process_id
  where p.task is not null
  group by e.run_id, p.task
)
select
  s.suite, s.model, nullif(s.mode, '') as mode, nullif(s.dtype, '') as dtype, nullif(s.device, '') as device,
  nullif(s.backend, '') as backend, x.run_id, t.started_us, max(t.event_count) as event_count,
  max(x.speedup) as speedup, max(x.status = 'failed') as failed
from tasks as t
cross join results as x on x.run_id = t.run_id and x.task = t.task
join series as s on s.id = x.series_id
group by s.suite, s.model, s.mode, s.dtype, s.device, s.backend, x.run_id
order by t.started_us desc, x.run_id desc, speedup is null, speedup, s.model
"""
_NEWEST = """
with newest as materialized (
  select b.run_id, r.started_us
  from {kept} as b
  join run_totals as t on t.run_id = b.run_id and t.result_count > 0
  join runs as r on r.id = b.run_id
  where b.{key} = :id
  order by r.started_us desc, b.run_id desc
  limit :runs
)
"""
BREAKS_SQL = _NEWEST.format(kept="run_breaks", key="distinct_id") + _REST.format(
    events="""from newest
  cross join graph_breaks as e on e.run_id = newest.run_id and e.distinct_id = :id"""
)
CAUSES_SQL = _NEWEST.format(kept="run_causes", key="cause_id") + _REST.format(
    events="""from newest
  cross join recompiles as e on e.run_id = newest.run_id
  join guard_failures as g on g.recompile_id = e.id and g.position = 0 and g.cause_id = :id"""
)


@dataclass(frozen=True)
class AffectedModel:
    """Hold one model in the newest run in which it had something, with its speedup there."""

    suite: str
    model: str
    mode: str | None
    dtype: str | None
    device: str | None
    backend: str | None
    run_id: str
    started_us: int
    event_count: int
    speedup: float | None
    failed: bool

    @property
    def query(self) -> dict[str, str]:
        """Return what the address of the model's page needs beside its name."""
        said = {name: getattr(self, name) for name in ("suite", "mode", "dtype", "device", "backend")}
        return {name: value for name, value in said.items() if value} | {"run": self.run_id}


def list_affected_models(connection: sqlite3.Connection, sql: str, thing_id: int) -> list[AffectedModel]:
    """List each model once, of the newest run first, there the slowest first; `sql` is one of the two here."""
    found: dict[tuple[object, ...], AffectedModel] = {}
    for row in connection.execute(sql, {"id": thing_id, "runs": _RUNS}):
        it = AffectedModel(**(dict(row) | {"failed": bool(row["failed"])}))
        found.setdefault((it.suite, it.model, it.mode, it.dtype, it.device, it.backend), it)
    return list(found.values())[:_MODELS]
