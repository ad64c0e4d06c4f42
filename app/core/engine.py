"""Engines across runs: how statements reach their tables in SQLite or ClickHouse.

A statement in a room's `queries.py` is in the SQL that both share, its values are `:name`, and
differences are macros:

    $join           join that reads its left side first
    $is             equality in which null is null
    $div            division of integers
    $in(:names)     in a sequence: `r.id $in(:run_ids)`
    $each(:names)   the sequence as a table with the column `value`:
                    `from $each(:run_ids) as wanted`
    $totals $t      behind `runs as r`: the totals of a run, `$t.compile_count`; null or 0 if none
    $words $a       likewise a person's words about it, `$a.title`
    $rows(table, of)  a table of roll-ups, read for some runs alone: `of` is a common table
                    expression with their `id` and `pub`, or a sequence, `:run_ids`; the statement
                    still joins them
    $stored(table)  a table of roll-ups of all runs, also of those that count no longer: `$of`
                    leaves them out
    $of(b, n)       joins rows `b` of either to runs `n` that have `id` and `pub`
    $pub(r)         the number of a run that these need: null in SQLite, which has no index of it

In texts and comments nothing is replaced. Where correctness or speed needs it, a statement has a
text for each `engine.dialect`.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, Protocol

Dialect = Literal["sqlite", "clickhouse"]
# What an engine writes in its own way: macros and values, outside of texts and comments.
TOKENS = re.compile(
    r"""(?P<literal>'(?:[^']|'')*')|(?P<comment>--[^\n]*)"""
    r"""|\$(?P<macro>\w+)(?:\((?:(?P<table>\w+), )?(?P<bound>:)?(?P<of>\w+)\))?"""
    r"""|(?<![:\w]):(?P<name>[a-z_]\w*)"""
)
_SQLITE = {
    "join": "cross join",
    "is": "is",
    "div": "/",
    "t": "t",
    "a": "a",
    "totals": "left join run_totals as t on t.run_id = r.id",
    "words": "left join run_annotations as a on a.run_id = r.id",
    "in": "in (select value from json_each(:{}))",
    "each": "json_each(:{})",
    "rows": "{table}",
    "stored": "{0}",
    "of": "{table}.run_id = {0}.id",
    "pub": "null",
}


class Row(Protocol):
    """A row of a result; values by index and by name."""

    def keys(self) -> list[str]: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...


class Engine(Protocol):
    """An engine with the tables across runs. A value may be a list or a tuple, for `$in` and
    `$each`.
    """

    @property
    def name(self) -> str:
        """A name that distinguishes its data; caches have it in their keys."""

    @property
    def dialect(self) -> Dialect:
        """The SQL dialect, for statements with a text for each."""

    def rows(self, sql: str, values: Mapping[str, Any] = {}) -> list[Row]:
        """Return the rows that a statement finds."""

    def stream(self, sql: str, values: Mapping[str, Any] = {}) -> Iterator[tuple[Any, ...]]:
        """Yield many rows as they are found, as plain tuples."""

    def close(self) -> None:
        """Release its resources."""


class SqliteEngine:
    dialect: Dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @property
    def name(self) -> str:
        return str(self._connection.execute("pragma database_list").fetchone()[2])

    def rows(self, sql: str, values: Mapping[str, Any] = {}) -> list[Row]:
        return self._connection.execute(_render(sql), _bind(values)).fetchall()

    def stream(self, sql: str, values: Mapping[str, Any] = {}) -> Iterator[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        return cursor.execute(_render(sql), _bind(values))

    def close(self) -> None:
        self._connection.close()


def get_row(engine: Engine, sql: str, values: Mapping[str, Any] = {}) -> Row | None:
    return next(iter(engine.rows(sql, values)), None)


@lru_cache(maxsize=512)  # a text is one of ours: its orders, metrics and filters are few
def _render(sql: str) -> str:
    def write(token: re.Match[str]) -> str:
        return (
            _SQLITE[token["macro"]].format(token["of"], table=token["table"])
            if token["macro"]
            else token[0]
        )

    return TOKENS.sub(write, sql)


def _bind(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: json.dumps(value) if isinstance(value, list | tuple) else value
        for name, value in values.items()
    }
