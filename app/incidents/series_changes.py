"""Lasting changes of series, which are the evidence of incidents."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import orjson

from compileboard.app.core.fields import Count, TimeUs
from compileboard.app.core.schema import PRIVATE, one_of

STATES = ("unconfirmed", "confirmed", "withdrawn")
DIRECTIONS = ("worse", "better", "changed")
KINDS = ("step", "drift", "vanished")
SUBJECTS = ("model", "suite", "runs")

_COLUMNS = """
  c.id, c.kind, c.direction, c.state, c.subject, c.suite, c.model, c.mode, c.dtype, c.device, c.hardware,
  c.backend, c.dynamic, c.batch_size, c.world_size, c.branch, c.metric, c.before_value, c.after_value, c.relative,
  c.p_value, c.before_run_id, c.first_run_id, c.low_run_id, c.high_run_id, c.recovered_run_id, c.first_us, c.found_us,
  c.confirmed_us, c.noticed_us, c.changed_us, c.incident_id, c.evidence
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

    id: Annotated[str, "Its ID; stable while more runs refine the change."]
    kind: Annotated[str, one_of(KINDS), "Change point, gradual change, or stopped reporting."]
    direction: Annotated[str, one_of(DIRECTIONS), "Which way."]
    state: Annotated[str, one_of(STATES), "What detection thinks of it."]
    subject: Annotated[
        str,
        one_of(SUBJECTS),
        "What the series is of: a model, a suite, or the observed runs of one name.",
    ]
    suite: Annotated[str, "The suite."]
    model: Annotated[str, "The model, or the name of the runs."]
    mode: Annotated[str, "`inference` or `training`."]
    dtype: Annotated[str, "Its dtype."]
    device: Annotated[str, "`cpu` or `cuda`."]
    hardware: Annotated[str, "The GPU's model, or the processor's."]
    backend: Annotated[str, "The backend with its config label."]
    dynamic: Annotated[bool, "Whether shapes were dynamic."]
    batch_size: Annotated[Count, "The batch size."]
    world_size: Annotated[Count, "Ranks."]
    branch: Annotated[str, "The branch."]
    metric: Annotated[str, "The metric's name."]
    before_value: Annotated[float | None, "The level before."]
    after_value: Annotated[float | None, "The level after; null where it is no longer measured."]
    relative: Annotated[float | None, "(after − before) ÷ |before|; null where before is 0."]
    p_value: Annotated[
        float | None, "How often noise makes such a change; null where it is no longer measured."
    ]
    before_run_id: Annotated[str | None, "The newest run surely before."]
    first_run_id: Annotated[str, "The first run after."]
    low_run_id: Annotated[str | None, "The earliest run that may be the first after."]
    high_run_id: Annotated[str | None, "The latest."]
    recovered_run_id: Annotated[str | None, "The first run back at the level before."]
    first_us: Annotated[TimeUs, "When the first run after started."]
    found_us: Annotated[TimeUs, "When it was first found."]
    confirmed_us: Annotated[TimeUs | None, "When the run started that confirmed it."]
    noticed_us: Annotated[TimeUs | None, "When that was found out."]
    changed_us: Annotated[TimeUs, "When detection last wrote it."]
    incident_id: Annotated[str | None, "The incident that it is evidence of."]
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
