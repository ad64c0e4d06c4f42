"""Find the rows of one run, and copy them into another database.

The rows of a run are found through foreign keys, so new tables need no change here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from compileboard.collectors.contract.records import TABLES
from compileboard.collectors.store.connection import read_value
from compileboard.collectors.store.runs import get_last_result_id

ROWS_AT_ONCE = 500
REBUILT = ("search_documents", "search_runs")  # Tables of the search index, which is built again.
DETAIL, ROLLUPS = (
    tuple(name for name, table in TABLES.items() if table.part == part)
    for part in ("detail", "rollup")
)
MOVED = (*DETAIL, *ROLLUPS)  # into a run's file, when it is sealed
# What a page of a sealed run reads in its file: these, and what they point to. All else is as the
# database has it.
IN_FILE = (
    *(*MOVED, *REBUILT, "repros", "repro_results", "repro_storages"),
    *("payloads", "functions", "distinct_breaks", "recompile_causes", "rerecording_reasons"),
    *("failure_issues", "series", "span_names"),
)


@dataclass(frozen=True)
class RunTable:
    name: str
    columns: tuple[str, ...]
    parents: dict[str, tuple[str, str, bool]]  # column: table, its column, cascades
    has_id: bool  # an integer, which another database may have given to another row
    has_rowid: bool
    unique: tuple[str, ...]
    required: frozenset[str]  # columns that are never null


def read_tables(connection: sqlite3.Connection) -> dict[str, RunTable]:
    rows = connection.execute(
        """
        select s.name, l.wr
        from sqlite_schema as s
        join pragma_table_list as l on l.name = s.name and l.schema = 'main'
        where l.type = 'table'
        """
    ).fetchall()
    return {
        name: _read_table(connection, name, not is_without_rowid)
        for name, is_without_rowid in rows
        if not name.startswith(("search_words", "sqlite_"))
    }


def _read_table(connection: sqlite3.Connection, name: str, has_rowid: bool) -> RunTable:
    columns = connection.execute(
        'select name, type, pk, "notnull" from pragma_table_info(?)', (name,)
    ).fetchall()
    keys = connection.execute(
        'select "from", "table", "to", on_delete from pragma_foreign_key_list(?) order by id, seq',
        (name,),
    ).fetchall()
    has_id = [(column["name"], column["type"].lower()) for column in columns if column["pk"]] == [
        ("id", "integer")
    ]
    # A row that its id alone tells apart has one of its content.
    unique: tuple[str, ...] = ("id",) if has_id else ()
    for index in connection.execute(
        "select name from pragma_index_list(?) where [unique] order by seq desc", (name,)
    ):
        unique = tuple(
            row[0]
            for row in connection.execute("select name from pragma_index_info(?)", (index["name"],))
        )
    return RunTable(
        name,
        tuple(column["name"] for column in columns),
        {key["from"]: (key["table"], key["to"], key["on_delete"] == "CASCADE") for key in keys},
        has_id,
        has_rowid,
        unique,
        frozenset(column["name"] for column in columns if column["notnull"] or column["pk"]),
    )


def list_own_rows(tables: dict[str, RunTable]) -> dict[str, str]:
    """Return each table with rows per run, and the SQL condition that selects those of :run_id."""
    return {name: where for name in tables if (where := _where(tables, name)) is not None}


def _where(tables: dict[str, RunTable], name: str) -> str | None:
    if name == "runs":
        return "id = :run_id"
    if name in REBUILT:
        return None
    owners = [
        (column, table, key)
        for column, (table, key, cascades) in tables[name].parents.items()
        if cascades
    ]
    for column, table, _key in owners:
        if table == "runs":
            return f"{column} = :run_id"
    # A span of no compile is its lane's: whose it is, a column says that is never null.
    for column, table, key in sorted(
        owners, key=lambda owner: owner[0] not in tables[name].required
    ):
        inner = None if table == name else _where(tables, table)
        if inner is not None:
            return f"{column} in (select {key} from {table} where {inner})"  # noqa: S608 - names of our own schema
    return None


def list_needed_rows(tables: dict[str, RunTable]) -> dict[str, str]:
    """Return the conditions for a run's own rows and for the shared rows to which they refer,
    except texts.
    """
    needed = list_own_rows(tables)
    for name in reversed(order_tables(tables, tables.keys() - needed.keys() - {"payloads"})):
        pointing = [
            f"{key} in (select {column} from {child.name} where {needed[child.name]})"  # noqa: S608 - names of our own schema
            for child in tables.values()
            for column, (parent, key, _cascades) in child.parents.items()
            if parent == name and child.name in needed
        ]
        if pointing:
            needed[name] = " or ".join(pointing)
    return needed


def order_tables(tables: Mapping[str, RunTable], names: Iterable[str]) -> list[str]:
    """Order tables so that each comes after the tables to which it refers."""
    pending, ordered = sorted(names), list[str]()
    while pending:
        ready = [
            name
            for name in pending
            if not any(
                parent in pending and parent != name
                for parent, _key, _cascades in tables[name].parents.values()
            )
        ]
        ordered += ready or pending
        pending = [name for name in pending if name not in ordered]
    return ordered


def delete_rows(connection: sqlite3.Connection, run_id: str, names: Iterable[str]) -> None:
    """Delete a run's rows in the named tables, in the caller's transaction."""
    connection.execute("pragma defer_foreign_keys = on")
    tables = read_tables(connection)
    own = list_own_rows(tables)
    for name in reversed(order_tables(tables, names)):
        if name == "stack_nodes":
            delete_stacks(connection, run_id)
        else:
            connection.execute(f"delete from {name} where {own[name]}", {"run_id": run_id})  # noqa: S608 - our own names


def delete_stacks(connection: sqlite3.Connection, run_id: str) -> None:
    """Delete stacks from the innermost frame on, because a cascade from the outermost is quadratic
    in depth.
    """
    nodes = connection.execute(
        "select id from stack_nodes where run_id = :id order by depth desc", {"id": run_id}
    )
    connection.executemany("delete from stack_nodes where id = :id", [dict(node) for node in nodes])


class RowCopy:
    """Copies a run, or its rows in the tables `only`, into another database of this version.

    Shared texts and rows are found by content or added. If an id of the run's own rows is taken,
    all ids of that table are shifted. Links to runs that are not `present` are dropped. With
    `adds`, existing rows of the target are kept.
    """

    def __init__(
        self,
        source: sqlite3.Connection,
        target: sqlite3.Connection,
        run_id: str,
        only: Collection[str] | None = None,
        *,
        present: Collection[str] | None = None,
        keeps_results: bool = False,
        adds: bool = False,
    ) -> None:
        self._source, self._target = source, target
        self._key = {"run_id": run_id}
        self._present = present
        self._keeps_results = keeps_results  # what its sealed results were called, nobody else is
        self._otherwise = "or ignore" if adds else ""
        self.tables = read_tables(target)
        own = list_own_rows(self.tables)
        self._own = {name: own[name] for name in own if only is None or name in only}
        held = source.execute("select name from sqlite_schema where type = 'table'")
        self._shared: dict[str, dict[Any, Any]] = {  # ids there by those of the source
            name: {} for (name,) in held.fetchall() if name not in own
        }
        self.shifts: dict[str, int] = {}  # what is added to the ids of a table
        self.byte_count = 0  # The size of converted texts.

    def run(self) -> int:
        """Copy all rows, in the caller's transaction; return the shift of compile ids."""
        self._target.execute("pragma defer_foreign_keys = on")
        self.shifts = {
            name: self.find_shift(name) for name in self._own if self.tables[name].has_id
        }
        for name in self._own:
            rows = self.read(name)
            while some := [self.convert(name, row) for row in islice(rows, ROWS_AT_ONCE)]:
                self.insert(name, some, self._otherwise)
        return self.shifts.get("compiles", 0)

    def find_shift(self, name: str) -> int:
        ((low, high),) = self._select(
            f"select min(id), max(id) from {name} where {self._own[name]}"  # noqa: S608 - our own names
        )
        if low is None:
            return 0
        given = 0
        if name == "results" and not self._keeps_results:
            given = get_last_result_id(self._target)
        taken = self._target.execute(
            f"select id from {name} where id between ? and ?",  # noqa: S608 - our own names
            (low, high),
        )
        if low > given and not any(any(self.read(name, "id", row_id)) for (row_id,) in taken):
            return 0
        most_id = read_value(self._target, f"select max(id) from {name}")  # noqa: S608 - our own names
        return max(most_id or 0, given) + 1 - int(low)

    def read(
        self, name: str, column: str | None = None, value: Any = None, *, descending: bool = False
    ) -> Iterator[Any]:
        """Yield the source's rows of table `name` in rowid order (backwards if `descending`), or
        only those whose `column` equals `value`.
        """
        one = f" and {column} = :value" if column else ""
        order = " order by rowid" if self.tables[name].has_rowid else ""
        order += " desc" if order and descending else ""
        where = self._own.get(name, "true")
        return self._select(f"select * from {name} where {where}{one}{order}", value)  # noqa: S608 - our own names

    def _select(self, statement: str, value: Any = None) -> Iterator[Any]:
        cursor = self._source.cursor()
        cursor.row_factory = sqlite3.Row
        return cursor.execute(statement, {**self._key, "value": value})

    def convert(self, name: str, row: Any) -> dict[str, Any]:
        values = dict(row)
        for column, (parent, key, cascades) in self.tables[name].parents.items():
            value = values.get(column)
            if value is None:
                continue
            if parent in self.shifts:
                values[column] = value + self.shifts[parent]
            elif parent in self._shared:
                values[column] = self._find_or_add_shared(parent, key, value)
            elif parent == "runs" and not cascades and self._present is not None:
                values[column] = value if value in self._present else None
        if name in self.shifts:
            values["id"] += self.shifts[name]
        self.byte_count += sum(len(value) for value in values.values() if isinstance(value, bytes))
        return values

    def _find_or_add_shared(self, name: str, key: str, value: Any) -> Any:
        known = self._shared[name]
        if value not in known:
            known[value] = value
            for row in self.read(name, key, value):
                known[value] = self._add_shared(self.tables[name], row)[key]
        return known[value]

    def _add_shared(self, table: RunTable, row: Any) -> Any:
        values = self.convert(table.name, row)
        self.insert(table.name, [values], "or ignore")
        if not table.has_id:
            return values
        same = " and ".join(f"{column} is :{column}" for column in table.unique)
        find = f"select id from {table.name} where {same}"  # noqa: S608 - our own names
        found = self._target.execute(find, values).fetchone()
        if found is None:  # its id is another's
            del values["id"]
            self.insert(table.name, [values])
            found = self._target.execute(find, values).fetchone()
        return found

    def insert(self, name: str, rows: Sequence[Mapping[str, Any]], otherwise: str = "") -> None:
        if rows:
            columns = ", ".join(rows[0])
            marks = ", ".join(f":{column}" for column in rows[0])
            self._target.executemany(
                f"insert {otherwise} into {name} ({columns}) values ({marks})",  # noqa: S608 - our own names
                rows,
            )
