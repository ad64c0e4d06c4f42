"""Descriptions of alert rules, channels and their state."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from compileboard.app.alerts.clock import find_digest_after, find_quiet_end
from compileboard.app.alerts.message import clean
from compileboard.app.alerts.rules import PATTERNS, AlertRule, Channel, fits
from compileboard.app.format import format_plural, format_time, format_times
from compileboard.app.queries.dashboard.alerts import get_rule_start
from compileboard.app.queries.engine import Engine
from compileboard.app.queries.fleet.series import list_series_names
from compileboard.app.queries.fleet.trends import list_branches

STATE_WORDS = {
    "waiting": ("waiting", "busy"),
    "sending": ("sending", "busy"),
    "sent": ("sent", "good"),
    "failed": ("failed", "bad"),
    "unknown": ("unknown", "warn"),
    "dropped": ("dropped", "quiet"),
}
KIND_WORDS = {"webhook": "webhook, JSON", "slack": "webhook, Slack's form", "email": "e-mail"}


def describe_filters(rule: AlertRule) -> str:
    parts = [" or ".join(rule.direction)]
    parts += [f"of {' or '.join(rule.subject)}"] if rule.subject else []
    parts += [f"{name} {' or '.join(value)}" for name in PATTERNS if (value := getattr(rule, name))]
    parts += [f"at least {rule.least_percent:g}%"] if rule.least_percent else []
    return ", ".join(parts)


def describe_when(rule: AlertRule) -> str:
    when = "at once" if rule.digest is None else f"as a digest, {rule.digest_text}"
    quiet = f", quiet {rule.quiet_text}" if rule.quiet_text else ""
    return f"{when}{quiet}{f' ({rule.zone.key})' if rule.digest or rule.quiet_text else ''}"


def describe_channel(channel: Channel, environ: Mapping[str, str]) -> str:
    if channel.kind == "email":
        return (
            f"{KIND_WORDS[channel.kind]} to {', '.join(channel.to)} through {channel.host}"
            f" port {channel.port} ({channel.security})"
        )
    named = channel.url_env if environ.get(channel.url_env) else "the variable that url_env names"
    return (
        f"{KIND_WORDS[channel.kind]}, to the address in "
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


def find_next_us(rule: AlertRule, now_us: int) -> int:
    next_us = now_us if rule.digest is None else find_digest_after(rule.digest, rule.zone, now_us)
    return find_quiet_end(rule.quiet, rule.zone, next_us)


KEYS = ("suite", "model", "hardware")
MOST_NAMED = 5


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
        for value in _list(key, getattr(rule, key), {getattr(name, key) for name in names})
    ]
    values += _list("branch", rule.branch, list_branches(engine))
    if values or any(
        all(fits(getattr(rule, key), getattr(name, key)) for key in KEYS) for name in names
    ):
        return values
    return [
        (
            f"{', '.join(key for key in KEYS if getattr(rule, key))}: each fits something here, "
            "but no series fits all"
        )
    ]


def _list(key: str, patterns: Iterable[str], values: Iterable[str]) -> Iterator[str]:
    known = sorted({value for value in values if value})
    for pattern in patterns:
        if not any(fits((pattern,), name) for name in known):
            near = get_close_matches(pattern, known, MOST_NAMED) or known[:MOST_NAMED]
            more = (
                f" and {format_plural(len(known) - len(near), 'other')}"
                if len(known) > len(near)
                else ""
            )
            there = f"known: {', '.join(near)}{more}" if known else "known: none"
            yield clean(f"{key} {pattern} matches nothing here; {there}")
