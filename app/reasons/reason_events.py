"""One reason in the records of runs: its newest events, guard values, and affected models."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.core.engine import Engine
from compileboard.app.core.fields import Count
from compileboard.app.core.rows import list_rows, make_row
from compileboard.app.reasons.queries import ReasonSubject

_VALUES_SQL = """
with newest as materialized (
  select expected, actual
  from recompiles
  where cause_id = :id
  order by id desc
  limit 1000
)
select expected, actual, count(*) as count
from newest
where expected is not null or actual is not null
group by expected, actual
order by count desc, expected, actual
limit :limit
"""
# Only of the newest runs: a nightly suite may have had a break for years, and the newest speedup
# counts.
_RUNS, _MODELS, _MAX_VALUES = 10, 50, 1000


@dataclass(frozen=True)
class ValueChange:
    """A guard's expected and actual value."""

    expected: Annotated[str | None, "Value that the guard was compiled for."]
    actual: Annotated[str | None, "Value that the call had, for which the guard failed."]
    count: Annotated[Count, "Guard failures with this pair."]


@dataclass(frozen=True)
class AffectedModel:
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
        parts = {
            name: getattr(self, name) for name in ("suite", "mode", "dtype", "device", "backend")
        }
        return {name: value for name, value in parts.items() if value} | {"run": self.run_id}


def list_events(
    files: Iterable[sqlite3.Connection],
    subject: ReasonSubject,
    reason_id: int,
    *,
    limit: int = 20,
) -> list[Any]:
    listed = [
        list_rows(subject.event, subject.events_sql, file, id=reason_id, limit=limit)
        for file in files
    ]
    if len(listed) == 1:
        return listed[0]
    merged: list[Any] = [event for events in listed for event in events]
    return sorted(merged, key=lambda event: (event.time_us, event.id), reverse=True)[:limit]


def list_value_changes(
    files: Iterable[sqlite3.Connection], cause_id: int, *, limit: int = 12
) -> list[ValueChange]:
    counts: Counter[tuple[str | None, str | None]] = Counter()
    for file in files:
        for expected, actual, count in file.execute(
            _VALUES_SQL, {"id": cause_id, "limit": _MAX_VALUES}
        ):
            counts[expected, actual] += count
    ordered = sorted(
        counts.items(),
        key=lambda pair: (-pair[1], [(value is not None, value) for value in pair[0]]),
    )
    return [ValueChange(*values, count) for values, count in ordered[:limit]]


def benchmarks_sql(subject: ReasonSubject) -> str:
    return f"""
select b.run_id
from $stored({subject.run_table}) as b
join runs as r on $of(b, r)
$totals
where b.{subject.key} = :id
  and $t.result_count > 0
  and r.source <> 'trial'
order by r.started_us desc, b.run_id desc
limit :limit
"""  # noqa: S608  own texts only


def list_benchmarks(engine: Engine, subject: ReasonSubject, reason_id: int) -> list[str]:
    return [
        str(run_id)
        for (run_id,) in engine.rows(benchmarks_sql(subject), {"id": reason_id, "limit": _RUNS})
    ]


def affected_sql(subject: ReasonSubject) -> str:
    return f"""
with newest as materialized (
  select r.id as run_id, r.started_us
  from json_each(:run_ids) as wanted
  join runs as r on r.id = wanted.value
), tasks as materialized (
  select e.run_id, newest.started_us, p.task, count(*) as event_count
  from newest
  {subject.events_of_newest}
  join processes as p on p.id = e.process_id
  where p.task is not null
  group by e.run_id, p.task
)
select
  s.suite, s.model, nullif(s.mode, '') as mode, nullif(s.dtype, '') as dtype,
  nullif(s.device, '') as device,
  nullif(s.backend, '') as backend, x.run_id, t.started_us, max(t.event_count) as event_count,
  max(x.speedup) as speedup, max(x.status = 'failed') as failed
from tasks as t
cross join results as x on x.run_id = t.run_id and x.task = t.task
join series as s on s.id = x.series_id
group by s.suite, s.model, s.mode, s.dtype, s.device, s.backend, x.run_id
order by t.started_us desc, x.run_id desc, speedup is null, speedup, s.model
"""  # noqa: S608  own texts only


def list_affected_models(
    groups: Iterable[tuple[sqlite3.Connection, Sequence[str]]],
    subject: ReasonSubject,
    reason_id: int,
) -> list[AffectedModel]:
    listed = []
    for file, run_ids in groups:
        rows = file.execute(
            affected_sql(subject), {"id": reason_id, "run_ids": json.dumps(run_ids)}
        )
        listed += [make_row(AffectedModel, row) for row in rows]
    listed.sort(
        key=lambda model: (model.started_us, model.run_id), reverse=True
    )  # a run's own stay in their order
    models: dict[tuple[object, ...], AffectedModel] = {}
    for model in listed:
        models.setdefault(
            (model.suite, model.model, model.mode, model.dtype, model.device, model.backend), model
        )
    return list(models.values())[:_MODELS]
