"""Incidents, their triage, and the progress of detection."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, NamedTuple

import orjson

from compileboard.app.core import schema
from compileboard.app.core.page import Page, decode_cursor, make_page
from compileboard.app.core.parameters import (
    OTHER_KEYS,
    SINCE,
    SINCE_HELP,
    UNTIL,
    UNTIL_HELP,
    BranchName,
    HardwareName,
    Parameter,
    SuiteName,
    check_days,
    list_names,
    read_query,
)
from compileboard.app.incidents.model import (
    DIRECTIONS,
    STATES,
    STATUSES,
    CauseCheck,
    Comment,
    HeadlineMetric,
    Incident,
    IncidentCause,
    IncidentRun,
    SeriesChange,
)
from compileboard.collectors.store.incident_triage import SERIES

ACTIVE = "active"
CONFIRMED = "confirmed"
NOT_IGNORED = "not_ignored"
ANY = "any"
STATE_CHOICES = (ACTIVE, CONFIRMED, *STATES, ANY)
STATUS_CHOICES = (NOT_IGNORED, *STATUSES, ANY)
MAX_COMMENTS = 1000
Moment = Literal["first_us", "noticed_us"]

_COLUMNS = """
  i.id, i.direction, i.state, i.status, i.owner, i.reason, i.title, i.suite, i.branch, i.severity,
  i.lead_change_id, i.change_count, i.last_good_run_id, i.first_bad_run_id, i.recovered_run_id,
  i.first_us, i.recovered_us, i.found_us, i.confirmed_us, i.noticed_us, i.changed_us, i.evidence
"""
_OF_CHANGE = (
    "exists (select 1 from series_changes as c where c.incident_id = i.id and c.{0} = :{0})"
)
# Only conditions that are set are written: `(:x is null or …)` would keep SQLite from using an
# index.
_WANTED = {
    "state": "i.state = :state",
    "status": "i.status = :status",
    "direction": "i.direction = :direction",
    "suite": "i.suite = :suite",
    "branch": "i.branch = :branch",
    "model": _OF_CHANGE.format("model"),
    "metric": _OF_CHANGE.format("metric"),
    "hardware": _OF_CHANGE.format("hardware"),
    "run": "i.first_bad_run_id = :run",
    "since_us": "i.first_us >= :since_us",
    "before_us": "i.first_us < :before_us",
}
_EITHER = {
    ("state", ACTIVE): "i.state in ('open', 'unconfirmed')",
    ("state", CONFIRMED): "i.state in ('open', 'recovered', 'closed')",
    ("status", NOT_IGNORED): "i.status <> 'ignored'",
}
LIST_SQL = f"""
select {_COLUMNS}
from incidents as i
where (i.{{moment}}, i.id) < (:after_us, :after_id)
  and {{wanted}}
order by i.{{moment}} desc, i.id desc
limit :limit
"""  # noqa: S608  own texts only
WORST_SQL = f"""
select {_COLUMNS}
from incidents as i
where i.state = 'open'
  and i.status <> 'ignored'
order by i.severity, i.first_us desc, i.id
limit :limit
"""  # noqa: S608 - our own names
COUNTS_SQL = """
select
  count(*) as incident_count,
  coalesce(sum(state = 'open' and status <> 'ignored'), 0) as open_count,
  coalesce(sum(state = 'unconfirmed' and direction = 'worse' and status <> 'ignored'),
    0) as unconfirmed_count,
  coalesce(sum(state = 'recovered'), 0) as recovered_count,
  coalesce(sum(direction = 'better' and state <> 'withdrawn'), 0) as improvement_count
from incidents
limit 1
"""
CHOICES_SQL = """
select distinct suite, branch
from incidents
order by suite, branch
limit 5000
"""
GET_SQL = f"""
select {_COLUMNS}
from incidents as i
where i.id = :id
"""  # noqa: S608 - our own names
OF_CHANGE_SQL = "select incident_id from series_changes where id = :id"
ALL_SQL = f"""
select {_COLUMNS}
from incidents as i
order by i.id
limit 1000000
"""  # noqa: S608 - our own names
COMMENTS_SQL = """
select action, author, text, time_us
from incident_comments
where incident_id = :id
order by time_us, id
limit :limit
"""
COMMENTED_SQL = "select distinct incident_id from incident_comments limit 1000000"
DETECTION_SQL = "select seen, version, finished_us from detection where id = 1"
PUBLICATIONS_SQL = "select pub, removed_pub from publications where id = 1"
UNPUBLISHED_SQL = (
    "select exists (select 1 from published_runs where run_id not in (select id from runs))"
)
_CHANGE_COLUMNS = """
  c.id, c.kind, c.direction, c.state, c.subject, c.suite, c.model, c.mode, c.dtype, c.device,
  c.hardware, c.backend, c.dynamic, c.batch_size, c.world_size, c.branch, c.metric, c.before_value,
  c.after_value, c.relative, c.p_value, c.before_run_id, c.first_run_id, c.low_run_id,
  c.high_run_id, c.recovered_run_id, c.first_us, c.found_us, c.confirmed_us, c.noticed_us,
  c.changed_us, c.incident_id, c.evidence
