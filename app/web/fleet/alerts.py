"""The Alerts page: the rules as they were read, what waits, what was sent, and what failed and why."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from flask import Blueprint, render_template, request

from compileboard.app.alerts import labels
from compileboard.app.alerts.delivery import list_due
from compileboard.app.alerts.rules import AlertRule, Rules, RulesError
from compileboard.app.alerts.rules_file import EXAMPLE, load_rules
from compileboard.app.analysis.incidents.messages import describe_finding
from compileboard.app.db import get_reader, get_settings
from compileboard.app.queries.fleet.alerts import STATES, Delivery, count_deliveries, list_deliveries, list_waiting
from compileboard.app.queries.fleet.incidents import SeriesChange, get_finding
from compileboard.app.queries.fleet.trends import read_choice
from compileboard.app.queries.page import check_limit
from compileboard.app.queries.parameters import check_keys

blueprint = Blueprint("alerts", __name__)


@dataclass(frozen=True)
class RuleView:
    """Hold a rule in words, how many findings it has in which state, and when what waits may go out, None for now."""

    rule: AlertRule
    start: str
    counts: tuple[tuple[str, int], ...]
    waiting_count: int
    next_us: int | None


@blueprint.get("/alerts")
def index() -> str:
    """Show rules, channels and deliveries."""
    check_keys(request.args, ("state", "cursor", "limit"))
    reader, settings = get_reader(), get_settings()
    state = read_choice(request.args, "state", ("", *STATES), "") or None
    limit = check_limit(request.args.get("limit"), settings.page_size)
    page = list_deliveries(reader, state, None, request.args.get("cursor"), limit)
    rules, mistakes = _load(settings.alerts)
    return render_template(
        "alerts/index.html",
        rules=rules,
        mistakes=mistakes,
        path=settings.alerts,
        views=list(_view(reader, rules)) if rules else [],
        unset={it.name: it.list_unset(os.environ) for it in rules.channels.values()} if rules else {},
        deliveries=page,
        found=_find(reader, page.rows),
        state=state,
        states=STATES,
        words=labels,
        environ=os.environ,
        describe=describe_finding,
        example=EXAMPLE,
    )


def _load(path: str) -> tuple[Rules | None, list[str]]:
    if not path:
        return None, []
    try:
        return load_rules(path), []
    except RulesError as error:
        return None, error.mistakes


def _view(reader: sqlite3.Connection, rules: Rules) -> Iterator[RuleView]:
    now_us = time.time_ns() // 1000
    counted = count_deliveries(reader)
    for rule in rules.rules:
        of = {key: count for key, count in counted.items() if key[0] == rule.name}
        counts = {it: sum(count for (_rule, _channel, state), count in of.items() if state == it) for it in STATES}
        waiting = [it for name in rule.channels for it in list_waiting(reader, rule.name, name)]
        shown = tuple((it, count) for it, count in counts.items() if count)
        next_us = _find_next(rule, waiting, now_us)
        yield RuleView(rule, labels.describe_start(reader, rule), shown, len(waiting), next_us)


def _find_next(rule: AlertRule, waiting: list[Delivery], now_us: int) -> int | None:
    """Return when the first of what waits may go out, None for now."""
    if not waiting or list_due(rule, waiting, now_us):
        return None
    return labels.find_next_us(rule, max(now_us, min(it.due_us for it in waiting)))


def _find(reader: sqlite3.Connection, rows: Iterable[Delivery]) -> dict[str, SeriesChange]:
    found = (get_finding(reader, it) for it in dict.fromkeys(row.finding_id for row in rows))
    return {it.id: it for it in found if it}
