"""The content of a message before it is formatted for a channel: one part per incident."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from urllib.parse import quote

from compileboard.app.alerts.queries import get_rule_start
from compileboard.app.alerts.rules import (
    KINDS,
    PATTERNS,
    AlertRule,
    Channel,
    find_digest_after,
    find_quiet_end,
    matches_any_pattern,
)
from compileboard.app.benchmarks.series_queries import list_series_names
from compileboard.app.benchmarks.trend_queries import list_branches
from compileboard.app.core.engine import Engine
from compileboard.app.core.format import format_plural, format_time, format_times
from compileboard.app.incidents.model import (
    HeadlineMetric,
    Incident,
    SeriesChange,
    describe_environment,
    list_checks,
)
from compileboard.collectors.store.dashboard import RECOVERED, AlertKey

MAX_LISTED = 20  # changes named per incident; a link leads to all
MAX_COMMITS = 5
MAX_CAUSES = 3
MAX_PARTS = 12
LINE_LIMIT = 400
# Characters that break a line, a header or a terminal, and lone surrogates, which UTF-8 cannot
# encode.
_UNSAID = re.compile(
    "[\x00-\x20\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]+"
)


@dataclass(frozen=True)
class IncidentEvent:
    key: AlertKey
    incident: Incident
    changes: Sequence[SeriesChange]

    @property
    def is_recovery(self) -> bool:
        return self.key.event == RECOVERED

    @property
    def is_current(self) -> bool:
        if self.is_recovery:
            return self.incident.state == "recovered" and self.incident.status != "ignored"
        return self.incident.state in ("open", "closed") and self.incident.status == "open"


@dataclass(frozen=True)
class MessagePart:
    title: str
    url: str  # The URL of each line.
    lines: Sequence[str]
    facts: Sequence[tuple[str, Sequence[str]]] = ()


@dataclass(frozen=True)
class AlertMessage:
    id: str
    rule: str
    title: str
    url: str
    made_us: int
    events: Sequence[IncidentEvent]
    parts: Sequence[MessagePart]
    is_test: bool = False


def make_message_id(rule: str, channel: str, keys: Iterable[str]) -> str:
    identity = "\x1f".join((rule, channel, *sorted(keys)))
    return hashlib.sha256(identity.encode(errors="replace")).hexdigest()[:32]


def make_message(
    message_id: str, rule: str, events: Sequence[IncidentEvent], base_url: str, now_us: int
) -> AlertMessage:
    events = sorted(
        events,
        key=lambda event: (event.is_recovery, event.incident.severity, event.incident.first_us),
    )
    parts = [_make_part(event, base_url) for event in events[:MAX_PARTS]]
    if len(events) > MAX_PARTS:
        others = f"and {format_plural(len(events) - MAX_PARTS, 'other incident')}"
        parts.append(MessagePart(others, absolute_url(base_url, "/incidents"), ["All incidents"]))
    url = (
        incident_url(events[0].incident, base_url)
        if len(events) == 1
        else absolute_url(base_url, "/incidents")
    )
    return AlertMessage(message_id, rule, make_title(events), url, now_us, events, parts)


def make_test_message(rule: str, base_url: str, now_us: int) -> AlertMessage:
    title, url = f"Test of rule {rule}", absolute_url(base_url, "/alerts")
    part = MessagePart(title, url, ["Incidents of this rule come here. This is a test."])
    message_id = make_message_id(rule, "test", [str(now_us)])
    return AlertMessage(message_id, rule, title, url, now_us, (), [part], is_test=True)


def make_title(events: Sequence[IncidentEvent]) -> str:
    if len(events) == 1:
        return clean(describe_event(events[0]))
    opened = [event for event in events if not event.is_recovery]
    counts = [
        format_plural(len(opened), "incident") if opened else "",
        f"{len(events) - len(opened)} recovered" if len(opened) < len(events) else "",
    ]
    return clean(f"{', '.join(filter(None, counts))}: {describe_event(events[0])}")


def describe_event(event: IncidentEvent) -> str:
    """Format as `ranker: speedup −54% since c7ed8b7, cause: graph break at ranker.py:70`."""
    incident = event.incident
    headline = incident.headlines[0] if incident.headlines else None
    what = incident.what
    if headline is not None and headline.size:
        what = f"{headline.label.lower()} {headline.size}"
    elif incident.cause is not None:
        what = what.partition(f", {incident.cause.text[:20]}")[0]
    if event.is_recovery:
        by = f" in {incident.recovered.label}" if incident.recovered else ""
        return f"Recovered{by}: {incident.subject}: {what}"
    since = incident.first_bad.short_commit or format_time(incident.first_us)[:16]
    cause = incident.cause
    text = (
        cause.text[:1].lower() + cause.text[1:]
        if cause and cause.kind != "failure"
        else cause.text
        if cause
        else ""
    )
    return f"{incident.subject}: {what} since {since}{f', cause: {text}' if text else ''}"


def incident_url(incident: Incident, base_url: str) -> str:
    return absolute_url(base_url, f"/incidents/{quote(incident.id, safe='')}")


def clean(text: str, limit: int = LINE_LIMIT) -> str:
    line = _UNSAID.sub(" ", text).strip()
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _make_part(event: IncidentEvent, base_url: str) -> MessagePart:
    incident = event.incident
    changes = event.changes[:MAX_LISTED]
    lines = [clean(_describe_metric(metric)) for metric in incident.headlines]
    shown = {metric.change_id for metric in incident.headlines}
    lines += [clean(change.sentence) for change in changes if change.id not in shown]
    more = len(event.changes) - MAX_LISTED
    if more > 0:
        lines.append(f"and {format_plural(more, 'other')}")
    facts = [
        ("Configuration", [clean(incident.measured_as)] if incident.measured_as else []),
        ("Environment", [clean(describe_environment(part)) for part in incident.environment]),
        ("Commits", _list_commits(incident)),
        ("Cause" if incident.has_one_cause else "Likely causes", _list_causes(incident)),
        ("Code owners", [clean(" ".join(incident.code_owners))] if incident.code_owners else []),
    ]
    return MessagePart(
        clean(describe_event(event)),
        incident_url(incident, base_url),
        lines,
        [(label, texts) for label, texts in facts if texts],
    )


def _describe_metric(metric: HeadlineMetric) -> str:
    size = f" ({metric.size})" if metric.size else ""
    return f"{metric.subject}: {metric.label.lower()} {metric.values}{size}"


def _list_commits(incident: Incident) -> list[str]:
    commits = incident.commits or {}
    listed = list(commits.get("listed") or ())
    if not listed:
        bad = incident.first_bad
        return [clean(f"{bad.short_commit} {bad.subject or ''}")] if bad.short_commit else []
    count = max(int(commits.get("count") or 0), len(listed))
    lines = [
        clean(
            f"{str(commit.get('hash') or '')[:7]} {commit.get('subject') or ''} "
            f"({commit.get('author') or 'unknown'})"
        )
        for commit in listed[:MAX_COMMITS]
    ]
    return lines + (
        [f"and {format_plural(count - MAX_COMMITS, 'other')}"] if count > MAX_COMMITS else []
    )


def _list_causes(incident: Incident) -> list[str]:
    lines: list[str] = []
    for cause in incident.causes[:MAX_CAUSES]:
        lines.append(clean(f"{cause.text}{f': {cause.reason}' if cause.reason else ''}"))
        lines += [
            clean(f"{'✓' if check.passed else '–'} {check.text}") for check in list_checks(cause)
        ]
    return lines


def absolute_url(base_url: str, path: str) -> str:
    return f"{base_url}{path}" if base_url else ""


STATE_WORDS = {
    "waiting": ("waiting", "busy"),
    "sending": ("sending", "busy"),
    "sent": ("sent", "good"),
    "failed": ("failed", "bad"),
    "unknown": ("unknown", "warn"),
    "dropped": ("dropped", "quiet"),
}


def describe_filters(rule: AlertRule) -> str:
    parts = [" or ".join(rule.direction)]
    parts += [f"of {' or '.join(rule.subject)}"] if rule.subject else []
    parts += [f"{name} {' or '.join(value)}" for name in PATTERNS if (value := getattr(rule, name))]
    parts += [f"at least {rule.least_percent:g}%"] if rule.least_percent else []
    return ", ".join(parts)


def describe_schedule(rule: AlertRule) -> str:
    when = "at once" if rule.digest is None else f"as a digest, {rule.digest_text}"
    quiet = f", quiet {rule.quiet_text}" if rule.quiet_text else ""
    return f"{when}{quiet}{f' ({rule.zone.key})' if rule.digest or rule.quiet_text else ''}"


def describe_channel(channel: Channel, environ: Mapping[str, str]) -> str:
    if channel.kind == "email":
        return (
            f"{KINDS[channel.kind]} to {', '.join(channel.to)} through {channel.host}"
            f" port {channel.port} ({channel.security})"
        )
    named = channel.url_env if environ.get(channel.url_env) else "the variable that url_env names"
    return (
        f"{KINDS[channel.kind]}, to the address in "
        f"{named}{', signed' if channel.secret_env else ''}"
    )


def describe_start(reader: sqlite3.Connection, rule: AlertRule) -> str:
    start = get_rule_start(reader, rule.name)
    if start is None:
        since = (
            "in the 24 hours before"
            if rule.since_us is None
            else f"from {format_time(rule.since_us)[:10]} on"
        )
        return f"not run yet; its first pass takes incidents confirmed {since}"
    first, since = format_times(start.first_us, start.since_us)
    return f"runs since {first}, takes incidents confirmed since {since}"


def find_next_send_us(rule: AlertRule, now_us: int) -> int:
    next_us = now_us if rule.digest is None else find_digest_after(rule.digest, rule.zone, now_us)
    return find_quiet_end(rule.quiet, rule.zone, next_us)


KEYS = ("suite", "model", "hardware")
MAX_NAMED = 5


def list_unmatched_patterns(engine: Engine, rule: AlertRule) -> list[str]:
    names = [
        series_name
        for series_name in list_series_names(engine)
        if not rule.subject or series_name.subject in rule.subject
    ]
    if not names:
        return []
    values = [
        value
        for key in KEYS
        for value in _list_unmatched(
            key, getattr(rule, key), {getattr(name, key) for name in names}
        )
    ]
    values += _list_unmatched("branch", rule.branch, list_branches(engine))
    if values or any(
        all(matches_any_pattern(getattr(rule, key), getattr(name, key)) for key in KEYS)
        for name in names
    ):
        return values
    return [
        (
            f"{', '.join(key for key in KEYS if getattr(rule, key))}: each fits something here, "
            "but no series fits all"
        )
    ]


def _list_unmatched(key: str, patterns: Iterable[str], values: Iterable[str]) -> Iterator[str]:
    known = sorted({value for value in values if value})
    for pattern in patterns:
        if not any(matches_any_pattern((pattern,), name) for name in known):
            near = get_close_matches(pattern, known, MAX_NAMED) or known[:MAX_NAMED]
            more = (
                f" and {format_plural(len(known) - len(near), 'other')}"
                if len(known) > len(near)
                else ""
            )
            there = f"known: {', '.join(near)}{more}" if known else "known: none"
            yield clean(f"{key} {pattern} matches nothing here; {there}")
