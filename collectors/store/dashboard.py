"""What the dashboard stores: run titles and notes, baselines, alert deliveries, trials."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.contract.records import TABLES
from compileboard.collectors.store.codec import pack
from compileboard.collectors.store.connection import has_row, write, write_transaction
from compileboard.collectors.store.reading import read_json
from compileboard.collectors.store.runs import publish_run

TITLE_LIMIT = 200
NOTE_LIMIT = 20_000


def annotate(
    connection: sqlite3.Connection,
    run_id: str,
    *,
    title: str | None = None,
    note: str | None = None,
    pinned: bool | None = None,
    now_us: int | None = None,
) -> bool:
    """Set a run's title, note or pin, unless it is None. Returns False if there is no such run.

    An empty title or note removes it. Raises ValueError if a text is too long.
    """
    if title is not None and len(title) > TITLE_LIMIT:
        raise ValueError(f"a title has at most {TITLE_LIMIT} characters; this one has {len(title)}")
    if note is not None and len(note) > NOTE_LIMIT:
        raise ValueError(f"a note has at most {NOTE_LIMIT} characters; this one has {len(note)}")
    now_us = read_clock_us() if now_us is None else now_us
    with write_transaction(connection):
        if not has_row(connection, "select 1 from runs where id = ?", (run_id,)):
            return False
        connection.execute(
            """
            insert into run_annotations (run_id, title, note, pinned, changed_us)
            values (:id, nullif(:title, ''), nullif(:note, ''), coalesce(:pinned, 0), :now_us)
            on conflict (run_id) do update set
              title = case when :title is null then title else nullif(:title, '') end,
              note = case when :note is null then note else nullif(:note, '') end,
              pinned = coalesce(:pinned, pinned),
              changed_us = :now_us
            """,
            {
                "id": run_id,
                "title": None if title is None else title.strip(),
                "note": None if note is None else note.strip(),
                "pinned": None if pinned is None else int(pinned),
                "now_us": now_us,
            },
        )
    return True


NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+@/-]{0,98}[A-Za-z0-9._+@-])?")
# What a name would hide, or be hidden by, where people say what to compare with.
RESERVED = (
    (re.compile(r"latest|previous", re.IGNORECASE), "that is the newest run, or the one before"),
    (re.compile(r".*\.csv", re.IGNORECASE), "that is a file"),
    (re.compile(r"[0-9a-f]{4,40}", re.IGNORECASE), "that may be the beginning of a commit's hash"),
    (
        re.compile(r"0[0-9A-HJKMNP-TV-Z]{1,25}|[1-7][0-9A-HJKMNP-TV-Z]{3,25}", re.IGNORECASE),
        "that may be a run's id",
    ),
)
BASELINE_NOTE_LIMIT = 20_000

INSERT = """
insert into baselines (name, run_id, note, created_us, changed_us, body)
values (:name, :run_id, nullif(:note, ''), :now_us, :now_us, :body)
on conflict (name) do nothing
"""
UPDATE = """
update baselines set
  run_id = :run_id,
  note = case when :note is null then note else nullif(:note, '') end,
  changed_us = :now_us,
  body = :body
where name = :name
"""


def save_baseline(
    connection: sqlite3.Connection,
    name: str,
    body: dict[str, Any],
    *,
    run_id: str | None,
    note: str | None = None,
    replacing: bool = False,
    now_us: int | None = None,
) -> bool:
    """Save a new baseline. Returns False if the name exists.

    With `replacing`, an existing baseline is replaced, keeping its note if none is given; returns
    False if there is none. Raises ValueError for an invalid name or note.
    """
    if not replacing:
        _check_name(name)
    if note is not None and len(note) > BASELINE_NOTE_LIMIT:
        raise ValueError(
            f"a note has at most {BASELINE_NOTE_LIMIT} characters; this one has {len(note)}"
        )
    values = {
        "name": name,
        "run_id": run_id,
        "note": None if note is None else note.strip(),
        "now_us": read_clock_us() if now_us is None else now_us,
        "body": pack(json.dumps(body, separators=(",", ":")), primed=False),
    }
    return bool(write(connection, UPDATE if replacing else INSERT, values))


def delete_baseline(connection: sqlite3.Connection, name: str) -> bool:
    return bool(write(connection, "delete from baselines where name = ?", (name,)))


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name[:80]!r} is not a valid baseline name: expected a letter or digit, then at most "
            "99 letters, digits and . _ + @ / -, and no / at its end"
        )
    for pattern, meaning in RESERVED:
        if pattern.fullmatch(name):
            raise ValueError(
                f"{name[:80]!r} is not a valid baseline name: {meaning}; choose another, as main "
                "or release/2.4"
            )


ERROR_LIMIT = 1000
OPENED, RECOVERED = "opened", "recovered"

START_RULE = """
insert into alert_rules (rule, first_us, since_us, seen_us)
values (:rule, :now_us, :since_us, :since_us)
on conflict do nothing
"""
SEE_RULE = "update alert_rules set seen_us = max(seen_us, :now_us) where rule = :rule"
QUEUE = """
insert into incident_deliveries
  (rule, channel, incident_id, event, state, due_us, queued_us, changed_us)
values (:rule, :channel, :incident_id, :event, 'waiting', :now_us, :now_us, :now_us)
on conflict do nothing
"""
CLAIM = """
update incident_deliveries
set state = 'sending', message_id = :message_id, attempt_count = attempt_count + 1,
changed_us = :now_us
where rule = :rule
  and channel = :channel
  and (incident_id, event) = (:incident_id, :event)
  and state = 'waiting'
  and due_us <= :now_us
