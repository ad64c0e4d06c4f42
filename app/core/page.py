"""Keyset pages. Each starts after the last row of the previous one, so page 900 costs no more than
page 1.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from compileboard.collectors.contract.fingerprints import parse_id

Row = TypeVar("Row")
Other = TypeVar("Other")
Key = str | int | float
# Sorts before every event of a run, in order of time.
FIRST: Mapping[str, Key] = {"us": -1, "id": 0}


class FilterError(ValueError):
    """A filter has an invalid value. Shown with status 400."""


@dataclass(frozen=True)
class Page(Generic[Row]):
    """One page of rows and the cursor of the next one, None on the last."""

    rows: tuple[Row, ...]
    next: str | None

    def map(self, convert: Callable[[Row], Other]) -> Page[Other]:
        return Page(tuple(map(convert, self.rows)), self.next)


def encode_cursor(*key: Key) -> str:
    return (
        base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode())
        .decode()
        .rstrip("=")
    )


def decode_cursor(cursor: str | None, *types: type) -> tuple[Key, ...] | None:
    """Decode a cursor; None if there is none. An int is accepted where a float is expected.

    Raises FilterError if the text is not a cursor of those types.
    """
    if not cursor:
        return None
    try:
        key = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        key = None
    good = isinstance(key, list) and len(key) == len(types) and all(map(_has_type, key, types))
    if not good:
        raise FilterError("cursor: not a cursor of this list; start again at the first page")
    assert isinstance(key, list)
    return tuple(key)


def bind_page(
    run_id: str, cursor: str | None, limit: int, first: Mapping[str, Key] = FIRST
) -> dict[str, Any]:
    """Return the values that a page's statement binds; the first page begins after `first`.

    Raises FilterError for an unusable cursor.
    """
    after = decode_cursor(cursor, *map(type, first.values())) or first.values()
    bound = {f"after_{name}": key for name, key in zip(first, after)}
    return {"run_id": run_id, "limit": limit + 1, **bound}


def _has_type(value: object, expected: type) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return expected in (int, float) and -(2**63) <= value < 2**63
    return isinstance(value, expected) and (not isinstance(value, str) or _is_storable(value))


def _is_storable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def make_page(rows: Sequence[Row], limit: int, key: Callable[[Row], tuple[Key, ...]]) -> Page[Row]:
    page_rows = tuple(rows[:limit])
    return Page(page_rows, encode_cursor(*key(page_rows[-1])) if len(rows) > limit else None)


def check_limit(value: str | None, default: int, maximum: int = 1000) -> int:
    """Return the number of rows of a page. Raises FilterError unless it is a whole number from 1 to
    `maximum`.
    """
    return check_whole("limit", value, default, 1, maximum)


def check_whole(
    name: str,
    value: str | None,
    default: int,
    least: int = 0,
    maximum: int = 1 << 60,
    expected: str = "",
) -> int:
    """Return a value as a number. Raises FilterError unless it is a whole number in range."""
    if not value:
        return default
    max_digits = 18 if maximum > 10**10 else 9
    if (
        not value.isascii()
        or not value.isdigit()
        or len(value) > max_digits
        or not least <= int(value) <= maximum
    ):
        expectation = expected or f"a whole number from {least} to {maximum}"
        raise FilterError(f"{name}: {value[:40]!r} is not {expectation}")
    return int(value)


def read_id(text: str) -> int:
    """Parse an id from a URL; an invalid one becomes -1, which no row has."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1


def read_content_id(text: str) -> int:
    """Parse a content id from a URL; an invalid one becomes -1, which no row has."""
    try:
        return parse_id(text)
    except ValueError:
        return -1


def check_content_id(name: str, text: str) -> int:
    """Return a content id as a number. Raises FilterError for an invalid one."""
    if text.isascii() and text.isdigit() and len(text) < 16:
        return -1
    try:
        return parse_id(text)
    except ValueError as error:
        raise FilterError(f"{name}: {error}") from None


def check_order(sort: str, orders: Iterable[str]) -> tuple[str, str]:
    """Return one of `orders`, and "asc", "desc" or "". Raises FilterError for an unknown order."""
    order, _dot, direction = sort.partition(".")
    names = tuple(orders)
    if order not in names or direction not in ("", "asc", "desc"):
        raise FilterError(
            f"sort: {sort[:40]!r} is not one of {', '.join(names)}, each also with .asc"
        )
    return order, direction


def recorded_us_sql(time_us: str, count: str) -> str:
    return (
        f"case when coalesce({time_us}, 0) > 0 or coalesce({count}, 0) = 0 then "
        f"coalesce({time_us}, 0) end"
    )
