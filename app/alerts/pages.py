"""The Alerts page (rules, pending, sent and failed deliveries) and the Atom feed of incidents
(RFC 4287), which takes the filters of the Incidents page.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, Response, render_template, request, url_for

from compileboard.app.alerts import message as labels
from compileboard.app.alerts.message import STATE_WORDS, clean
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
    AlertRules,
    Channel,
    RulesError,
    list_due,
    load_rules,
)
from compileboard.app.benchmarks.trend_queries import read_choice
from compileboard.app.core.db import get_clock, get_reader, get_settings
from compileboard.app.core.format import format_iso_time
from compileboard.app.core.page import FilterError, check_limit
from compileboard.app.core.parameters import check_keys
from compileboard.app.incidents.model import INCIDENT_LABELS, Incident
from compileboard.app.incidents.queries import get_incident, list_incidents, read_incident_filter


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


def _try_load_rules(path: str) -> tuple[AlertRules | None, list[str]]:
    if not path:
        return None, []
    try:
        return load_rules(path), []
    except RulesError as error:
        return None, error.mistakes


def list_channel_statuses(rules: AlertRules, environ: Mapping[str, str]) -> list[ChannelStatus]:
    return [
        ChannelStatus(
            channel, labels.describe_channel(channel, environ), channel.list_unset(environ)
        )
        for channel in rules.channels.values()
    ]


def list_rule_statuses(
    reader: sqlite3.Connection, rules: AlertRules, now_us: int
) -> list[RuleStatus]:
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
            when=labels.describe_schedule(rule),
            start=labels.describe_start(reader, rule),
            counts=[(state, count) for state, count in counts.items() if count],
            waiting_count=len(waiting),
            next_us=_find_next_send_us(rule, waiting, now_us),
        )
        statuses.append(status)
    return statuses


def _find_next_send_us(rule: AlertRule, waiting: list[Delivery], now_us: int) -> int | None:
    if not waiting or list_due(rule, waiting, now_us):
        return None
    return labels.find_next_send_us(rule, max(now_us, min(delivery.due_us for delivery in waiting)))


blueprint = Blueprint("alerts", __name__)


@blueprint.get("/alerts")
def index() -> str:
    args, settings = request.args, get_settings()
    check_keys(args, ("state", "cursor", "limit"))
    state = read_choice(args, "state", ("", *STATES), "") or None
    limit_count = check_limit(args.get("limit"), settings.page_size)
    reader = get_reader()
    page = list_deliveries(reader, state, None, args.get("cursor"), limit_count)
    rules, mistakes = _try_load_rules(settings.alerts)
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


feed_blueprint = Blueprint("feed", __name__)

# No one owns a name below .invalid (RFC 2606), so an id is the same wherever the dashboard is
# served.
TAG = "tag:compileboard.invalid,2026:incidents"
TYPE = "application/atom+xml; charset=utf-8"
_TITLE_LIMIT = 300
# Characters that XML 1.0 cannot contain, even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@feed_blueprint.get("/incidents.atom")
def incidents() -> Response:
    """Send the confirmed incidents of a filter, most recently confirmed first.

    If they were ordered by newest run, occasional readers would miss late confirmations.
    """
    given = {key: value for key, value in request.args.items() if value}
    if given.get("state") == "unconfirmed":
        raise FilterError("state: the feed has confirmed incidents alone; leave it out")
    selection = read_incident_filter({"state": "confirmed", "direction": "worse"} | given)
    limit = check_limit(given.get("limit"), get_settings().page_size)
    page = list_incidents(get_reader(), selection, given.get("cursor"), limit, "noticed_us")
    changed_us = max((incident.changed_us for incident in page.rows), default=0)
    filters = {key: value for key, value in given.items() if key not in ("cursor", "limit")}
    here = url_for("feed.incidents", _external=True)
    body = render_template(
        "alerts/feed.xml",
        title=", ".join(f"{key} {value}" for key, value in filters.items()),
        tag=TAG,
        query=_write_query(filters),  # the same for all pages (RFC 5005)
        changed=format_iso_time(changed_us),
        here=here + _write_query(given),
        next=page.next and here + _write_query(given | {"cursor": page.next}),
        entries=[_make_entry(incident) for incident in page.rows],
        line=_clean_xml,
    )
    response = Response(body, content_type=TYPE)
    response.last_modified = datetime.fromtimestamp(changed_us // 1_000_000, timezone.utc)
    return response


def _write_query(query: dict[str, str]) -> str:
    return f"?{urlencode(sorted(query.items()))}" if query else ""


def _make_entry(incident: Incident) -> dict[str, Any]:
    authors = dict.fromkeys(str(commit.get("author") or "") for commit in _list_commits(incident))
    return {
        "incident": incident,
        "published": format_iso_time(incident.noticed_us or incident.found_us),
        "updated": format_iso_time(incident.changed_us),
        "authors": [name for name in authors if name.strip()] or ["CompileBoard"],
        "terms": dict.fromkeys(filter(None, (incident.direction, incident.state, incident.suite))),
        "content": "\n".join(_clean_xml(line, 1000) for line in _list_summary_lines(incident)),
    }


def _list_summary_lines(incident: Incident) -> Iterator[str]:
    yield f"{INCIDENT_LABELS[incident.state][0]}: {incident.title}"
    yield incident.measured_as
    yield f"first bad {incident.first_bad.label}" + (
        f", last good {incident.last_good.label}" if incident.last_good else ""
    )
    for metric in incident.headlines:
        yield f"{metric.label}: {metric.values}{f' ({metric.size})' if metric.size else ''}"
    for part in incident.environment:
        yield (
            f"{part.get('word')}: {part.get('before') or 'unknown'} → "
            f"{part.get('now') or 'unknown'}"
        )
    for commit in _list_commits(incident):
        yield (
            f"commit {str(commit.get('hash') or '')[:7]}: {commit.get('subject')} "
            f"({commit.get('author')})"
        )
    for cause in incident.causes:
        yield f"likely cause: {cause.text}{f' ({cause.reason})' if cause.reason else ''}"
    if incident.code_owners:
        yield f"code owners: {' '.join(incident.code_owners)}"


def _list_commits(incident: Incident) -> list[dict[str, object]]:
    return list((incident.commits or {}).get("listed") or ())


def _clean_xml(text: str, limit: int = _TITLE_LIMIT) -> str:
    return clean(_FORBIDDEN.sub("", text), limit)
