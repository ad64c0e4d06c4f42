"""Deliveries of alerts: queued, claimed, then sent or failed.

A delivery is one event of one incident, of one rule, to one channel. It is claimed in a transaction
before sending, so that it is never sent twice; if the sender dies meanwhile, it stays claimed and
is not sent again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from compileboard.collectors.store.connection import write_transaction

ERROR_LIMIT = 1000
OPENED, RECOVERED = "opened", "recovered"

START_RULE = """
insert into alert_rules (rule, first_us, since_us, seen_us)
values (:rule, :now_us, :since_us, :since_us)
on conflict do nothing
"""
SEE_RULE = "update alert_rules set seen_us = max(seen_us, :now_us) where rule = :rule"
QUEUE = """
insert into incident_deliveries (rule, channel, incident_id, event, state, due_us, queued_us, changed_us)
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
    with write_transaction(connection):
        connection.execute(START_RULE, {"rule": rule, "since_us": since_us, "now_us": now_us})


def mark_rule_seen(connection: sqlite3.Connection, rule: str, now_us: int) -> None:
    with write_transaction(connection):
        connection.execute(SEE_RULE, {"rule": rule, "now_us": now_us})


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


def settle_deliveries(
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
    }
    values |= {"error": None if error is None else error[:ERROR_LIMIT], "due_us": due_us}
    with write_transaction(connection):
        connection.execute(SETTLE, values)


def abandon_deliveries(
    connection: sqlite3.Connection, before_us: int, error: str, now_us: int
) -> int:
    with write_transaction(connection):
        values = {"before_us": before_us, "error": error, "now_us": now_us}
        return connection.execute(GIVE_UP, values).rowcount


def drop_delivery(
    connection: sqlite3.Connection, rule: str, channel: str, key: AlertKey, error: str, now_us: int
) -> None:
    values = {"rule": rule, "channel": channel, "error": error, "now_us": now_us} | key._asdict()
    with write_transaction(connection):
        connection.execute(DROP, values)