"""
SERIES_SQL = f"""
select {_CHANGE_COLUMNS}
from json_each(:models) as wanted
join series_changes as c on c.subject = :subject and c.suite = :suite and c.model = wanted.value
where c.state <> 'withdrawn'
order by c.first_us desc, c.id desc
limit :limit
"""  # noqa: S608  own texts only
OF_INCIDENTS_SQL = f"""
select {_CHANGE_COLUMNS}
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
GET_CHANGE_SQL = f"""
select {_CHANGE_COLUMNS}
from series_changes as c
where c.id = :id
"""  # noqa: S608 - our own names
ALL_CHANGES_SQL = f"""
select {_CHANGE_COLUMNS}
from series_changes as c
order by c.id
limit 1000000
"""  # noqa: S608 - our own names


def _read_choice(_name: str, text: str) -> str | None:
    return None if text == ANY else text


@dataclass(frozen=True)
class IncidentFilter:
    """The filter of incidents. `state` and `status` may also be ACTIVE, CONFIRMED and
    NOT_IGNORED.
    """

    state: Annotated[
        str | None,
        Parameter(choices=STATE_CHOICES, default=ACTIVE, read=_read_choice),
        (
            "Detection state; `active` (the default) is open or unconfirmed; `confirmed` open, "
            "recovered or closed."
        ),
    ] = None
    status: Annotated[
        str | None,
        Parameter(choices=STATUS_CHOICES, default=NOT_IGNORED, read=_read_choice),
        "Triage status. Default: `not_ignored`.",
    ] = None
    direction: Annotated[
        str | None,
        Parameter(choices=DIRECTIONS),
        "`worse`, `better` or `changed`; only worse ones are ever open.",
    ] = None
    suite: SuiteName = None
    model: Annotated[str | None, "A model's exact name."] = None
    metric: Annotated[str | None, "A metric's name, whole: one of those that changed."] = None
    branch: BranchName = None
    hardware: HardwareName = None
    run: Annotated[str | None, "ID of the first bad run."] = None
    since_us: Annotated[int | None, SINCE, SINCE_HELP] = None
    before_us: Annotated[int | None, UNTIL, UNTIL_HELP] = None

    def check(self, query: Mapping[str, str]) -> None:
        """Raises FilterError if the last day is before the first."""
        check_days(query, self.since_us, self.before_us)

    @property
    def sql(self) -> str:
        given = [(name, value) for name in _WANTED if (value := getattr(self, name)) is not None]
        return (
            "\n  and ".join(_EITHER.get((name, value), _WANTED[name]) for name, value in given)
            or "true"
        )


@dataclass(frozen=True)
class IncidentCounts:
    incident_count: int
    open_count: int
    unconfirmed_count: int
    recovered_count: int
    improvement_count: int


@dataclass(frozen=True)
class DetectionProgress:
    seen: dict[str, Any]
    version: int
    finished_us: int


@dataclass(frozen=True)
class Publications:
    """The numbers of the newest publication of a run, and of the newest removal. Later numbers are
    larger.
    """

    pub: int
    removed_pub: int


def list_incidents(
    connection: sqlite3.Connection,
    selection: IncidentFilter,
    cursor: str | None = None,
    limit: int = 50,
    moment: Moment = "first_us",
) -> Page[Incident]:
    """List incidents, the one with the newest run first. Raises FilterError for an invalid
    cursor.
    """
    after_us, after_id = decode_cursor(cursor, int, str) or (2**62, "")
    values = {field.name: getattr(selection, field.name) for field in fields(selection)}
    values |= {"after_us": after_us, "after_id": after_id, "limit": limit + 1}
    rows = connection.execute(LIST_SQL.format(wanted=selection.sql, moment=moment), values)
    return make_page(
        [_read_incident(row) for row in rows],
        limit,
        lambda incident: (getattr(incident, moment), incident.id),
    )


def list_worst(connection: sqlite3.Connection, limit: int) -> list[Incident]:
    return [_read_incident(row) for row in connection.execute(WORST_SQL, {"limit": limit})]


def get_incident(connection: sqlite3.Connection, incident_id: str) -> Incident | None:
    row = connection.execute(GET_SQL, {"id": incident_id}).fetchone()
    return _read_incident(row) if row else None


def find_incident_of(connection: sqlite3.Connection, change_id: str) -> str | None:
    row = connection.execute(OF_CHANGE_SQL, {"id": change_id}).fetchone()
    return row["incident_id"] if row else None


def load_incidents(connection: sqlite3.Connection) -> list[Incident]:
    return [_read_incident(row) for row in connection.execute(ALL_SQL)]


def count_incidents(connection: sqlite3.Connection) -> IncidentCounts:
    return IncidentCounts(*connection.execute(COUNTS_SQL).fetchone())


