"""The audit log, and the deleted runs that can be restored."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Annotated

from compileboard.app.core.fields import EventTime, RunId, TimeUs
from compileboard.app.core.page import Page, decode_cursor, make_page
from compileboard.app.core.schema import one_of

AUDIT_SQL = """
select id, time_us, action, subject, detail, channel, actor, address, user_agent
from audit
where (:before_id is null or id < :before_id)
  and (:subject is null or subject = :subject)
  and (:actor is null or actor = :actor)
  and (:action is null or action = :action)
order by id desc
limit :limit
"""
ACTORS_SQL = "select distinct actor from audit where actor is not null order by actor limit 200"
ACTIONS_SQL = "select distinct action from audit order by action limit 100"
DELETED_SQL = """
select
  run_id, name, suite, started_us, deleted_us, expires_us, trash_bytes,
  (
    select coalesce(a.actor, a.address)
    from audit as a
    where a.subject = run_id
      and a.action = 'run.delete'
    order by a.id desc
    limit 1
  ) as deleted_by
from removed_runs
where expires_us is not null
  and (:deleted_us is null or (deleted_us, run_id) < (:deleted_us, :run_id))
order by deleted_us desc, run_id desc
limit :limit
"""
RUN_NAMES_SQL = """
select r.id, coalesce(a.title, r.git_subject, r.name) as name
from json_each(:ids) as wanted
join runs as r on r.id = wanted.value
left join run_annotations as a on a.run_id = r.id
union all
select d.run_id, d.name
from json_each(:ids) as wanted
join removed_runs as d on d.run_id = wanted.value
where d.name is not null
union all
select i.id, i.title
from json_each(:ids) as wanted
join incidents as i on i.id = wanted.value
union all
select t.id, t.name
from json_each(:ids) as wanted
join tokens as t on t.id = wanted.value
"""
GET_DELETED_SQL = "select deleted_us, expires_us from removed_runs where run_id = :run_id"

CHANNELS = ("page", "api", "command", "server")


@dataclass(frozen=True)
class AuditRow:
    """One change, and who or what made it."""

    tables = ("audit",)

    id: int
    time_us: EventTime
    action: str
    subject: str
    detail: str | None
    channel: Annotated[str, one_of(CHANNELS)]
    actor: str | None
    address: str | None
    user_agent: str | None


@dataclass(frozen=True)
class DeletedRun:
    """A deleted run that can be restored."""

    tables = ("removed_runs",)

    run_id: RunId
    name: str
    suite: str | None
    started_us: int
    deleted_us: int
    expires_us: Annotated[TimeUs, "When it is deleted permanently."]
    trash_bytes: int
    deleted_by: Annotated[str | None, "Who deleted it: name or address."]


@dataclass(frozen=True)
class AuditFilter:
    subject: Annotated[
        str | None, "The subject: the ID of a run, incident or token, a baseline's name."
    ] = None
    actor: Annotated[str | None, "Who did it: the name of a token or login."] = None
    action: Annotated[str | None, "The action, as `run.delete`."] = None


def list_audit(
    connection: sqlite3.Connection,
    cursor: str | None = None,
    limit: int = 50,
    selection: AuditFilter = AuditFilter(),
) -> Page[AuditRow]:
    after = decode_cursor(cursor, int)
    values = {**asdict(selection), "before_id": after and after[0], "limit": limit + 1}
    rows = [AuditRow(**dict(row)) for row in connection.execute(AUDIT_SQL, values)]
    return make_page(rows, limit, lambda row: (row.id,))


def list_actors(connection: sqlite3.Connection) -> list[str]:
    return [row["actor"] for row in connection.execute(ACTORS_SQL)]


def list_actions(connection: sqlite3.Connection) -> list[str]:
    return [row["action"] for row in connection.execute(ACTIONS_SQL)]


def list_deleted_runs(
    connection: sqlite3.Connection, cursor: str | None = None, limit: int = 50
) -> Page[DeletedRun]:
    after = decode_cursor(cursor, int, str)
    values = {"deleted_us": after and after[0], "run_id": after and after[1], "limit": limit + 1}
    rows = [DeletedRun(**dict(row)) for row in connection.execute(DELETED_SQL, values)]
    return make_page(rows, limit, lambda row: (row.deleted_us, row.run_id))


def list_subject_names(connection: sqlite3.Connection, subjects: Iterable[str]) -> dict[str, str]:
    values = {"ids": json.dumps(sorted(set(subjects)))}
    return {row["id"]: row["name"] for row in connection.execute(RUN_NAMES_SQL, values)}


def can_be_restored(connection: sqlite3.Connection, run_id: str) -> bool:
    """Return whether a run was deleted within the last week."""
    row = connection.execute(GET_DELETED_SQL, {"run_id": run_id}).fetchone()
    return row is not None and row["expires_us"] is not None


def describe_absence(connection: sqlite3.Connection, run_id: str) -> str:
    if can_be_restored(connection, run_id):
        return (
            f"Run {run_id[:80]} was deleted. It can be restored for a week, on the page Activity."
        )
    return f"There is no run {run_id[:80]}; it may have been deleted."
