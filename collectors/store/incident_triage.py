"""Store incidents, their comments, status and owner."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.contract.records import TABLES
from compileboard.collectors.store.connection import has_row, write_transaction

ACTIONS = ("acknowledge", "ignore", "comment", "reopen")
# What an action makes of an incident's status; a comment leaves it.
STATUS = {"acknowledge": "acknowledged", "ignore": "ignored", "reopen": "open"}
AUTHOR_LIMIT = 100
TEXT_LIMIT = 20_000

ADD_COMMENT = """
insert into incident_comments (incident_id, action, author, text, time_us)
values (:id, :action, :author, nullif(:text, ''), :now_us)
"""
SET_STATUS = """
update incidents
set status = :status, owner = :owner, reason = :reason
where id = :id
"""
# The same words of several changes of one range, from when each change had a discussion of its own,
# come once.
COPY_COMMENTS = """
insert into incident_comments (incident_id, action, author, text, time_us)
select :target, c.action, c.author, c.text, c.time_us
from incident_comments as c
where c.incident_id = :source
  and not exists (
    select 1
    from incident_comments as o
    where o.incident_id = :target
      and (o.action, o.author, o.time_us) = (c.action, c.author, c.time_us)
      and o.text is c.text
  )
order by c.id
"""
COPY_DELIVERIES = """
insert into incident_deliveries
select rule, channel, :target, event, state, message_id, attempt_count, error, due_us, queued_us,
changed_us
from incident_deliveries
where incident_id = :source
on conflict do nothing
"""
# Somebody looks after all of it; what nobody answered yet is open although a part of it was
# ignored.
COPY_STATUS = """
update incidents
set (status, owner, reason) = (select o.status, o.owner, o.reason from incidents as o
  where o.id = :source)
where id = :target
  and (
    :is_split
    or instr('ignored open acknowledged', status)
      < instr('ignored open acknowledged', (select o.status from incidents as o
        where o.id = :source))
  )
