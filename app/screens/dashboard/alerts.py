"""How alerts stand: the rules as they were read, what waits, what was sent, and what failed and why."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compileboard.app.alerts import labels
from compileboard.app.alerts.rules import AlertRule, Channel, Rules, RulesError, list_due
from compileboard.app.alerts.rules_file import load_rules
from compileboard.app.queries.dashboard.alerts import STATES, Delivery, count_deliveries, list_deliveries, list_waiting
from compileboard.app.queries.dashboard.incidents import StoredIncident, get_stored_incident
from compileboard.app.queries.page import Page


@dataclass(frozen=True)
class RuleStatus:
    """A rule in words, how many deliveries it has in which state, and when what waits may go out, None for now."""

    rule: AlertRule
    filters: str
    when: str
    start: str
    counts: Sequence[tuple[str, int]]
    waiting_count: int
    next_us: int | None


@dataclass(frozen=True)
class ChannelStatus:
    """A channel, where it leads in words, and the keys whose variables are not set."""

    channel: Channel
    where: str
    unset: Sequence[str]


@dataclass(frozen=True)
class AlertsScreen:
    """The rules or the mistakes in their file, the channels, and one page of deliveries with what they tell of."""

    rules: Rules | None
    mistakes: Sequence[str]
    statuses: Sequence[RuleStatus]
    channels: Sequence[ChannelStatus]
    deliveries: Page[Delivery]
    incidents: Mapping[str, StoredIncident]


def build_alerts(
    reader: sqlite3.Connection,
    path: str,
    environ: Mapping[str, str],
    state: str | None,
    cursor: str | None,
    limit_count: int,
    now_us: int,
) -> AlertsScreen:
    """Build how the rules of a file stand; an empty path has none.

    Raises: FilterError if the cursor cannot be used.
    """
    page = list_deliveries(reader, state, None, cursor, limit_count)
    rules, mistakes = _load(path)
    ids = dict.fromkeys(row.incident_id for row in page.rows)
    incidents = (get_stored_incident(reader, incident_id) for incident_id in ids)
    return AlertsScreen(
        rules=rules,
        mistakes=mistakes,
        statuses=list_rule_statuses(reader, rules, now_us) if rules else (),
        channels=list_channel_statuses(rules, environ) if rules else (),
        deliveries=page,
        incidents={incident.id: incident for incident in incidents if incident},
    )


def _load(path: str) -> tuple[Rules | None, list[str]]:
    if not path:
        return None, []
    try:
        return load_rules(path), []
    except RulesError as error:
        return None, error.mistakes


def list_channel_statuses(rules: Rules, environ: Mapping[str, str]) -> list[ChannelStatus]:
    """List the channels of a file of rules."""
    return [
        ChannelStatus(channel, labels.describe_channel(channel, environ), channel.list_unset(environ))
        for channel in rules.channels.values()
    ]


def list_rule_statuses(reader: sqlite3.Connection, rules: Rules, now_us: int) -> list[RuleStatus]:
    """List how the rules of a file stand."""
    delivered = count_deliveries(reader)
    statuses = []
    for rule in rules.rules:
        own = [(state, count) for (name, _channel, state), count in delivered.items() if name == rule.name]
        counts = {state: sum(count for other, count in own if other == state) for state in STATES}
        waiting = [delivery for name in rule.channels for delivery in list_waiting(reader, rule.name, name)]
        status = RuleStatus(
            rule=rule,
            filters=labels.describe_filters(rule),
            when=labels.describe_when(rule),
            start=labels.describe_start(reader, rule),
            counts=[(state, count) for state, count in counts.items() if count],
            waiting_count=len(waiting),
            next_us=_find_next(rule, waiting, now_us),
        )
        statuses.append(status)
    return statuses


def _find_next(rule: AlertRule, waiting: list[Delivery], now_us: int) -> int | None:
    """Return when the first of what waits may go out, None for now."""
    if not waiting or list_due(rule, waiting, now_us):
        return None
    return labels.find_next_us(rule, max(now_us, min(delivery.due_us for delivery in waiting)))
