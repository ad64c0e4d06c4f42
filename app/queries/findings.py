"""Findings: lasting changes of series, what may have caused them, and what people said of them."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, fields
from typing import Any

from app.queries.page import Page, decode_cursor, make_page

STATES = ("suspected", "confirmed", "withdrawn")
HANDLINGS = ("open", "acknowledged", "ignored")
DIRECTIONS = ("worse", "better", "changed")
KINDS = ("step", "drift", "vanished")
SUBJECTS = ("model", "suite", "runs")
MOST_WORDS = 1000

_COLUMNS = """
  f.id, f.kind, f.direction, f.state, f.handling, f.subject, f.suite, f.model, f.mode, f.dtype, f.device, f.hardware,
  f.backend, f.dynamic, f.batch_size, f.world_size, f.branch, f.metric, f.before_value, f.after_value, f.relative,
  f.p_value, f.before_run_id, f.first_run_id, f.low_run_id, f.high_run_id, f.recovered_run_id, f.first_us, f.found_us,
  f.confirmed_us, f.changed_us, f.evidence
"""
LIST_SQL = f"""
select {_COLUMNS}
from findings as f
where (f.first_us, f.id) < (:first_us, :id)
  and (:state is null or f.state = :state)
  and (:handling is null or f.handling = :handling)
  and (:direction is null or f.direction = :direction)
  and (:kind is null or f.kind = :kind)
  and (:subject is null or f.subject = :subject)
  and (:suite is null or f.suite = :suite)
  and (:model is null or f.model = :model)
  and (:metric is null or f.metric = :metric)
  and (:branch is null or f.branch = :branch)
  and (:hardware is null or f.hardware = :hardware)
  and (:run is null or f.first_run_id = :run)
  and (:recovered is null or (f.recovered_run_id is not null) = :recovered)
  and (:since_us is null or f.first_us >= :since_us)
order by f.first_us desc, f.id desc
limit :limit
"""  # noqa: S608  own texts only
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
DETECTION_SQL = "select seen, version, finished_us from detection where id = 1"


@dataclass(frozen=True)
class Finding:
    """Hold one lasting change of one series; words of '' and counts of 0 in the series are what was not said.

    `before_run_id` is the newest run surely before; the change came with `first_run_id`, or anywhere from `low_run_id`
    to `high_run_id`. A finding is confirmed when a run after the one that let it be found still shows it.
    """

    id: str
    kind: str
    direction: str
    state: str
    handling: str
    subject: str
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
    changed_us: int
    evidence: dict[str, Any]  # app.findings.evidence says what is in it


@dataclass(frozen=True)
class FindingWord:
    """Hold what one person did with a finding, or said of it, and when."""

    id: int
    finding_id: str
    action: str
    who: str
    text: str | None
    time_us: int


@dataclass(frozen=True)
class FindingFilter:
    """Say which findings; None is no limit."""

    state: str | None = None
    handling: str | None = None
    direction: str | None = None
    kind: str | None = None
    subject: str | None = None
    suite: str | None = None
    model: str | None = None
    metric: str | None = None
    branch: str | None = None
    hardware: str | None = None
    run: str | None = None
    recovered: bool | None = None
    since_us: int | None = None


@dataclass(frozen=True)
class Detection:
    """Hold how far detection has come."""

    seen: dict[str, Any]
    version: int
    finished_us: int


def list_findings(
    connection: sqlite3.Connection, wanted: FindingFilter, cursor: str | None = None, limit: int = 50
) -> Page[Finding]:
    """List findings, those of the newest runs first.

    Raises: FilterError if the cursor cannot be used.
    """
    first_us, after = decode_cursor(cursor, int, str) or (2**62, "")
    values = {it.name: getattr(wanted, it.name) for it in fields(wanted)}
    found = connection.execute(LIST_SQL, values | {"first_us": first_us, "id": after, "limit": limit + 1})
    return make_page([_read(row) for row in found], limit, lambda it: (it.first_us, it.id))


def get_finding(connection: sqlite3.Connection, finding_id: str) -> Finding | None:
    """Return one finding, or None if there is no such one."""
    row = connection.execute(GET_SQL, {"id": finding_id}).fetchone()
    return _read(row) if row else None


def list_finding_words(connection: sqlite3.Connection, finding_id: str, limit: int = MOST_WORDS) -> list[FindingWord]:
    """List what people did with a finding and said of it, the oldest first."""
    return [FindingWord(*row) for row in connection.execute(WORDS_SQL, {"id": finding_id, "limit": limit})]


def get_detection(connection: sqlite3.Connection) -> Detection | None:
    """Return how far detection has come, None where it never ran."""
    row = connection.execute(DETECTION_SQL).fetchone()
    return Detection(json.loads(row["seen"]), row["version"], row["finished_us"]) if row else None


def _read(row: sqlite3.Row) -> Finding:
    values = dict(row)
    return Finding(**(values | {"dynamic": bool(values["dynamic"]), "evidence": json.loads(values["evidence"])}))