"""


class IncidentMove(NamedTuple):
    source_id: str
    target_id: str
    is_split: bool


def save_comment(
    connection: sqlite3.Connection,
    incident_id: str,
    action: str,
    *,
    author: str,
    text: str | None = None,
) -> bool:
    author, text = " ".join(author.split()), (text or "").strip()
    _check(action, author, text)
    with write_transaction(connection):
        if not has_row(connection, "select 1 from incidents where id = ?", (incident_id,)):
            return False
        comment = {
            "id": incident_id,
            "action": action,
            "author": author,
            "text": text,
            "now_us": read_clock_us(),
        }
        connection.execute(ADD_COMMENT, comment)
        if action in STATUS:
            owner = None if action == "reopen" else author
            reason = text if action == "ignore" else None
            values = {"id": incident_id, "status": STATUS[action], "owner": owner, "reason": reason}
            connection.execute(SET_STATUS, values)
    return True


def move_discussion(connection: sqlite3.Connection, move: IncidentMove) -> None:
    """Give one incident the status, comments and alert deliveries of another, in the caller's
    transaction.

    The status and comments stay with the other one too; its deliveries only after a split.
    """
    values = {"source": move.source_id, "target": move.target_id}
    connection.execute(COPY_STATUS, values | {"is_split": int(move.is_split)})
    connection.execute(COPY_COMMENTS, values)
    connection.execute(COPY_DELIVERIES, values)
    if not move.is_split:
        connection.execute("delete from incident_deliveries where incident_id = :source", values)


def _check(action: str, author: str, text: str) -> None:
    if action not in ACTIONS:
        raise ValueError(
            f"action: {action[:40]!r} is unknown; expected one of {', '.join(ACTIONS)}"
        )
    if not author:
        raise ValueError("author: name is required")
    if len(author) > AUTHOR_LIMIT:
        raise ValueError(f"author: at most {AUTHOR_LIMIT} characters; this has {len(author)}")
    if action == "ignore" and not text:
        raise ValueError("text: a reason is required to ignore an incident")
    if action == "comment" and not text:
        raise ValueError("text: a comment needs text")
    if len(text) > TEXT_LIMIT:
        raise ValueError(f"text: at most {TEXT_LIMIT} characters; this has {len(text)}")


# What tells the series of a subject on one branch from others, but for the metric.
SERIES = TABLES["series"].list_names("id")
IDENTITY = ("kind", "subject", *SERIES, "branch", "metric")
_KEPT = ("id", "found_us", "changed_us", "noticed_us")  # written beside what detection says
DETECTED = TABLES["series_changes"].list_names(*_KEPT, *IDENTITY, "incident_id")
# What detection says of an incident; status, owner and reason are people's.
ASSEMBLED = TABLES["incidents"].list_names(*_KEPT, "status", "owner", "reason")


def _save(table: str, names: tuple[str, ...], detected: tuple[str, ...]) -> str:
    changes = ", ".join(f"{name} = excluded.{name}" for name in detected if name != "confirmed_us")
    return f"""
    insert into {table} ({", ".join(names)}, found_us, changed_us, noticed_us)
    values (
      {", ".join(f":{name}" for name in names)}, :now_us, :now_us,
      iif(:confirmed_us is null, null, :now_us)
    )
    on conflict (id) do update set
      {changes},
      confirmed_us = coalesce(confirmed_us, excluded.confirmed_us),
      noticed_us = coalesce(noticed_us, excluded.noticed_us),
      changed_us = excluded.changed_us
    """  # noqa: S608 - our own names; every value is bound


SAVE_CHANGE = _save("series_changes", ("id", *IDENTITY, *DETECTED), DETECTED)
SAVE_INCIDENT = _save("incidents", ("id", *ASSEMBLED), ASSEMBLED)
# What was never confirmed was noise, unless somebody spoke of it; the rest stays and says so.
DROP_CHANGE = "delete from series_changes where id = :id and confirmed_us is null"
WITHDRAW_CHANGE = """
update series_changes
set state = 'withdrawn', changed_us = :now_us
where id = :id
  and state <> 'withdrawn'
"""
MARK = """
insert into detection (id, seen, version, finished_us)
values (1, :seen, :version, :now_us)
on conflict (id) do update set
  seen = excluded.seen, version = excluded.version, finished_us = excluded.finished_us
"""


@dataclass
class DetectedRows:
    changes: Sequence[Mapping[str, Any]] = ()
    withdrawn_ids: Sequence[str] = ()
    dropped_ids: Sequence[str] = ()
    incidents: Sequence[Mapping[str, Any]] = ()
    members: Mapping[str, Sequence[str]] = field(default_factory=dict)
    moves: Sequence[IncidentMove] = ()
    removed_incident_ids: Iterable[str] = ()


def save_detected(
    connection: sqlite3.Connection,
    detected: DetectedRows,
    *,
    seen: str,
    version: int,
    now_us: int,
) -> None:
    with write_transaction(connection):
        connection.executemany(
            SAVE_CHANGE, [{**change, "now_us": now_us} for change in detected.changes]
        )
        connection.executemany(
            WITHDRAW_CHANGE, [{"id": id_, "now_us": now_us} for id_ in detected.withdrawn_ids]
        )
        connection.executemany(
            SAVE_INCIDENT, [{**incident, "now_us": now_us} for incident in detected.incidents]
        )
        for move in detected.moves:
            move_discussion(connection, move)
        connection.executemany(
            (
                "update series_changes set incident_id = :incident_id where id = :id and "
                "incident_id is not :incident_id"
            ),
            [
                {"id": id_, "incident_id": incident_id}
                for incident_id, ids in detected.members.items()
                for id_ in ids
            ],
        )
        connection.executemany(DROP_CHANGE, [{"id": id_} for id_ in detected.dropped_ids])
        connection.executemany(
            "delete from incidents where id = ?", [(id_,) for id_ in detected.removed_incident_ids]
        )
        connection.execute(MARK, {"seen": seen, "version": version, "now_us": now_us})
