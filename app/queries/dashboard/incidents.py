"""Findings: lasting changes of series, what may have caused them, and what people said of them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

import orjson

from compileboard.app.queries.fields import Count, TimeUs
from compileboard.app.queries.page import Page, decode_cursor, make_page
from compileboard.app.queries.parameters import (
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
from compileboard.app.schema import PRIVATE, one_of

STATES = ("suspected", "confirmed", "withdrawn")
HANDLINGS = ("open", "acknowledged", "ignored")
DIRECTIONS = ("worse", "better", "changed")
KINDS = ("step", "drift", "vanished")
SUBJECTS = ("model", "suite", "runs")
MOST_WORDS = 1000
NOT_WITHDRAWN = "not_withdrawn"
NOT_IGNORED = "not_ignored"
ANY = "any"
# Without a word: what is not withdrawn, and what nobody ignores.
STATE_CHOICES = (NOT_WITHDRAWN, *STATES, ANY)
HANDLING_CHOICES = (NOT_IGNORED, *HANDLINGS, ANY)

_COLUMNS = """
  f.id, f.kind, f.direction, f.state, f.handling, f.subject, f.suite, f.model, f.mode, f.dtype, f.device, f.hardware,
  f.backend, f.dynamic, f.batch_size, f.world_size, f.branch, f.metric, f.before_value, f.after_value, f.relative,
  f.p_value, f.before_run_id, f.first_run_id, f.low_run_id, f.high_run_id, f.recovered_run_id, f.first_us, f.found_us,
  f.confirmed_us, f.noticed_us, f.changed_us, f.evidence
"""
# Only what is asked for is in a statement: `(:x is null or …)` would keep SQLite from using an index.
_WANTED = {
    "state": "f.state = :state",
    "handling": "f.handling = :handling",
    "direction": "f.direction = :direction",
    "kind": "f.kind = :kind",
    "subject": "f.subject = :subject",
    "suite": "f.suite = :suite",
    "model": "f.model = :model",
    "metric": "f.metric = :metric",
    "branch": "f.branch = :branch",
    "hardware": "f.hardware = :hardware",
    "run": "f.first_run_id = :run",
    "recovered": "(f.recovered_run_id is not null) = :recovered",
    "since_us": "f.first_us >= :since_us",
    "before_us": "f.first_us < :before_us",
}
_EITHER = {
    ("state", NOT_WITHDRAWN): "f.state <> 'withdrawn'",
    ("handling", NOT_IGNORED): "f.handling <> 'ignored'",
}
LIST_SQL = f"""
select {_COLUMNS}
from findings as f
where (f.{{moment}}, f.id) < (:after_us, :after_id)
  and {{wanted}}
order by f.{{moment}} desc, f.id desc
limit :limit
"""  # noqa: S608  own texts only
SERIES_SQL = f"""
select {_COLUMNS}
from json_each(:models) as wanted
join findings as f on f.subject = :subject and f.suite = :suite and f.model = wanted.value
where f.state <> 'withdrawn'
order by f.first_us desc, f.id desc
limit :limit
"""  # noqa: S608
RANGES_SQL = """
select f.before_run_id, f.first_run_id, f.direction, count(*) as finding_count
from json_each(:run_ids) as wanted
join findings as f on f.first_run_id = wanted.value
where {wanted}
group by f.before_run_id, f.first_run_id, f.direction
order by f.before_run_id, f.first_run_id, f.direction
limit 10000
"""
OTHERS_SQL = """
select count(*)
from findings
where first_run_id = :first_run_id
  and before_run_id is :before_run_id
  and state <> 'withdrawn'
  and id <> :id
limit 1
"""
COUNTS_SQL = """
select
  count(*) as finding_count,
  coalesce(sum(state = 'confirmed' and handling = 'open' and direction = 'worse' and recovered_run_id is null), 0)
    as worse_count,
  coalesce(sum(state = 'confirmed' and handling = 'open' and direction = 'better' and recovered_run_id is null), 0)
    as better_count,
  coalesce(sum(state = 'confirmed' and handling = 'open' and direction = 'changed' and recovered_run_id is null), 0)
    as changed_count,
  coalesce(sum(state = 'suspected' and handling <> 'ignored'), 0) as suspected_count,
  coalesce(sum(state <> 'withdrawn' and handling = 'acknowledged'), 0) as acknowledged_count,
  coalesce(sum(state <> 'withdrawn' and handling = 'ignored'), 0) as ignored_count,
  coalesce(sum(state <> 'withdrawn' and handling <> 'ignored' and recovered_run_id is not null), 0) as recovered_count
