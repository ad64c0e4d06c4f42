"""Restore the rows of a large sealed run in short transactions, so that others can write.

1. The run is marked as being restored (`emptied_us` is 0). Readers use its file.
2. Detail left by a killed pass is deleted; then the detail is inserted in parts.
3. One transaction inserts the roll-ups and removes the mark: readers use the rows.

If killed before 3, the next sealing or reopening deletes the detail. One process per database does
this. Each table's greatest id is inserted first, so that others get greater ones. If an id is taken
nevertheless, or the file is replaced, it starts again.
"""

from __future__ import annotations

import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from compileboard.collectors.store.connection import (
    StoreBusy,
    StoreError,
    checkpoint,
    open_reader,
    open_writer,
    write_transaction,
)
from compileboard.collectors.store.leases import REOPEN, take_lease
from compileboard.collectors.store.pruning import DeletionSteps, delete_detail
from compileboard.collectors.store.reopening import put_back_rollups, reopen_run, unpack_current
from compileboard.collectors.store.runs import publish_run
from compileboard.collectors.store.sealed_files import (
    DETAIL,
    SealedRun,
    get_sealed_run,
    glance_at_run_file,
    open_workplace,
)
from compileboard.collectors.store.trash import (
    TrashTable,
    database_path,
    list_own_rows,
    read_tables,
    write_insert,
)

LARGE_BYTES = 4 << 20  # unpacked; below it all rows come in one transaction
ROWS_AT_ONCE = 500
BYTES_AT_ONCE = 1 << 20  # of texts
CHECKPOINT_EVERY = 10  # transactions
PAUSE = 2.0  # times as long as the transaction before: SQLite's waiting sleeps for up to 0.1 s
ATTEMPTS = 3
_WAIT_S = 0.2


