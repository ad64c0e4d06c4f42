"""Keyset pages: a page starts after the last row of the one before, so page 900 costs what page 1 costs."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from compileboard.collectors.contract.fingerprints import parse_id

Row = TypeVar("Row")
Other = TypeVar("Other")
Key = str | int | float


class FilterError(ValueError):
    """Which filter has a value that cannot be used, and what is expected; shown with status 400."""


@dataclass(frozen=True)
class Page(Generic[Row]):
    """One page of rows and the cursor of the next one, None on the last."""

    rows: tuple[Row, ...]
    next: str | None

    def map(self, convert: Callable[[Row], Other]) -> Page[Other]:
        """Return the page with each row converted."""
        return Page(tuple(map(convert, self.rows)), self.next)


def encode_cursor(*key: Key) -> str:
    """Turn the sort key of a page's last row into text for a URL."""
    return base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None, *types: type) -> tuple[Key, ...] | None:
    """Read a cursor back; None where there is none. An int is good where a float is expected.

    Raises: FilterError if the text is not a cursor of those types.
    """
    if not cursor:
        return None
    try:
        key = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        key = None
    good = isinstance(key, list) and len(key) == len(types) and all(map(_fits, key, types))
    if not good:
        raise FilterError("cursor: this link is not one that this list made; start again at the first page")
    assert isinstance(key, list)
    return tuple(key)


def bind_page(run_id: str, cursor: str | None, limit: int, first: tuple[int, int] = (-1, 0)) -> dict[str, Any]:
    """Make the values of a run's page that is ordered by a number and an id; `first` stands before every row.

    Raises: FilterError if the cursor cannot be used.
    """
    after_us, after_id = decode_cursor(cursor, int, int) or first
    return {"run_id": run_id, "after_us": after_us, "after_id": after_id, "limit": limit + 1}


def _fits(value: object, expected: type) -> bool:
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
    """Cut the one row that was read beyond the limit, and point behind the last one kept."""
    page_rows = tuple(rows[:limit])
    return Page(page_rows, encode_cursor(*key(page_rows[-1])) if len(rows) > limit else None)


def check_limit(value: str | None, default: int, most: int = 1000) -> int:
    """Read a page size.

    Raises: FilterError if it is not a whole number between 1 and the most allowed.
    """
    return check_whole("limit", value, default, 1, most)


def check_whole(
    name: str, value: str | None, default: int, least: int = 0, most: int = 1 << 60, expected: str = ""
) -> int:
    """Read a whole number of an address; `name` is the parameter's.

    Raises: FilterError if it is none, or not within its limits; `expected` says what was.
    """
    if not value:
        return default
    most_digits = 18 if most > 10**10 else 9
    if not value.isascii() or not value.isdigit() or len(value) > most_digits or not least <= int(value) <= most:
        expectation = expected or f"a whole number from {least} to {most}"
        raise FilterError(f"{name}: {value[:40]!r} is not {expectation}")
    return int(value)


def read_id(text: str) -> int:
    """Read a row's number in an address; -1, which no row has, where it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1


def read_content_id(text: str) -> int:
    """Read an id of content in an address; -1, which nothing has, where it is none."""
    try:
        return parse_id(text)
    except ValueError:
        return -1


def check_content_id(name: str, text: str) -> int:
    """Read an id of content; `name` is the parameter's. Nothing has a number of before that has no id.

    Raises: FilterError if it is none.
    """
    if text.isascii() and text.isdigit() and len(text) < 16:
        return -1
    try:
        return parse_id(text)
    except ValueError as error:
        raise FilterError(f"{name}: {error}") from None


def check_order(sort: str, orders: Iterable[str]) -> tuple[str, str]:
    """Read a list's order: one of some names, and "asc", "desc" or "" for its direction.

    Raises: FilterError if there is no such order.
    """
    order, _dot, direction = sort.partition(".")
    names = tuple(orders)
    if order not in names or direction not in ("", "asc", "desc"):
        raise FilterError(f"sort: {sort[:40]!r} is not one of {', '.join(names)}, each also with .asc")
    return order, direction


def recorded_us(time_us: str, count: str) -> str:
    """Write a sum of durations that is null where `count` things were summed and none has a duration.

    Every duration is above 0. Both are SQL of our own, never text from outside.
    """
    return f"case when coalesce({time_us}, 0) > 0 or coalesce({count}, 0) = 0 then coalesce({time_us}, 0) end"
