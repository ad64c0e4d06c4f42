"""Patterns of a rule that nothing in the database fits: a slip of the pen, or what is not measured yet."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from compileboard.app.alerts.message import clean
from compileboard.app.alerts.rules import Rule, fits
from compileboard.app.format import format_plural
from compileboard.app.queries.series_names import list_series_names
from compileboard.app.queries.trends import list_branches

KEYS = ("suite", "model", "hardware")
MOST_NAMED = 5


def list_misfits(reader: sqlite3.Connection, rule: Rule) -> list[str]:
    """Say which patterns fit nothing here, and what there is; nothing where nothing was measured."""
    names = [it for it in list_series_names(reader) if not rule.subject or it.subject in rule.subject]
    if not names:
        return []
    said = [it for key in KEYS for it in _list(key, getattr(rule, key), {getattr(name, key) for name in names})]
    said += _list("branch", rule.branch, list_branches(reader))
    if said or any(all(fits(getattr(rule, key), getattr(name, key)) for key in KEYS) for name in names):
        return said
    return [f"{', '.join(key for key in KEYS if getattr(rule, key))}: each fits something here, but no series fits all"]


def _list(key: str, patterns: Iterable[str], values: Iterable[str]) -> Iterator[str]:
    known = sorted({it for it in values if it})
    for pattern in patterns:
        if not any(fits((pattern,), it) for it in known):
            near = get_close_matches(pattern, known, MOST_NAMED) or known[:MOST_NAMED]
            more = f" and {format_plural(len(known) - len(near), 'other')}" if len(known) > len(near) else ""
            there = f"there is {', '.join(near)}{more}" if known else "none has one"
            yield clean(f"{key} {pattern} fits nothing here; {there}")