from findings
limit 1
"""
CHOICES_SQL = """
select distinct suite, metric, branch, hardware
from findings
order by suite, metric, branch, hardware
limit 5000
"""
GET_SQL = f"""
select {_COLUMNS}
from findings as f
where f.id = :id
"""  # noqa: S608
WORDS_SQL = """
select id, finding_id, action, who, text, time_us
from finding_words
where finding_id = :id
order by id
limit :limit
"""
ALL_SQL = f"""
select {_COLUMNS}
from findings as f
order by f.id
limit 1000000
"""  # noqa: S608
DETECTION_SQL = "select seen, version, finished_us from detection where id = 1"
PUBLICATIONS_SQL = "select pub, removed_pub from publications where id = 1"


@dataclass(frozen=True)
class SeriesChange:
    """A lasting change of one series. Of the series, an empty text or a 0 is what was not said.

    `before_run_id` is the newest run surely before; the change came with `first_run_id`, or anywhere from `low_run_id`
    to `high_run_id`. A finding is confirmed when a run after the one that let it be found still shows it:
    `confirmed_us` is of that run, `noticed_us` when that was found out.
    """

    id: Annotated[str, "Its id: it stays while more runs say it better."]
    kind: Annotated[str, one_of(KINDS), "How it changed: at once, little by little, or no longer measured."]
    direction: Annotated[str, one_of(DIRECTIONS), "Which way."]
    state: Annotated[str, one_of(STATES), "What detection thinks of it."]
    handling: Annotated[str, one_of(HANDLINGS), "What people made of it."]
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
    p_value: Annotated[float | None, "How often noise makes such a change; null where it is no longer measured."]
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
    evidence: dict[str, Any] = field(metadata=PRIVATE)  # app.incidents.evidence says what is in it


@dataclass(frozen=True)
class Comment:
    """One person's action on a finding or comment, and when."""

    id: int
    finding_id: str
    action: str
    who: str
    text: str | None
    time_us: int


def _read_state(_name: str, text: str) -> str | None:
    return None if text == ANY else text


@dataclass(frozen=True)
class IncidentFilter:
    """Which findings; None is no limit. `state` and `handling` may be NOT_WITHDRAWN and NOT_IGNORED as well."""

    state: Annotated[
        str | None,
        Parameter(choices=STATE_CHOICES, default=NOT_WITHDRAWN, read=_read_state),
        "What detection thinks of it; `not_withdrawn` where it is not given.",
    ] = None
    handling: Annotated[
        str | None,
        Parameter(choices=HANDLING_CHOICES, default=NOT_IGNORED, read=_read_state),
        "What people made of it; `not_ignored` where it is not given.",
    ] = None
    direction: Annotated[str | None, Parameter(choices=DIRECTIONS), "Which way it changed."] = None
    kind: Annotated[str | None, Parameter(choices=KINDS), "How it changed."] = None
    subject: Annotated[str | None, Parameter(choices=SUBJECTS), "What the series is of."] = None
    suite: SuiteName = None
    model: Annotated[str | None, "A model's name, whole."] = None
    metric: Annotated[str | None, "A metric's name, whole."] = None
    branch: BranchName = None
    hardware: HardwareName = None
    run: Annotated[str | None, "The first run after the change: its id."] = None
    recovered: Annotated[bool | None, Parameter(choices=("yes", "no")), "Whether the level before came back."] = None
    since_us: Annotated[int | None, SINCE, SINCE_HELP] = None
    before_us: Annotated[int | None, UNTIL, UNTIL_HELP] = None

    def check(self, query: Mapping[str, str]) -> None:
        """Refuse days that no run can be between.

        Raises: FilterError if there are none.
        """
        check_days(query, self.since_us, self.before_us)

    @property
    def sql(self) -> str:
        """Return its conditions."""
        given = [(name, value) for name in _WANTED if (value := getattr(self, name)) is not None]
        return "\n  and ".join(_EITHER.get((name, value), _WANTED[name]) for name, value in given) or "true"


@dataclass(frozen=True)
class IncidentCounts:
    """Counts of findings: confirmed and open ones that did not recover by direction, and the others."""

    finding_count: int
    worse_count: int
    better_count: int
    changed_count: int
    suspected_count: int
    acknowledged_count: int
    ignored_count: int
    recovered_count: int

    @property
    def open_count(self) -> int:
        """Return how many are confirmed, open, and did not recover."""
        return self.worse_count + self.better_count + self.changed_count


@dataclass(frozen=True)
class RangeCount:
    """How many findings of a direction came between two runs."""

    before_run_id: str | None
    first_run_id: str
    direction: str
    finding_count: int


