"""Parsers for the values of an alert rules file; each returns None for an invalid value."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timezone
from email.utils import parseaddr
from fnmatch import filter as keep_fitting
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from compileboard.app.alerts.clock import DAYS
from compileboard.app.analysis.incidents.messages import list_metric_names

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_ADDRESS = re.compile(r"(\w://)([^/?#\s'\"]*)([^\s'\"]*)")
Accept = Callable[[Any], Any]


def parse_table(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) and value else None


def parse_list(value: Any) -> list[Any] | None:
    return value if isinstance(value, list) and value else None


def parse_name(value: Any) -> str | None:
    return value if isinstance(value, str) and NAME.fullmatch(value) else None


def parse_variable(value: Any) -> str | None:
    return value if isinstance(value, str) and VARIABLE.fullmatch(value) else None


def parse_host(value: Any) -> str | None:
    return (
        value if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9.:_-]{1,253}", value) else None
    )


def parse_texts(value: Any) -> tuple[str, ...] | None:
    texts = [value] if isinstance(value, str) else value
    good = (
        isinstance(texts, list)
        and texts
        and all(isinstance(text, str) and 0 < len(text) <= 500 for text in texts)
    )
    return tuple(texts) if good else None


def parse_metrics(value: Any) -> tuple[str, ...] | None:
    texts = parse_texts(value)
    return (
        texts if texts and all(keep_fitting(list_metric_names(), text) for text in texts) else None
    )


def parse_known(known: tuple[str, ...]) -> Accept:
    def take(value: Any) -> tuple[str, ...] | None:
        texts = parse_texts(value)
        return tuple(dict.fromkeys(texts)) if texts and set(texts) <= set(known) else None

    return take


def one_of(known: tuple[str, ...]) -> Accept:
    return lambda value: value if isinstance(value, str) and value in known else None


def format_one_of(known: tuple[str, ...]) -> str:
    return (
        ", ".join(known[:-1]) + " or " + known[-1]
        if len(known) > 1
        else "".join(known) or "channels, of which none is"
    )


def parse_days(value: Any) -> tuple[int, ...] | None:
    texts = parse_texts(value)
    good = texts and set(texts) <= set(DAYS) and len(set(texts)) < len(DAYS)
    return tuple(DAYS.index(text) for text in texts) if texts and good else None


def parse_whole(low: int, high: int) -> Accept:
    return lambda value: value if type(value) is int and low <= value <= high else None


def parse_percent(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and 0 <= value < 1e9 else None


def parse_zone(value: Any) -> ZoneInfo | None:
    try:
        return ZoneInfo(value) if isinstance(value, str) and value else None
    except (
        KeyError,
        ValueError,
        OSError,
    ):  # KeyError: no such zone; the others: names that are paths
        return None


def parse_date(value: Any) -> int | None:
    if isinstance(value, datetime) or not isinstance(value, date):
        return None
    return (
        round(datetime(value.year, value.month, value.day, tzinfo=timezone.utc).timestamp())
        * 1_000_000
    )


def parse_url(value: Any) -> str | None:
    if not isinstance(value, str) or re.search(r"[\s\x00-\x20\x7f<>\"]", value):
        return None
    try:
        parts = urlsplit(value)
        good = (
            parts.scheme in ("http", "https")
            and parts.hostname
            and not (parts.query or parts.fragment)
        )
    except ValueError:
        return None
    return value.rstrip("/") if good and "@" not in parts.netloc else None


def parse_address(value: Any) -> str | None:
    if not isinstance(value, str) or re.search(r"[\x00-\x1f\x7f]", value):
        return None
    _name, address = parseaddr(value)
    good = (
        address.isascii() and re.fullmatch(r"[^@\s<>,]+@[^@\s<>,]+", address) and "," not in value
    )
    return value if good else None


def parse_addresses(value: Any) -> tuple[str, ...] | None:
    texts = parse_texts(value)
    return texts if texts and all(parse_address(text) for text in texts) else None


def show(value: object) -> str:
    """Shorten an invalid value for an error message. It may hold secrets: of a URL only the host is
    shown.
    """
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list) and any(isinstance(element, (dict, list)) for element in value):
        return "a list of tables or lists"
    text = repr(value if isinstance(value, (str, int, float, bool, list)) else str(value))
    return _ADDRESS.sub(_shorten, text)[:80]


def _shorten(address: re.Match[str]) -> str:
    start, host, end = address.groups()
    return f"{start}…" if "@" in host + end else f"{start}{host}/…" if end else address[0]
