"""Quiet hours and digests follow local time, over midnight and when the clocks change."""

from __future__ import annotations

from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.alerts.rules import (
    DigestSchedule,
    QuietHours,
    find_digest_after,
    find_digest_before,
    find_quiet_end,
    is_quiet,
    parse_digest,
    parse_quiet,
)

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = QuietHours(22 * 60, 7 * 60)
WEEKEND = QuietHours(22 * 60, 7 * 60, frozenset({5, 6}))
TIMES_US = st.integers(1_500_000_000_000_000, 2_000_000_000_000_000)
ZONES = st.sampled_from(
    [ZoneInfo(zone) for zone in ("UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe")]
)


def at(text: str, zone: ZoneInfo | timezone = BERLIN) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2026-11-18T21:59:59", False),
        ("2026-11-18T22:00:00", True),
        ("2026-11-19T03:00:00", True),
        ("2026-11-19T06:59:59", True),
        ("2026-11-19T07:00:00", False),
    ],
)
def test_quiet_hours_go_over_midnight(moment: str, expected: bool) -> None:
    assert is_quiet(NIGHT, BERLIN, at(moment)) is expected


def test_quiet_hours_end_at_the_same_hour_of_the_place_when_the_clocks_change() -> None:
    for evening, morning in (
        ("2026-03-28T23:00", "2026-03-29T07:00"),
        ("2026-10-24T23:00", "2026-10-25T07:00"),
    ):
        assert find_quiet_end(NIGHT, BERLIN, at(evening)) == at(morning)
    lengths = [
        (at(f"2026-{end}T07:00") - at(f"2026-{start}T22:00")) / 3.6e9 for start, end in DST_NIGHTS
    ]
    assert lengths == [8, 10]


DST_NIGHTS = (("03-28", "03-29"), ("10-24", "10-25"))


def test_a_quiet_weekend_ends_on_monday_morning() -> None:
    friday = at("2026-11-20T23:00")
    assert find_quiet_end(WEEKEND, BERLIN, friday) == at("2026-11-23T07:00")
    assert is_quiet(WEEKEND, BERLIN, at("2026-11-21T12:00"))
    assert find_quiet_end(QuietHours(days=frozenset({5, 6})), BERLIN, at("2026-11-21T12:00")) == at(
        "2026-11-23T00:00"
    )


def test_a_digest_comes_at_the_hour_of_the_place() -> None:
    daily, weekly = DigestSchedule(8 * 60), DigestSchedule(8 * 60, 0)
    assert find_digest_before(daily, BERLIN, at("2026-11-18T07:59")) == at("2026-11-17T08:00")
    assert find_digest_before(daily, BERLIN, at("2026-11-18T08:00")) == at("2026-11-18T08:00")
    assert find_digest_after(daily, BERLIN, at("2026-10-24T09:00")) == at("2026-10-25T08:00")
    assert find_digest_before(weekly, BERLIN, at("2026-11-18T12:00")) == at("2026-11-16T08:00")
    assert find_digest_after(weekly, BERLIN, at("2026-11-16T08:00")) == at("2026-11-23T08:00")


@given(
    TIMES_US,
    ZONES,
    st.integers(0, 1439),
    st.integers(0, 1439),
    st.sets(st.integers(0, 6), max_size=6),
)
def test_the_end_of_a_quiet_period_is_not_quiet(
    now_us: int, zone: ZoneInfo, start: int, end: int, days: set[int]
) -> None:
    quiet = QuietHours(start, end, frozenset(days))
    after = find_quiet_end(quiet, zone, now_us)
    assert after >= now_us
    assert not is_quiet(quiet, zone, after)


@given(TIMES_US, ZONES, st.integers(0, 1439), st.none() | st.integers(0, 6))
def test_digests_are_a_day_or_a_week_apart(
    now_us: int, zone: ZoneInfo, minute: int, weekday: int | None
) -> None:
    digest = DigestSchedule(minute, weekday)
    before, after = (
        find_digest_before(digest, zone, now_us),
        find_digest_after(digest, zone, now_us),
    )
    assert before <= now_us < after
    assert abs((after - before) / 3.6e9 - (24 if weekday is None else 168)) <= 2
    assert find_digest_before(digest, zone, after) == after


@given(st.text())
def test_other_words_are_no_hours(text: str) -> None:
    assert parse_quiet(text) is None or text == ""
    assert parse_digest(text) is None