@dataclass(frozen=True)
class Detection:
    """How far detection has come."""

    seen: dict[str, Any]
    version: int
    finished_us: int


@dataclass(frozen=True)
class Publications:
    """The numbers of the newest commit to a run, and of the newest removal of one; later ones are larger."""

    pub: int
    removed_pub: int


def list_findings(
    connection: sqlite3.Connection,
    selection: IncidentFilter,
    cursor: str | None = None,
    limit: int = 50,
    moment: Literal["first_us", "noticed_us"] = "first_us",
) -> Page[SeriesChange]:
    """List findings, those of the newest runs first, or those that were confirmed here last, of what was confirmed.

    Raises: FilterError if the cursor cannot be used.
    """
    after_us, after_id = decode_cursor(cursor, int, str) or (2**62, "")
    values = {other_field.name: getattr(selection, other_field.name) for other_field in fields(selection)}
    values |= {"after_us": after_us, "after_id": after_id, "limit": limit + 1}
    rows = connection.execute(LIST_SQL.format(wanted=selection.sql, moment=moment), values)
    return make_page([_read(row) for row in rows], limit, lambda change: (getattr(change, moment), change.id))


def list_series_findings(
    connection: sqlite3.Connection, subject: str, suite: str, models: Sequence[str] = ("",), limit: int = 200
) -> list[SeriesChange]:
    """List what was found in the series of some models, or of a suite itself, newest first, without the withdrawn."""
    values = {"subject": subject, "suite": suite, "models": json.dumps(list(models)), "limit": limit}
    return [_read(row) for row in connection.execute(SERIES_SQL, values)]


def count_ranges(connection: sqlite3.Connection, selection: IncidentFilter, run_ids: Iterable[str]) -> list[RangeCount]:
    """Count the findings that came with some runs, whole ranges of which a page may show but a part."""
    values = {other_field.name: getattr(selection, other_field.name) for other_field in fields(selection)} | {
        "run_ids": json.dumps(sorted(set(run_ids)))
    }
    return [RangeCount(*row) for row in connection.execute(RANGES_SQL.format(wanted=selection.sql), values)]


def count_range_others(connection: sqlite3.Connection, change: SeriesChange) -> int:
    """Count what else came between the same two runs, but for what was withdrawn."""
    values = {"id": change.id, "first_run_id": change.first_run_id, "before_run_id": change.before_run_id}
    return int(connection.execute(OTHERS_SQL, values).fetchone()[0])


def count_findings(connection: sqlite3.Connection) -> IncidentCounts:
    """Count all findings."""
    return IncidentCounts(*connection.execute(COUNTS_SQL).fetchone())


def list_finding_choices(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """List what findings can be filtered by."""
    rows = connection.execute(CHOICES_SQL).fetchall()
    names = ("suite", "metric", "branch", "hardware")
    return {name: sorted({row[at] for row in rows if row[at]}) for at, name in enumerate(names)}


def get_finding(connection: sqlite3.Connection, finding_id: str) -> SeriesChange | None:
    """Return one finding, or None if there is no such one."""
    row = connection.execute(GET_SQL, {"id": finding_id}).fetchone()
    return _read(row) if row else None


def list_finding_words(connection: sqlite3.Connection, finding_id: str, limit: int = MOST_WORDS) -> list[Comment]:
    """List what people did with a finding and said of it, the oldest first."""
    return [Comment(*row) for row in connection.execute(WORDS_SQL, {"id": finding_id, "limit": limit})]


def load_findings(connection: sqlite3.Connection) -> list[SeriesChange]:
    """Load every finding."""
    return [_read(row) for row in connection.execute(ALL_SQL)]


def get_detection(connection: sqlite3.Connection) -> Detection | None:
    """Return how far detection has come, None where it never ran."""
    row = connection.execute(DETECTION_SQL).fetchone()
    return Detection(json.loads(row["seen"]), row["version"], row["finished_us"]) if row else None


def get_publications(connection: sqlite3.Connection) -> Publications:
    """Return how far this database is."""
    return Publications(*connection.execute(PUBLICATIONS_SQL).fetchone())


def _read(row: sqlite3.Row) -> SeriesChange:
    values = dict(row)
    return SeriesChange(**(values | {"dynamic": bool(values["dynamic"]), "evidence": orjson.loads(values["evidence"])}))


FILTERS = list_names(IncidentFilter)


def read_finding_filter(query: Mapping[str, str]) -> IncidentFilter:
    """Turn an address's query into a filter; what is empty is no limit, but of state and handling.

    Raises: FilterError if a key is unknown or a value cannot be used.
    """
    return read_query(IncidentFilter, query, OTHER_KEYS[1:])
