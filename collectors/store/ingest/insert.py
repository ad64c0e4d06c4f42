"""Insert rows of the tables that contract/records.py declares."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from operator import itemgetter
from typing import Any, cast

from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.contract.records import TABLES
from compileboard.collectors.store.connection import read_value


class Insert:
    """Inserts rows of one table, all with the same columns. With `once`, a row that conflicts with
    a stored one is skipped.
    """

    def __init__(self, table: str, *, once: bool = False) -> None:
        self._head = f"insert into {table}"
        self._tail = "on conflict do nothing" if once else ""
        self._statement: str | None = None  # asking each row for its columns costs 1.5 µs of 30
        # Sqlite3 takes 0.1 µs for each bound name.
        self._order: Callable[[Mapping[str, Any]], tuple[Any, ...]] = tuple

    def add(self, connection: sqlite3.Connection, values: Mapping[str, Any]) -> sqlite3.Cursor:
        if self._statement is None:
            self._order = itemgetter(*values)
            bound = ", ".join("?" * len(values))
            self._statement = f"{self._head} ({', '.join(values)}) values ({bound}) {self._tail}"
        return connection.execute(self._statement, self._order(values))

    def add_for_id(self, connection: sqlite3.Connection, values: Mapping[str, Any]) -> int:
        return self.add(connection, values).lastrowid or 0


class IdClashError(ValueError):
    pass


class InsertOnce(Insert):
    """Inserts rows that several runs share, under the id of their content."""

    def __init__(self, table: str, *identity: str) -> None:
        super().__init__(table)
        same = " and ".join(f"{column} = :{column}" for column in identity)
        self._find = f"select {same} from {table} where id = :id"  # noqa: S608 - our own names
        self._identity = identity

    def add_once(
        self,
        connection: sqlite3.Connection,
        values: Mapping[str, Any],
        describe: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        is_same = read_value(connection, self._find, values)
        if is_same is None:
            self.add(connection, {**values, **describe()})
        elif not is_same:
            content = {name: values[name] for name in self._identity}
            raise IdClashError(
                f"id {format_id(values['id'])} is of another thing than {content}: report it"
            )


def select_table_fields(table: str, event: object) -> dict[str, Any]:
    """Return those fields of an event that are columns of a table."""
    return {name: getattr(event, name) for name in _list_shared(table, cast("Any", type(event)))}


@cache
def _list_shared(table: str, kind: Any) -> list[str]:
    return [field.name for field in fields(kind) if field.name in TABLES[table].columns]


def select_fields(event: object, *names: str) -> dict[str, Any]:
    """Return the named fields of an event, as bound values."""
    return {name: getattr(event, name) for name in names}