"""
# Whoever was slow and held to be dead may still say how it ended.
SETTLE = """
update incident_deliveries
set state = :state, error = :error, due_us = coalesce(:due_us, due_us), changed_us = :now_us
where rule = :rule
  and channel = :channel
  and message_id = :message_id
  and state in ('sending', 'unknown')
"""
GIVE_UP = """
update incident_deliveries
set state = 'unknown', error = :error, changed_us = :now_us
where state = 'sending'
  and changed_us < :before_us
"""
DROP = """
update incident_deliveries
set state = 'dropped', error = :error, changed_us = :now_us
where rule = :rule
  and channel = :channel
  and (incident_id, event) = (:incident_id, :event)
  and state = 'waiting'
"""


class AlertKey(NamedTuple):
    incident_id: str
    event: str


def start_rule(connection: sqlite3.Connection, rule: str, since_us: int, now_us: int) -> None:
    write(connection, START_RULE, {"rule": rule, "since_us": since_us, "now_us": now_us})


def mark_rule_seen(connection: sqlite3.Connection, rule: str, now_us: int) -> None:
    write(connection, SEE_RULE, {"rule": rule, "now_us": now_us})


def queue_deliveries(
    connection: sqlite3.Connection, rule: str, channel: str, keys: Iterable[AlertKey], now_us: int
) -> int:
    rows = [{"rule": rule, "channel": channel, "now_us": now_us} | key._asdict() for key in keys]
    with write_transaction(connection):
        return sum(connection.execute(QUEUE, row).rowcount for row in rows)


def claim_deliveries(
    connection: sqlite3.Connection,
    rule: str,
    channel: str,
    keys: Iterable[AlertKey],
    message_id: str,
    now_us: int,
) -> list[AlertKey]:
    """Claim waiting deliveries for one message; return those not claimed by another process."""
    shared = {"rule": rule, "channel": channel, "message_id": message_id, "now_us": now_us}
    with write_transaction(connection):
        return [key for key in keys if connection.execute(CLAIM, shared | key._asdict()).rowcount]


def save_delivery_outcomes(
    connection: sqlite3.Connection,
    rule: str,
    channel: str,
    message_id: str,
    state: str,
    *,
    now_us: int,
    error: str | None = None,
    due_us: int | None = None,
) -> None:
    """Save a claimed message's outcome: sent, failed, unknown, or waiting until `due_us`."""
    values = {
        "rule": rule,
        "channel": channel,
        "message_id": message_id,
        "state": state,
        "now_us": now_us,
        "error": error and error[:ERROR_LIMIT],
        "due_us": due_us,
    }
    write(connection, SETTLE, values)


def abandon_deliveries(
    connection: sqlite3.Connection, before_us: int, error: str, now_us: int
) -> int:
    values = {"before_us": before_us, "error": error, "now_us": now_us}
    return write(connection, GIVE_UP, values)


def drop_delivery(
    connection: sqlite3.Connection, rule: str, channel: str, key: AlertKey, error: str, now_us: int
) -> None:
    values = {"rule": rule, "channel": channel, "error": error, "now_us": now_us} | key._asdict()
    write(connection, DROP, values)


Outcome = Literal[
    "improved", "unchanged", "worse", "different", "failed", "not_applied", "interrupted"
]
TOGETHER = "together"  # in a trial's result: the causes whose fixes were tried together
OUTCOME_LABELS: dict[str, str] = {
    "improved": "Improved",
    "unchanged": "No effect",
    "worse": "Worse",
    "different": "Output differs",
    "failed": "Failed",
    "not_applied": "Not applied",
    "interrupted": "Interrupted",
}


@dataclass(frozen=True)
class Trial:
    id: str
    run_id: str
    base_run_id: str | None
    new_run_id: str | None
    fix_id: str | None
    cause_fingerprint: str | None
    title: str
    patch: str | None
    settings: tuple[str, ...]
    outcome: Outcome
    summary: str
    started_us: int
    ended_us: int
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def outcome_label(self) -> str:
        return OUTCOME_LABELS[self.outcome]

    @property
    def key(self) -> tuple[str | None, str | None, int]:
        return self.cause_fingerprint, self.fix_id, self.ended_us


def save_trial(connection: sqlite3.Connection, trial: Trial) -> None:
    values = {
        **vars(trial),
        "settings": json.dumps(trial.settings),
        "result": json.dumps(trial.result),
    }
    with write_transaction(connection):
        connection.execute(f"insert or replace {TABLES['trials'].insert_sql()}", values)
        publish_run(connection, trial.run_id)


def list_trials(connection: sqlite3.Connection, run_id: str) -> list[Trial]:
    query = "select * from trials where run_id = ? order by started_us desc, id desc"
    return [_read(row) for row in connection.execute(query, (run_id,))]


def get_trial_of(connection: sqlite3.Connection, run_id: str) -> Trial | None:
    query = """
        select * from trials where new_run_id = :run_id or base_run_id = :run_id
        order by started_us desc, id desc
        """
    row = connection.execute(query, {"run_id": run_id}).fetchone()
    return None if row is None else _read(row)


def _read(row: sqlite3.Row) -> Trial:
    values = dict(row)
    values["settings"] = tuple(read_json(list[str], row["settings"]) or ())
    values["result"] = read_json(dict[str, Any], row["result"]) or {}
    return Trial(**values)
