"""Insert rows whose columns are the keys of their values, so that each column is named once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from compileboard.collectors.contract.fingerprints import format_id


class Insert:
    def __init__(self, table: str, *, ignore: bool = False, tail: str = "") -> None:
        self._head = f"insert {'or ignore ' * ignore}into {table}"
        self._tail = tail
        self._statement: str | None = None  # asking each row for its columns costs 1.5 µs of 30
        # Sqlite3 takes 0.1 µs for each bound name.
        self._order: Callable[[Mapping[str, Any]], tuple[Any, ...]] = tuple

    def add(self, connection: sqlite3.Connection, values: Mapping[str, Any]) -> sqlite3.Cursor:
        if self._statement is None:
            self._order = itemgetter(*values)
            bound = ", ".join("?" * len(values))
            self._statement = f"{self._head} ({', '.join(values)}) values ({bound}) {self._tail}"
        return connection.execute(self._statement, self._order(values))


class IdClashError(ValueError):
    pass


class InsertOnce(Insert):
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
        known = connection.execute(self._find, values).fetchone()
        if known is None:
            self.add(connection, {**values, **describe()})
        elif not known[0]:
            content = {name: values[name] for name in self._identity}
            raise IdClashError(
                f"id {format_id(values['id'])} is of another thing than {content}: report it"
            )


class InsertForId(Insert):
    def __init__(self, table: str) -> None:
        super().__init__(table, tail="returning id")

    def add_for_id(self, connection: sqlite3.Connection, values: Mapping[str, Any]) -> int:
        (row_id,) = self.add(connection, values).fetchone()
        return int(row_id)


def pick(event: object, *names: str) -> dict[str, Any]:
    """Return an event's fields by name, as bound values."""
    return {name: getattr(event, name) for name in names}
