"""Engines that query all runs, in SQLite or ClickHouse.

Statements in a room's `queries.py` use the SQL that both share, `:name` for values, and macros
where the engines differ:

    $join           join that reads its left side first
    $is             equality in which null equals null
    $div            integer division
    $in(:names)     in a sequence: `r.id $in(:run_ids)`
    $each(:names)   the sequence as a table with the column `value`:
                    `from $each(:run_ids) as wanted`
    $totals $t      after `runs as r`: the totals of a run, `$t.compile_count`; null or 0 if none
    $words $a       likewise its annotations, `$a.title`
    $rows(table, of)  a roll-up table, read only for some runs: `of` is a common table expression
                    with their `id` and `pub`, or a sequence, `:run_ids`; still join them
    $stored(table)  a roll-up table of all runs, including deleted ones, which `$of` leaves out
    $of(b, n)       joins rows `b` of either to runs `n` that have `id` and `pub`
    $pub(r)         the number of a run that these need; null in SQLite

Nothing is replaced in string literals and comments. Where correctness or speed needs it, a
statement has one text per `engine.dialect`.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, Protocol

Dialect = Literal["sqlite", "clickhouse"]
# Macros and values, outside of string literals and comments.
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
    """Queries the tables of all runs. A value may be a list or a tuple, for `$in` and `$each`."""

    @property
    def name(self) -> str:
        """A name that distinguishes its data, used in cache keys."""

    @property
    def dialect(self) -> Dialect: ...

    def rows(self, sql: str, values: Mapping[str, Any] = {}) -> list[Row]: ...

    def stream(self, sql: str, values: Mapping[str, Any] = {}) -> Iterator[tuple[Any, ...]]:
        """Yield rows as plain tuples while they are read."""

    def close(self) -> None: ...


class SqliteEngine:
    dialect: Dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @property
    def name(self) -> str:
        return str(self._connection.execute("pragma database_list").fetchone()[2])

    def rows(self, sql: str, values: Mapping[str, Any] = {}) -> list[Row]:
        return self._connection.execute(_render_sql(sql), _bind_values(values)).fetchall()

    def stream(self, sql: str, values: Mapping[str, Any] = {}) -> Iterator[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        return cursor.execute(_render_sql(sql), _bind_values(values))

    def close(self) -> None:
        self._connection.close()


def get_row(engine: Engine, sql: str, values: Mapping[str, Any] = {}) -> Row | None:
    return next(iter(engine.rows(sql, values)), None)


@lru_cache(maxsize=512)  # statements are few: combinations of orders, metrics and filters
def _render_sql(sql: str) -> str:
    def write(token: re.Match[str]) -> str:
        return (
            _SQLITE[token["macro"]].format(token["of"], table=token["table"])
            if token["macro"]
            else token[0]
        )

    return TOKENS.sub(write, sql)


def _bind_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: json.dumps(value) if isinstance(value, list | tuple) else value
        for name, value in values.items()
    }
