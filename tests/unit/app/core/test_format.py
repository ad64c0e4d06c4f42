"""Formats: any number becomes text with its unit, and what was not recorded never becomes 0."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.core import format
from compileboard.app.core.filters import TEMPLATE_FILTERS

FORMATS = [
    getattr(format, f"format_{name}")
    for name in ("duration", "bytes", "count", "number", "ratio", "percent", "time")
]

NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e18, max_value=1e18),
)
TIMES = st.integers(0, 253_402_300_799_000_000)


@pytest.mark.parametrize("write", FORMATS, ids=lambda formatter: formatter.__name__)
def test_none_is_not_recorded_and_never_zero(write: Callable[..., str]) -> None:
    assert write(None) == "not recorded"


@pytest.mark.parametrize("write", FORMATS, ids=lambda formatter: formatter.__name__)
@given(number=NUMBERS)
def test_any_number_becomes_text(write: Callable[..., str], number: float) -> None:
    text = write(number)
    assert text
    assert text != "not recorded"
    assert any(letter.isdigit() for letter in text)


@given(microseconds=TIMES)
def test_times_read_back(microseconds: int) -> None:
    text = format.format_time(microseconds)
    assert len(text) == 19
    assert format.format_iso_time(microseconds)[:19].replace("T", " ")[:16] == text[:16]


@given(microseconds=st.integers(-(2**63), 2**63 - 1))
def test_a_time_that_no_calendar_has_is_still_text(microseconds: int) -> None:
    assert format.format_time(microseconds)
    assert format.format_iso_time(microseconds)[-1:] in ("Z", "")


@given(microseconds=st.integers(1, 10**15))
def test_a_duration_is_close_to_what_it_says(microseconds: int) -> None:
    text = format.format_duration(microseconds)
    value, unit = text.split(" ", 1)[0], text.rpartition(" ")[2]
    size = {"µs": 1, "ms": 1e3, "d": 86_400e6}.get(unit)
    if unit == "s" and "min" not in text:
        size = 1e6
    if size:
        assert abs(float(value) * size - microseconds) <= 0.06 * microseconds + 0.5


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0 µs"),
        (850, "850 µs"),
        (999.6, "1.00 ms"),
        (12_345, "12.3 ms"),
        (4_560_000, "4.56 s"),
        (59_960_000, "1 min 00 s"),
        (192_000_000, "3 min 12 s"),
        (7_500_000_000, "2 h 05 min"),
        (-5, "−5 µs"),
    ],
)
def test_durations(microseconds: float, text: str) -> None:
    assert format.format_duration(microseconds) == text


def test_counts_bytes_and_shares() -> None:
    assert format.format_count(12345) == "12,345"
    assert [format.format_bytes(n) for n in (0, 512, 1536, 85_041_610_752)] == [
        "0 B",
        "512 B",
        "1.50 KiB",
        "79.2 GiB",
    ]
    assert (format.format_percent(0.125), format.format_ratio(1.368)) == ("12.5%", "1.37×")
    assert (format.format_plural(1, "run"), format.format_plural(0, "entry", "entries")) == (
        "1 run",
        "0 entries",
    )


def test_in_a_page_missing_is_marked_and_zero_is_a_value() -> None:
    recorded = TEMPLATE_FILTERS["recorded"]
    assert [str(recorded(value)) for value in (0, False)] == ["0", "False"]
    assert "not recorded" in str(recorded(None))
    assert "not recorded" in str(recorded(""))