def list_incident_choices(connection: sqlite3.Connection) -> dict[str, list[str]]:
    rows = connection.execute(CHOICES_SQL).fetchall()
    return {name: sorted({row[name] for row in rows if row[name]}) for name in ("suite", "branch")}


def list_comments(connection: sqlite3.Connection, incident_id: str) -> list[Comment]:
    return [
        Comment(*row)
        for row in connection.execute(COMMENTS_SQL, {"id": incident_id, "limit": MAX_COMMENTS})
    ]


def list_commented_ids(connection: sqlite3.Connection) -> set[str]:
    return {row["incident_id"] for row in connection.execute(COMMENTED_SQL)}


def get_detection(connection: sqlite3.Connection) -> DetectionProgress | None:
    row = connection.execute(DETECTION_SQL).fetchone()
    return (
        DetectionProgress(json.loads(row["seen"]), row["version"], row["finished_us"])
        if row
        else None
    )


def get_publications(connection: sqlite3.Connection) -> Publications:
    return Publications(*connection.execute(PUBLICATIONS_SQL).fetchone())


def has_unpublished_removal(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute(UNPUBLISHED_SQL).fetchone()[0])


def _read_incident(row: sqlite3.Row) -> Incident:
    evidence = orjson.loads(row["evidence"])
    own = {
        name: value for name, value in dict(row).items() if name in Incident.__dataclass_fields__
    }
    first_bad = _read_run(evidence.get("first_bad")) or IncidentRun(
        row["first_bad_run_id"], None, None, None, row["first_us"], None
    )
    return Incident(
        **own,
        measured_as=evidence.get("measured_as") or "",
        models=evidence.get("models") or [],
        first_bad=first_bad,
        last_good=_read_run(evidence.get("last_good")),
        recovered=_read_run(evidence.get("recovered")),
        commits=evidence.get("commits"),
        environment=evidence.get("environment") or [],
        causes=[_read_cause(cause) for cause in evidence.get("causes") or ()],
        others=evidence.get("others") or [],
        code_owners=evidence.get("code_owners") or [],
        headlines=[HeadlineMetric(**headline) for headline in evidence.get("headline") or ()],
    )


def _read_run(run: Mapping[str, Any] | None) -> IncidentRun | None:
    return IncidentRun(**run) if run else None


def _read_cause(cause: Mapping[str, Any]) -> IncidentCause:
    own: dict[str, Any] = {name: cause.get(name) for name in schema.list_names(IncidentCause)}
    return IncidentCause(**own | {"checks": [CauseCheck(**check) for check in cause["checks"]]})


class WorseChange(NamedTuple):
    """A change of a series for the worse, and when its incident recovered."""

    key: tuple[str | int, ...]  # The key of the measured models.
    branch: str
    first_us: int
    recovered_us: int | None

    @property
    def model(self) -> str:
        return str(self.key[SERIES.index("model")])

    def covers(self, started_us: int) -> bool:
        return self.first_us <= started_us and (
            self.recovered_us is None or started_us < self.recovered_us
        )


def list_series_changes(
    connection: sqlite3.Connection,
    subject: str,
    suite: str,
    models: Sequence[str] = ("",),
) -> list[SeriesChange]:
    values = {
        "subject": subject,
        "suite": suite,
        "models": json.dumps(list(models)),
        "limit": 200,
    }
    return [_read_change(row) for row in connection.execute(SERIES_SQL, values)]


def list_changes_of(
    connection: sqlite3.Connection, incident_ids: Iterable[str]
) -> list[SeriesChange]:
    values = {"ids": json.dumps(list(incident_ids))}
    return [_read_change(row) for row in connection.execute(OF_INCIDENTS_SQL, values)]


def list_worse_changes(
    connection: sqlite3.Connection, incident_ids: Sequence[str]
) -> list[WorseChange]:
    return [
        WorseChange(tuple(row[: len(SERIES)]), *row[len(SERIES) :])
        for row in connection.execute(WORSE_SQL, {"ids": json.dumps(list(incident_ids))})
    ]


def get_change(connection: sqlite3.Connection, change_id: str) -> SeriesChange | None:
    row = connection.execute(GET_CHANGE_SQL, {"id": change_id}).fetchone()
    return _read_change(row) if row else None


def load_changes(connection: sqlite3.Connection) -> list[SeriesChange]:
    return [_read_change(row) for row in connection.execute(ALL_CHANGES_SQL)]


def _read_change(row: sqlite3.Row) -> SeriesChange:
    values = dict(row)
    return SeriesChange(
        **(
            values
            | {"dynamic": bool(values["dynamic"]), "evidence": orjson.loads(values["evidence"])}
        )
    )


FILTERS = list_names(IncidentFilter)


def read_incident_filter(query: Mapping[str, str]) -> IncidentFilter:
    """Read the filter of incidents from a query. An empty parameter selects everything.

    Raises FilterError for an unknown key or invalid value.
    """
    return read_query(IncidentFilter, query, OTHER_KEYS[1:])
