"""Lasting changes of series, which are the evidence of incidents."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import orjson

from compileboard.app.core.schema import PRIVATE, one_of

STATES = ("unconfirmed", "confirmed", "withdrawn")
DIRECTIONS = ("worse", "better", "changed")
KINDS = ("step", "drift", "vanished")
SUBJECTS = ("model", "suite", "runs")

_COLUMNS = """
  c.id, c.kind, c.direction, c.state, c.subject, c.suite, c.model, c.mode, c.dtype, c.device,
  c.hardware, c.backend, c.dynamic, c.batch_size, c.world_size, c.branch, c.metric, c.before_value,
  c.after_value, c.relative, c.p_value, c.before_run_id, c.first_run_id, c.low_run_id,
  c.high_run_id, c.recovered_run_id, c.first_us, c.found_us, c.confirmed_us, c.noticed_us,
  c.changed_us, c.incident_id, c.evidence
"""
SERIES_SQL = f"""
select {_COLUMNS}
from json_each(:models) as wanted
join series_changes as c on c.subject = :subject and c.suite = :suite and c.model = wanted.value
where c.state <> 'withdrawn'
order by c.first_us desc, c.id desc
limit :limit
"""  # noqa: S608  own texts only
OF_INCIDENTS_SQL = f"""
select {_COLUMNS}
from json_each(:ids) as wanted
join series_changes as c on c.incident_id = wanted.value
order by c.id
limit 100000
"""  # noqa: S608 - our own names
WORSE_SQL = """
select
  c.suite, c.model, c.mode, c.dtype, c.device, c.hardware, c.backend, c.dynamic, c.batch_size,
  c.world_size,
  c.branch, max(c.first_us, i.first_us) as first_us, i.recovered_us
from json_each(:ids) as wanted
join incidents as i on i.id = wanted.value
join series_changes as c on c.incident_id = i.id
where c.subject = 'model'
  and c.direction = 'worse'
  and c.state = 'confirmed'
  and (c.recovered_run_id is null or i.recovered_us is not null)
order by c.id
limit 100000
"""
GET_SQL = f"""
select {_COLUMNS}
from series_changes as c
where c.id = :id
"""  # noqa: S608 - our own names
ALL_SQL = f"""
select {_COLUMNS}
from series_changes as c
order by c.id
limit 1000000
"""  # noqa: S608 - our own names


@dataclass(frozen=True)
class SeriesChange:
    """A change of one series. An empty text or a 0 in the series' fields means not recorded.

    The change came with `first_run_id`, or anywhere from `low_run_id` to `high_run_id`. It is
    confirmed when a later run still shows it: `confirmed_us` is of that run, `noticed_us` when it
    was found.
    """

    tables = ("series_changes",)

    id: str
    kind: Annotated[str, one_of(KINDS)]
    direction: Annotated[str, one_of(DIRECTIONS)]
    state: Annotated[str, one_of(STATES)]
    subject: Annotated[str, one_of(SUBJECTS)]
    suite: str
    model: str
    mode: str
    dtype: str
    device: str
    hardware: str
    backend: str
    dynamic: bool
    batch_size: int
    world_size: int
    branch: str
    metric: str
    before_value: float | None
    after_value: float | None
    relative: float | None
    p_value: float | None
    before_run_id: str | None
    first_run_id: str
    low_run_id: str | None
    high_run_id: str | None
    recovered_run_id: str | None
    first_us: int
    found_us: int
    confirmed_us: int | None
    noticed_us: int | None
    changed_us: int
    incident_id: str | None
    evidence: dict[str, Any] = field(metadata=PRIVATE)  # app.incidents.evidence says what is in it

    @property
    def may_be_back(self) -> tuple[str, str] | None:
        """Return between which runs it ended, where it rather seems to be over; else None."""
        span = self.evidence.get("may_be_back")
        return (span[0], span[1]) if span else None


@dataclass(frozen=True)
class WorseChange:
    suite: str
    model: str
    mode: str
    dtype: str
    device: str
    hardware: str
    backend: str
    dynamic: int
    batch_size: int
    world_size: int
    branch: str
    first_us: int
    recovered_us: int | None

    @property
    def key(self) -> tuple[str | int, ...]:
        return tuple(vars(self).values())[:-3]

    def covers(self, started_us: int) -> bool:
        return self.first_us <= started_us and (
            self.recovered_us is None or started_us < self.recovered_us
        )


def list_series_changes(
    connection: sqlite3.Connection,
    subject: str,
    suite: str,
    models: Sequence[str] = ("",),
    limit: int = 200,
) -> list[SeriesChange]:
    values = {
        "subject": subject,
        "suite": suite,
        "models": json.dumps(list(models)),
        "limit": limit,
    }
    return [_read(row) for row in connection.execute(SERIES_SQL, values)]


def list_changes_of(
    connection: sqlite3.Connection, incident_ids: Iterable[str]
) -> list[SeriesChange]:
    values = {"ids": json.dumps(list(incident_ids))}
    return [_read(row) for row in connection.execute(OF_INCIDENTS_SQL, values)]


def list_worse_changes(
    connection: sqlite3.Connection, incident_ids: Sequence[str]
) -> list[WorseChange]:
    return [
        WorseChange(*row)
        for row in connection.execute(WORSE_SQL, {"ids": json.dumps(list(incident_ids))})
    ]


def get_change(connection: sqlite3.Connection, change_id: str) -> SeriesChange | None:
    row = connection.execute(GET_SQL, {"id": change_id}).fetchone()
    return _read(row) if row else None


def load_changes(connection: sqlite3.Connection) -> list[SeriesChange]:
    return [_read(row) for row in connection.execute(ALL_SQL)]


def _read(row: sqlite3.Row) -> SeriesChange:
    values = dict(row)
    return SeriesChange(
        **(
            values
            | {"dynamic": bool(values["dynamic"]), "evidence": orjson.loads(values["evidence"])}
        )
    )
