"""Periods as people write them: days, times in UTC, or how long ago."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from compileboard.app.format import format_time, format_times
from compileboard.app.queries.page import FilterError

DAY_US = 86_400_000_000
DEFAULT_LAST = "30d"
_UNITS_US = {"h": 3_600_000_000, "d": DAY_US, "w": 7 * DAY_US}
_LENGTH = re.compile(r"([0-9]{1,6})([hdw])")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EXPECTED = (
    "a day as 2026-10-01 or today, a time in UTC as 2026-10-01T06:00, or how long ago as 36h, "
    "30d or 12w"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Period:
    """A period; `since_us` is in it, `until_us` is not.

    Units: microseconds since the epoch.
    """

    since_us: int
    until_us: int

    @property
    def is_days(self) -> bool:
        return not self.since_us % DAY_US and not self.until_us % DAY_US

    @property
    def days(self) -> tuple[str, str]:
        return format_time(self.since_us)[:10], format_time(self.until_us - 1)[:10]

    @property
    def text(self) -> str:
        if self.is_days:
            return " to ".join(self.days)
        return " to ".join(format_times(self.since_us, self.until_us))


def read_period(since: str | None, until: str | None, last: str | None, now_us: int) -> Period:
    """Parse a period that ends at `until` (that day included), else now, and begins at `since` or
    `last` before its end.

    Raises FilterError for an unreadable time, or an end that is not after the beginning.
    """
    if since and last:
        raise FilterError(
            f"last: {last[:40]!r} and since={since[:40]!r} both set the start of the period; "
            "give one"
        )
    end = _read_moment("until", until, now_us, ends=True) if until else now_us
    if since:
        begin = _read_moment("since", since, now_us, ends=False)
    else:
        begin = end - read_length("last", last or DEFAULT_LAST)
    if begin >= end:
        raise FilterError(
            f"since: it begins at {format_time(begin)}, which is not before its end, "
            f"{format_time(end)}"
        )
    return Period(begin, end)


def read_length(name: str, text: str) -> int:
    """Parse a length of time such as 36h, 30d or 12w into microseconds.

    Raises FilterError if it is none.
    """
    match = _LENGTH.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise FilterError(
            f"{name}: {text[:40]!r} is no length of time; expected a number of hours, days or "
            "weeks as 12w"
        )
    return int(match[1]) * _UNITS_US[match[2]]


def _read_moment(name: str, text: str, now_us: int, *, ends: bool) -> int:
    text = text.strip()
    if _LENGTH.fullmatch(text):
        return now_us - read_length(name, text)
    if text == "today":
        return now_us // DAY_US * DAY_US + (DAY_US if ends else 0)
    try:
        moment = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
    except ValueError:
        raise FilterError(f"{name}: {text[:40]!r} is no time; expected {_EXPECTED}") from None
    moment = moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment
    time_us = (moment - _EPOCH) // timedelta(microseconds=1)
    return time_us + DAY_US if ends and _DAY.fullmatch(text) else time_us
