"""Send due alerts through their channels. Only `channels` reads secrets from the environment."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from compileboard.app.alerts.channels import DeliveryFailed, DeliveryUnknown, send_message
from compileboard.app.alerts.message import IncidentEvent, make_message, make_message_id
from compileboard.app.alerts.queries import Delivery, get_rule_start, list_new_keys, list_waiting
from compileboard.app.alerts.rules import (
    AlertRule,
    AlertRules,
    Channel,
    list_due,
    load_rules,
    matches,
)
from compileboard.app.core.format import format_plural
from compileboard.app.incidents.queries import get_incident, list_changes_of
from compileboard.collectors.store.connection import checkpoint, open_reader, open_writer
from compileboard.collectors.store.dashboard import (
    AlertKey,
    abandon_deliveries,
    claim_deliveries,
    drop_delivery,
    mark_rule_seen,
    queue_deliveries,
    save_delivery_outcomes,
    start_rule,
)

MINUTE_US = 60_000_000
DAY_US = 24 * 60 * MINUTE_US
FIRST_LOOK_US = DAY_US  # how far back a rule looks when it first runs
# A rule changed to match more does not send the past, only what was noticed since its last pass.
LOOK_AGAIN_US = DAY_US
MARK_EVERY_US = 60 * MINUTE_US  # a pass a minute without results need not write
ATTEMPTS = 5
WAITS_US = tuple(minutes * MINUTE_US for minutes in (1, 5, 30, 120))
# A claim this old was abandoned: `hold_deadline` ends every delivery within minutes.
CLAIM_LIMIT_US = 15 * MINUTE_US
LOST = "the sender ended before the delivery was confirmed; not sent again"
MAX_INCIDENTS = 500  # per message


@dataclass
class SendReport:
    sent_count: int = 0
    retried_count: int = 0
    failed_count: int = 0
    unknown_count: int = 0
    waiting_count: int = 0  # incidents waiting for an hour, a digest or another attempt
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def send_due(db_path: str, rules_path: str, environ: Mapping[str, str], now_us: int) -> SendReport:
    """Send every due delivery of the rules in a file.

    Raises RulesError for an invalid file, StoreError or sqlite3.Error for the database.
    """
    rules = load_rules(rules_path)
    open_reader(
        db_path
    ).close()  # refuses a missing or older database before open_writer would create one
    report = SendReport()
    with closing(open_writer(os.fspath(db_path))) as connection:
        lost = abandon_deliveries(connection, now_us - CLAIM_LIMIT_US, LOST, now_us)
        if lost:
            report.unknown_count += 1
            report.problems.append(f"{format_plural(lost, 'incident')}: {LOST}")
        for rule in rules.rules:
            _queue_new(connection, rule, now_us, report)
            for name in rule.channels:
                _send_channel(
                    connection, rules, rule, rules.channels[name], environ, now_us, report
                )
        if connection.total_changes:
            checkpoint(connection)
    return report


def list_matching(
    reader: sqlite3.Connection, rule: AlertRule, channel: str, now_us: int
) -> list[IncidentEvent]:
    start = get_rule_start(reader, rule.name)
    since_us, noticed_us = (
        (start.since_us, start.seen_us - LOOK_AGAIN_US)
        if start
        else (find_earliest_us(rule, now_us), 0)
    )
    keys = list_new_keys(reader, rule.name, channel, since_us, noticed_us)
    events = filter(None, (load_event(reader, key) for key in keys))
    return [event for event in events if matches(rule, event.incident.direction, event.changes)]


def load_event(reader: sqlite3.Connection, key: AlertKey) -> IncidentEvent | None:
    stored = get_incident(reader, key.incident_id)
    if stored is None:
        return None
    changes = [
        change for change in list_changes_of(reader, [stored.id]) if change.state != "withdrawn"
    ]
    return IncidentEvent(key, stored, changes)


def find_earliest_us(rule: AlertRule, now_us: int) -> int:
    return now_us - FIRST_LOOK_US if rule.since_us is None else rule.since_us


def preview(
    reader: sqlite3.Connection, rule: AlertRule, now_us: int
) -> Iterator[tuple[str, list[IncidentEvent], bool]]:
    """Yield, for each channel, the waiting and new events and whether they would be sent now.
    Writes nothing.
    """
    for channel in rule.channels:
        new = [
            (
                Delivery.fresh(
                    rule.name, channel, event.key, event.incident.noticed_us or now_us, now_us
                ),
                event,
            )
            for event in list_matching(reader, rule, channel, now_us)
        ]
        waiting = [
            (delivery, load_event(reader, delivery.key))
            for delivery in list_waiting(reader, rule.name, channel)
        ]
        held = {
            delivery.key: event
            for delivery, event in [*waiting, *new]
            if event is not None and event.is_current
        }
        due = {
            delivery.key
            for delivery in list_due(
                rule, [delivery for delivery, _event in [*waiting, *new]], now_us
            )
        }
        yield channel, [event for key, event in held.items() if key in due], True
        yield channel, [event for key, event in held.items() if key not in due], False


def _queue_new(
    connection: sqlite3.Connection, rule: AlertRule, now_us: int, report: SendReport
) -> None:
    start = get_rule_start(connection, rule.name)
    if start is None:
        start_rule(connection, rule.name, find_earliest_us(rule, now_us), now_us)
        since = "in the last 24 hours" if rule.since_us is None else "since the day that it names"
        report.notes.append(
            f"rule {rule.name} runs for the first time: it sends only what was confirmed {since}"
        )
    for channel in rule.channels:
        matching = list_matching(connection, rule, channel, now_us)
        if matching:
            queue_deliveries(
                connection, rule.name, channel, [event.key for event in matching], now_us
            )
    if start is None or now_us - start.seen_us > MARK_EVERY_US:
        mark_rule_seen(connection, rule.name, now_us)


def _send_channel(
    connection: sqlite3.Connection,
    rules: AlertRules,
    rule: AlertRule,
    channel: Channel,
    environ: Mapping[str, str],
    now_us: int,
    report: SendReport,
) -> None:
    waiting = list_waiting(connection, rule.name, channel.name)
    due = _drop_settled(connection, rule, channel, list_due(rule, waiting, now_us), now_us)
    unset = channel.describe_unset(environ)
    if due and unset:
        report.problems.append(
            f"rule {rule.name}, channel {channel.name}: {unset}; "
            f"{format_plural(len(due), 'incident')} wait"
        )
        due = []
    for claim_id, members in _group_messages(rule, channel, due):
        _send_one(connection, rules, rule, channel, claim_id, members, environ, now_us, report)
    report.waiting_count += len(list_waiting(connection, rule.name, channel.name))


def _drop_settled(
    connection: sqlite3.Connection,
    rule: AlertRule,
    channel: Channel,
    due: list[Delivery],
    now_us: int,
) -> list[tuple[Delivery, IncidentEvent]]:
    sendable: list[tuple[Delivery, IncidentEvent]] = []
    for delivery in due:
        event = load_event(connection, delivery.key)
        if event is not None and event.is_current:
            sendable.append((delivery, event))
            continue
        incident = None if event is None else event.incident
        why = (
            "gone"
            if incident is None
            else incident.status
            if incident.status != "open"
            else incident.state
        )
        drop_delivery(
            connection, rule.name, channel.name, delivery.key, f"{why} before it was due", now_us
        )
    return sendable


def _group_messages(
    rule: AlertRule, channel: Channel, due: list[tuple[Delivery, IncidentEvent]]
) -> Iterator[tuple[str, list[tuple[Delivery, IncidentEvent]]]]:
    """Yield retries first, unchanged, then new deliveries. New ones are not joined to a failed
    message, because they would inherit its attempts.
    """
    again: dict[str, list[tuple[Delivery, IncidentEvent]]] = {}
    fresh: list[tuple[Delivery, IncidentEvent]] = []
    for due_delivery in due:
        message_id = due_delivery[0].message_id
        (fresh if message_id is None else again.setdefault(message_id, [])).append(due_delivery)
    yield from again.items()
    for start in range(0, len(fresh), MAX_INCIDENTS):
        members = fresh[start : start + MAX_INCIDENTS]
        yield (
            make_message_id(
                rule.name, channel.name, [":".join(event.key) for _delivery, event in members]
            ),
            members,
        )


def _send_one(
    connection: sqlite3.Connection,
    rules: AlertRules,
    rule: AlertRule,
    channel: Channel,
    claim_id: str,
    due: list[tuple[Delivery, IncidentEvent]],
    environ: Mapping[str, str],
    now_us: int,
    report: SendReport,
) -> None:
    keys = [event.key for _delivery, event in due]
    ours = set(claim_deliveries(connection, rule.name, channel.name, keys, claim_id, now_us))
    if not ours:
        return
    events = [event for _delivery, event in due if event.key in ours]
    attempts = 1 + max(delivery.attempt_count for delivery, event in due if event.key in ours)
    state, error, due_us = "sent", None, None
    try:
        error = send_message(
            lambda: make_message(claim_id, rule.name, events, rules.base_url, now_us),
            channel,
            rules.base_url,
            environ,
        )
        report.sent_count += 1
    except DeliveryFailed as problem:
        error = str(problem)
        if attempts < ATTEMPTS:
            state, due_us = "waiting", now_us + WAITS_US[attempts - 1]
            report.retried_count += 1
        else:
            state = "failed"
            report.failed_count += 1
    except DeliveryUnknown as problem:
        state, error = "unknown", str(problem)
        report.unknown_count += 1
    save_delivery_outcomes(
        connection,
        rule.name,
        channel.name,
        claim_id,
        state,
        now_us=now_us,
        error=error or None,
        due_us=due_us,
    )
    if state != "sent":
        outcome = {
            "waiting": "will be tried again",
            "failed": f"given up after {attempts} attempts",
        }
        consequence = outcome.get(state, "may have arrived, and is not sent again")
        report.problems.append(f"rule {rule.name}, channel {channel.name}: {error}; {consequence}")
