"""Insert rows whose columns are the keys of their values, so that a writer names each column once."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any


class Insert:
    """An insert into one of our tables, from one place of the code: its first row has the columns of all.

    `tail` is the statement's end: on conflict …
    """

    def __init__(self, table: str, *, ignore: bool = False, tail: str = "") -> None:
        self._head = f"insert {'or ignore ' * ignore}into {table}"
        self._tail = tail
        self._statement: str | None = None  # asking each row for its columns costs 1.5 µs of 30

    def add(self, connection: sqlite3.Connection, values: Mapping[str, Any]) -> sqlite3.Cursor:
        """Insert a row."""
        if self._statement is None:
            bound = ", ".join(f":{column}" for column in values)
            self._statement = f"{self._head} ({', '.join(values)}) values ({bound}) {self._tail}"
        return connection.execute(self._statement, values)


class InsertForId(Insert):
    """An insert whose row has an id."""

    def __init__(self, table: str, *, tail: str = "") -> None:
        super().__init__(table, tail=f"{tail} returning id")

    def add_for_id(self, connection: sqlite3.Connection, values: Mapping[str, Any]) -> int:
        """Insert a row and return its id."""
        (row_id,) = self.add(connection, values).fetchone()
        return int(row_id)
