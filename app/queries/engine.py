"""The seam for a second engine: how statements across runs reach the tables that they read.

A statement in `queries/fleet` is in the SQL that SQLite and ClickHouse share, its values are `:name`, and what the two
write differently is a macro that the engine replaces:

    $join           join that reads its left side first
    $is             equality in which null is null
    $div            division of integers
    $in(:names)     in a sequence: `r.id $in(:run_ids)`
    $each(:names)   the sequence as a table with the column `value`: `from $each(:run_ids) as wanted`

Two statements a second engine has to write in its own words: `models.LATEST_SQL`, whose join has a select of its own,
and `trends.RUNS_SQL`, which reads a driver's version out of JSON. `comparison`, `reason_events` and `sides` beside this
module read a run's own records, through a connection.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Protocol

_MACRO = re.compile(r"\$(\w+)(?:\(:(\w+)\))?")
_SQLITE = {
    "join": "cross join",
    "is": "is",
    "div": "/",
    "in": "in (select value from json_each(:{}))",
    "each": "json_each(:{})",
}


class Row(Protocol):
    """One row of an answer: its values in order, by place and by name."""

    def keys(self) -> list[str]: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...


class Engine(Protocol):
    """What holds the tables across runs. A value may be a list or a tuple, for `$in` and `$each`."""

    @property
    def name(self) -> str:
        """Return what tells its data from other data: caches have it in their keys."""

    def rows(self, sql: str, values: Mapping[str, Any] = {}) -> list[Row]:
        """Return the rows that a statement finds."""

    def stream(self, sql: str, values: Mapping[str, Any] = {}) -> Iterator[tuple[Any, ...]]:
        """Yield many rows as they are found, as plain tuples."""

    def close(self) -> None:
        """Release its resources."""


class SqliteEngine:
    """The tables across runs in the SQLite file that a connection has open."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @property
    def name(self) -> str:
        """Return the file's path."""
        return str(self._connection.execute("pragma database_list").fetchone()[2])

    def rows(self, sql: str, values: Mapping[str, Any] = {}) -> list[Row]:
        """Return the rows that a statement finds."""
        return self._connection.execute(_render(sql), _bind(values)).fetchall()

    def stream(self, sql: str, values: Mapping[str, Any] = {}) -> Iterator[tuple[Any, ...]]:
        """Yield many rows as they are found, as plain tuples."""
        cursor = self._connection.cursor()
        cursor.row_factory = None
        return cursor.execute(_render(sql), _bind(values))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def get_row(engine: Engine, sql: str, values: Mapping[str, Any] = {}) -> Row | None:
    """Return the first row that a statement finds, None where it finds nothing."""
    return next(iter(engine.rows(sql, values)), None)


@lru_cache(maxsize=512)  # a text is one of ours: its orders, metrics and filters are few
def _render(sql: str) -> str:
    return _MACRO.sub(lambda macro: _SQLITE[macro[1]].format(macro[2]), sql)


def _bind(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: json.dumps(value) if isinstance(value, list | tuple) else value for name, value in values.items()}
