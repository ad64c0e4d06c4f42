"""Keyset pages: where one ends, what a cursor may hold, how many rows may be asked for."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.core.page import (
    FilterError,
    check_content_id,
    check_limit,
    decode_cursor,
    encode_cursor,
    make_page,
    read_id,
)
from compileboard.collectors.contract.fingerprints import parse_id


def key(row: int) -> tuple[int, str]:
    return row, f"r{row}"


@pytest.mark.parametrize(("row_count", "limit"), [(0, 3), (2, 3), (3, 3), (1, 1)])
def test_page_with_no_row_beyond_its_limit_is_the_last(row_count: int, limit: int) -> None:
    page = make_page(range(row_count), limit, key)
    assert (page.rows, page.next) == (tuple(range(row_count)), None)


def test_page_with_a_row_more_ends_at_its_limit_and_points_behind_its_last_row() -> None:
    page = make_page(range(4), 3, key)
    assert page.rows == (0, 1, 2)
    assert decode_cursor(page.next, int, str) == (2, "r2")


@given(
    st.lists(
        st.integers(-(2**63), 2**63 - 1)
        | st.text()
        | st.floats(allow_nan=False, allow_infinity=False)
    )
)
def test_cursor_gives_back_the_key_it_was_made_of(key: list[Any]) -> None:
    text = encode_cursor(*key)
    assert text.isascii() and "=" not in text and " " not in text
    assert decode_cursor(text, *map(type, key)) == tuple(key)


@pytest.mark.parametrize("cursor", [None, ""])
def test_no_cursor_is_the_first_page(cursor: str | None) -> None:
    assert decode_cursor(cursor, int) is None


def test_an_int_is_good_where_a_float_is_expected_and_not_the_other_way() -> None:
    assert decode_cursor(encode_cursor(3), float) == (3,)
    assert decode_cursor(encode_cursor(2**63 - 1), int) == (2**63 - 1,)
    assert decode_cursor(encode_cursor(-(2**63)), int) == (-(2**63),)
    with pytest.raises(FilterError):
        decode_cursor(encode_cursor(3.0), int)


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("[1]", (str,)),
        ("[1,2]", (int,)),
        ("[1]", (int, int)),
        ("[true]", (int,)),
        ("[null]", (str,)),
        (f"[{2**63}]", (int,)),
        (f"[{-(2**63) - 1}]", (float,)),
        (r'["\ud800"]', (str,)),
        ('{"0":1}', (int,)),
        ("1", (int,)),
        ("[" * 100_000, (int,)),
        ("half a", (int,)),
    ],
)
def test_what_no_list_made_is_refused_in_words(text: str, types: tuple[type, ...]) -> None:
    cursor = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    with pytest.raises(FilterError) as refused:
        decode_cursor(cursor, *types)
    assert str(refused.value) == "cursor: not a cursor of this list; start again at the first page"


@given(st.text())
def test_any_text_is_a_cursor_or_refused(text: str) -> None:
    try:
        key = decode_cursor(text, int, str)
    except FilterError:
        return
    assert key is None or json.loads(json.dumps(key)) == list(key)


@pytest.mark.parametrize(
    ("value", "limit"), [(None, 50), ("", 50), ("1", 1), ("1000", 1000), ("007", 7)]
)
def test_limit_is_what_was_asked_for_or_the_default(value: str | None, limit: int) -> None:
    assert check_limit(value, 50) == limit


@pytest.mark.parametrize(
    "value", ["0", "1001", "-1", "1.0", " 1", "²", "٣", "x" * 90, "0000000001"]
)
def test_limit_outside_its_range_is_refused_in_words(value: str) -> None:
    with pytest.raises(FilterError) as refused:
        check_limit(value, 50)
    assert str(refused.value) == f"limit: {value[:40]!r} is not a whole number from 1 to 1000"


def test_limit_of_nine_digits_is_read_and_ten_are_not() -> None:
    assert check_limit("123456789", 50, maximum=10**10) == 123456789
    with pytest.raises(FilterError, match="from 1 to 10000000000"):
        check_limit("1234567890", 50, maximum=10**10)


def test_a_number_of_fifteen_digits_is_no_id_and_of_sixteen_is_read_as_one() -> None:
    assert check_content_id("cause", "9" * 15) == -1
    assert check_content_id("cause", "1" * 16) == parse_id("1" * 16) != -1


@pytest.mark.parametrize(
    ("text", "row"), [("9" * 18, 10**18 - 1), ("1" * 19, -1), ("", -1), ("²", -1), ("-1", -1)]
)
def test_a_row_has_an_id_of_up_to_eighteen_digits(text: str, row: int) -> None:
    assert read_id(text) == row
