"""Quiet hours, quiet days and digest times, in the local time of a time zone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
_SPAN = re.compile(rf"({_TIME.pattern})-({_TIME.pattern})")
_DIGEST = re.compile(rf"(?:daily|weekly ({'|'.join(DAYS)})) ({_TIME.pattern})")


@dataclass(frozen=True)
class Quiet:
    """The minutes of the day in which nothing is sent; a range may pass midnight.

    Units: minutes since midnight; two equal minutes are no hours at all. Days: 0 is Monday.
    """

    from_minute: int = 0
    to_minute: int = 0
    days: frozenset[int] = frozenset()


NEVER_QUIET = Quiet()


@dataclass(frozen=True)
class Digest:
    minute: int
    weekday: int | None = None


def parse_quiet(text: str, days: frozenset[int] = frozenset()) -> Quiet | None:
    """Parse `22:00-07:00`, '' for no quiet hours; return None for anything else."""
    if not text:
        return Quiet(days=days)
    parsed = _SPAN.fullmatch(text)
    if parsed is None:
        return None
    start, end = int(parsed[2]) * 60 + int(parsed[3]), int(parsed[5]) * 60 + int(parsed[6])
    return None if start == end else Quiet(start, end, days)


def parse_digest(text: str) -> Digest | None:
    """Parse `daily 08:00` or `weekly mon 08:00`; return None for anything else."""
    parsed = _DIGEST.fullmatch(text)
    if parsed is None:
        return None
    return Digest(
        int(parsed[3]) * 60 + int(parsed[4]), DAYS.index(parsed[1]) if parsed[1] else None
    )


def is_quiet(quiet: Quiet, zone: ZoneInfo, now_us: int) -> bool:
    here = _localize(now_us, zone)
    if here.weekday() in quiet.days:
        return True
    minute = here.hour * 60 + here.minute
    if quiet.from_minute <= quiet.to_minute:
        return quiet.from_minute <= minute < quiet.to_minute
    return minute >= quiet.from_minute or minute < quiet.to_minute


def find_quiet_end(quiet: Quiet, zone: ZoneInfo, now_us: int) -> int:
    if not is_quiet(quiet, zone, now_us):
        return now_us
    here = _localize(now_us, zone).date()
    ends = (
        _find_moment(here + timedelta(days=day), minute, zone)
        for day in range(9)
        for minute in (0, quiet.to_minute)
    )
    return min(
        (end_us for end_us in ends if end_us > now_us and not is_quiet(quiet, zone, end_us)),
        default=now_us,
    )


def find_digest_before(digest: Digest, zone: ZoneInfo, now_us: int) -> int:
    return max(due_us for due_us in _list_digests(digest, zone, now_us) if due_us <= now_us)


def find_digest_after(digest: Digest, zone: ZoneInfo, now_us: int) -> int:
    return min(due_us for due_us in _list_digests(digest, zone, now_us) if due_us > now_us)


def _list_digests(digest: Digest, zone: ZoneInfo, now_us: int) -> list[int]:
    here = _localize(now_us, zone).date()
    near = (here + timedelta(days=day) for day in range(-8, 9))
    days = (day for day in near if digest.weekday is None or day.weekday() == digest.weekday)
    return [_find_moment(day, digest.minute, zone) for day in days]


def _find_moment(day: date, minute: int, zone: ZoneInfo) -> int:
    """Return the time at which the local clock shows `minute`: the first where it occurs twice, an
    hour later where it is skipped.
    """
    here = datetime.combine(day, time(minute // 60, minute % 60), zone)
    return round(here.timestamp()) * 1_000_000


def _localize(now_us: int, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(now_us // 1_000_000, timezone.utc).astimezone(zone)