class RunSealed(StoreBusy):
    """The rows of a large sealed run must be restored before more is stored."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"The rows of run {run_id} are being put back from its file. Try again soon."
        )
        self.run_id = run_id


class _RunChanged(Exception):
    pass


def is_large(sealed: SealedRun) -> bool:
    return sealed.file.unpacked_bytes >= LARGE_BYTES


def refuse_large_run(connection: sqlite3.Connection, run_id: str) -> None:
    """Raises RunSealed if a large run must be restored first; RunFileUnavailable if it cannot
    be.
    """
    sealed = get_sealed_run(connection, run_id)
    if sealed is not None and is_large(sealed):
        raise glance_at_run_file(database_path(connection), sealed.file) or RunSealed(run_id)


def reopen_large_run(connection: sqlite3.Connection, run_id: str) -> bool:
    """Restore a large run before a transaction writes to it; False if nothing was done.

    Does nothing within a transaction: `reopen_run` does it there at once. Raises StoreError.
    """
    if connection.in_transaction:
        return False
    sealed = get_sealed_run(connection, run_id)
    if sealed is None or not is_large(sealed):
        return False
    database = database_path(connection)
    with _wait_for_turn(database), closing(open_writer(database, create=False)) as writer:
        for _attempt in range(ATTEMPTS):
            sealed = get_sealed_run(writer, run_id)
            if sealed is None:
                return True
            try:
                _Reopening(writer, sealed, database).run()
            except (_RunChanged, sqlite3.IntegrityError):
                continue
            return True
    raise StoreBusy(
        f"run {run_id} changes again and again while its rows are put back. Try again later."
    )


def reopen_in(database: str, run_id: str) -> None:
    with closing(open_reader(database)) as reader:
        if get_sealed_run(reader, run_id) is None:
            return
    with closing(open_writer(database, create=False)) as writer:
        if not reopen_large_run(writer, run_id):
            with write_transaction(writer):
                reopen_run(writer, run_id)


@contextmanager
def _wait_for_turn(database: str) -> Iterator[None]:
    try:
        while (lease := take_lease(database, REOPEN)) is None:
            time.sleep(_WAIT_S)
    except OSError as error:
        raise StoreError(
            f"the locks beside {database} cannot be made ({error.strerror})."
        ) from error
    with lease:
        yield


class _Reopening:
    def __init__(self, connection: sqlite3.Connection, sealed: SealedRun, database: str) -> None:
        self._connection = connection
        self._sealed = sealed
        self._database = database
        self._key: dict[str, object] = {"run_id": sealed.run_id, "file_name": sealed.file.name}
        self._tables = read_tables(connection)
        self._owned = list_own_rows(self._tables)
        self._shifts: dict[str, int] = {}  # what is added to the ids of a table
        self._placed: defaultdict[str, set[int]] = defaultdict(
            set
        )  # ids in the file of rows that came first
        self._shared: dict[str, dict[Any, Any]] = {}  # ids there by those of the file
        self._put_bytes = 0  # of texts, in this transaction
        self._step_count = 0

    def run(self) -> None:
        with open_workplace(self._database) as folder:
            path = folder / "run.db"
            unpack_current(self._database, self._sealed.file, path)
            self._mark()
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as file:
                file.row_factory = sqlite3.Row
                self._connection.execute(
                    "pragma foreign_keys = off"
                )  # a row may come before what it points to
                try:
                    self._put_detail(file)
                finally:
                    self._connection.execute("pragma foreign_keys = on")
                self._step(lambda: self._finish(file))
        checkpoint(self._connection)

    def _mark(self) -> None:
        with write_transaction(self._connection):
            marked = self._connection.execute(
                (
                    "update sealed_runs set emptied_us = 0 where run_id = :run_id and file_name = "
                    ":file_name"
                ),
                self._key,
            )
            if not marked.rowcount:
                raise _RunChanged
        if not self._sealed.is_emptied:
            delete_detail(self._connection, DeletionSteps(self._connection, self._check), self._key)

    def _check(self) -> None:
        query = (
            "select 1 from sealed_runs where run_id = :run_id and file_name = :file_name and "
            "emptied_us = 0"
        )
        if self._connection.execute(query, self._key).fetchone() is None:
            raise _RunChanged

    def _step(self, work: Callable[[], bool]) -> bool:
        began_s, self._put_bytes = time.monotonic(), 0
        with write_transaction(self._connection):
            self._check()
            has_more = work()
        self._step_count += 1
        if self._step_count % CHECKPOINT_EVERY == 0:
            checkpoint(self._connection)
        time.sleep(max(0.005, PAUSE * (time.monotonic() - began_s)))
        return has_more

    def _put_detail(self, file: sqlite3.Connection) -> None:
        tables = list(_order(self._tables))
        numbered = [table for table in tables if table.number == "id"]
        most_ids = {table.name: self._find_most_id(table) for table in numbered}
        shifts = {table.name: self._find_shift(file, table) for table in numbered}
        self._step(lambda: self._reserve(file, numbered, most_ids, shifts))
        rows = ((table, row) for table in tables for row in self._read_rows(file, table))
        while self._step(lambda: self._put_some(file, rows)):
            pass

    def _find_most_id(self, table: TrashTable) -> int:
        (most_id,) = self._connection.execute(f"select max(id) from {table.name}").fetchone()  # noqa: S608 - our names
        return int(most_id or 0)

    def _find_shift(self, file: sqlite3.Connection, table: TrashTable) -> int | None:
        low, high = file.execute(f"select min(id), max(id) from {table.name}").fetchone()  # noqa: S608 - our own names
        taken = self._connection.execute(
            f"select id from {table.name} where id between ? and ?",  # noqa: S608 - our own names
            (low, high),
        )
        find = f"select 1 from {table.name} where id = ?"  # noqa: S608 - our own names
        return None if any(file.execute(find, (row["id"],)).fetchone() for row in taken) else 0

    def _reserve(
        self,
        file: sqlite3.Connection,
        tables: list[TrashTable],
        most_ids: dict[str, int],
        shifts: dict[str, int | None],
    ) -> bool:
        lasts = []
        for table in tables:
            name = table.name
            low, high = file.execute(f"select min(id), max(id) from {name}").fetchone()  # noqa: S608 - our own names
            if high is None:
                self._shifts[name] = 0
                continue
            most_id = self._find_most_id(table)
            shift = shifts[name]
            if shift is None or (
                most_ids[name] < most_id and most_id >= low
            ):  # others came since it was looked up
                shift = most_id + 1 - low
            self._shifts[name] = shift
            lasts.append((table, high))
        pending = lasts
        while pending:
            table, row_id = pending.pop()
            if row_id in self._placed[table.name]:
                continue
            self._placed[table.name].add(row_id)
            cursor = file.cursor()
            cursor.row_factory = None
            names = self._list_columns(table)
            (row,) = cursor.execute(
                f"select {', '.join(names)} from {table.name} where id = ?",  # noqa: S608 - our own names
                (row_id,),
            )
            self._insert(table, [self._convert(file, table, row)])
            for name, value in zip(names, row):
                parent = table.parents.get(name, ("", "", False))[0]
                if value is not None and parent in self._shifts:
                    pending.append((self._tables[parent], value))
        return True

    def _list_columns(self, table: TrashTable) -> list[str]:
        return [column for column in table.columns if column != "rowid"]

    def _read_rows(self, file: sqlite3.Connection, table: TrashTable) -> Iterator[tuple[Any, ...]]:
        cursor = file.cursor()
        cursor.row_factory = None
        query = f"select {', '.join(self._list_columns(table))} from {table.name}"  # noqa: S608 - our own names
        if table.number == "id":
            query += " order by id"
            placed, position = self._placed[table.name], self._list_columns(table).index("id")
            yield from (row for row in cursor.execute(query) if row[position] not in placed)
            return
        if table.number == "rowid":
            query += " order by rowid"
        yield from cursor.execute(query)

    def _put_some(
        self, file: sqlite3.Connection, rows: Iterator[tuple[TrashTable, tuple[Any, ...]]]
    ) -> bool:
        pending: list[tuple[Any, ...]] = []
        of: TrashTable | None = None
        for count, (table, row) in enumerate(rows, 1):
            if of is not None and table is not of:
                self._insert(of, pending)
                pending = []
            of = table
            pending.append(self._convert(file, table, row))
            if count >= ROWS_AT_ONCE or self._put_bytes >= BYTES_AT_ONCE:
                self._insert(of, pending)
                return True
        if of is not None:
            self._insert(of, pending)
        return False

    def _insert(self, table: TrashTable, rows: list[tuple[Any, ...]]) -> None:
        names = self._list_columns(table)
        marks = ", ".join("?" * len(names))
        self._connection.executemany(
            f"insert into {table.name} ({', '.join(names)}) values ({marks})",  # noqa: S608 - our own names
            rows,
        )

    def _convert(
        self, file: sqlite3.Connection, table: TrashTable, row: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        values = []
        for column, value in zip(self._list_columns(table), row):
            parent = table.parents.get(column, ("", "", False))[0]
            if value is None:
                pass
            elif column == "id" and table.number == "id":
                value += self._shifts[table.name]
            elif parent in self._shifts:
                value += self._shifts[parent]
            elif parent and parent not in self._owned:
                value = self._share(file, parent, value)
            elif isinstance(value, bytes):
                self._put_bytes += len(value)
            values.append(value)
        return tuple(values)

    def _share(self, file: sqlite3.Connection, name: str, value: Any) -> Any:
        known = self._shared.setdefault(name, {})
        if value in known:
            return known[value]
        table = self._tables[name]
        row = dict(
            file.execute(
                f"select {', '.join(table.columns)} from {name} where id = ?",  # noqa: S608 - our own names
                (value,),
            ).fetchone()
        )
        for column, (parent, _key, _cascades) in table.parents.items():
            if row[column] is not None:
                row[column] = self._share(file, parent, row[column])
        self._put_bytes += sum(len(part) for part in row.values() if isinstance(part, bytes))
        self._connection.execute(write_insert(table, row, "or ignore"), row)
        same = " and ".join(f"{column} is :{column}" for column in table.unique)
        find = f"select id from {name} where {same}"  # noqa: S608 - our own names
        here = self._connection.execute(find, row).fetchone()
        if here is None:  # its id is another's
            del row["id"]
            self._connection.execute(write_insert(table, row), row)
            here = self._connection.execute(find, row).fetchone()
        known[value] = here["id"]
        return known[value]

    def _finish(self, file: sqlite3.Connection) -> bool:
        put_back_rollups(file, self._connection, self._sealed.run_id, self._shifts["compiles"])
        publish_run(self._connection, self._sealed.run_id)  # so that it is not sealed again at once
        return False


def _order(tables: dict[str, TrashTable]) -> Iterator[TrashTable]:
    pending = [tables[name] for name in DETAIL]
    while pending:
        names = {table.name for table in pending}
        ready = [
            table
            for table in pending
            if not any(
                parent in names and parent != table.name
                for parent, _key, _cascades in table.parents.values()
            )
        ]
        yield from ready or pending
        pending = [table for table in pending if table not in ready] if ready else []
