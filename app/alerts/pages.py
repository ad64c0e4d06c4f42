"""The state of alerts: rules, pending deliveries, and sent and failed ones."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flask import Blueprint, render_template, request

from compileboard.app.alerts import message as labels
from compileboard.app.alerts.message import STATE_WORDS
from compileboard.app.alerts.queries import (
    STATES,
    Delivery,
    count_deliveries,
    list_deliveries,
    list_waiting,
)
from compileboard.app.alerts.rules import (
    EXAMPLE,
    AlertRule,
    Channel,
    Rules,
    RulesError,
    list_due,
    load_rules,
)
from compileboard.app.benchmarks.trend_queries import read_choice
from compileboard.app.core.db import get_clock, get_reader, get_settings
from compileboard.app.core.page import check_limit
from compileboard.app.core.parameters import check_keys
from compileboard.app.incidents.queries import get_incident


@dataclass(frozen=True)
class RuleStatus:
    rule: AlertRule
    filters: str
    when: str
    start: str
    counts: Sequence[tuple[str, int]]
    waiting_count: int
    next_us: int | None


@dataclass(frozen=True)
class ChannelStatus:
    channel: Channel
    where: str
    unset: Sequence[str]


def _load(path: str) -> tuple[Rules | None, list[str]]:
    if not path:
        return None, []
    try:
        return load_rules(path), []
    except RulesError as error:
        return None, error.mistakes


def list_channel_statuses(rules: Rules, environ: Mapping[str, str]) -> list[ChannelStatus]:
    return [
        ChannelStatus(
            channel, labels.describe_channel(channel, environ), channel.list_unset(environ)
        )
        for channel in rules.channels.values()
    ]


def list_rule_statuses(reader: sqlite3.Connection, rules: Rules, now_us: int) -> list[RuleStatus]:
    delivered = count_deliveries(reader)
    statuses = []
    for rule in rules.rules:
        own = [
            (state, count)
            for (name, _channel, state), count in delivered.items()
            if name == rule.name
        ]
        counts = {state: sum(count for other, count in own if other == state) for state in STATES}
        waiting = [
            delivery for name in rule.channels for delivery in list_waiting(reader, rule.name, name)
        ]
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
    if not waiting or list_due(rule, waiting, now_us):
        return None
    return labels.find_next_us(rule, max(now_us, min(delivery.due_us for delivery in waiting)))


blueprint = Blueprint("alerts", __name__)


@blueprint.get("/alerts")
def index() -> str:
    args, settings = request.args, get_settings()
    check_keys(args, ("state", "cursor", "limit"))
    state = read_choice(args, "state", ("", *STATES), "") or None
    limit_count = check_limit(args.get("limit"), settings.page_size)
    reader = get_reader()
    page = list_deliveries(reader, state, None, args.get("cursor"), limit_count)
    rules, mistakes = _load(settings.alerts)
    ids = dict.fromkeys(row.incident_id for row in page.rows)
    return render_template(
        "alerts/index.html",
        rules=rules,
        mistakes=mistakes,
        statuses=list_rule_statuses(reader, rules, get_clock().now_us) if rules else (),
        channels=list_channel_statuses(rules, os.environ) if rules else (),
        deliveries=page,
        incidents={id_: get_incident(reader, id_) for id_ in ids},
        path=settings.alerts,
        state=state,
        states=STATES,
        state_words=STATE_WORDS,
        example=EXAMPLE,
    )
