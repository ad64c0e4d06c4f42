"""Restore the rows of a large sealed run in short transactions, so that others can write.

1. The run is marked as being restored (`emptied_us` is 0). Readers use its file.
2. Detail left by a killed pass is deleted; then the detail is inserted in parts.
3. One transaction inserts the roll-ups and removes the mark: readers use the rows.

If the process is killed before step 3, the next sealing or reopening deletes the detail. One
process per database does this. A table's rows are restored from its greatest id on, so that rows of
others get greater ids. If an id is taken nevertheless, or the file is replaced, it starts again.
"""

from __future__ import annotations

import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any

from compileboard.collectors.store.connection import (
    StoreBusy,
    StoreError,
    checkpoint,
    has_row,
    open_reader,
    open_writer,
    write_transaction,
)
from compileboard.collectors.store.leases import REOPEN, try_acquire_lease
from compileboard.collectors.store.pruning import WriteSteps, delete_detail
from compileboard.collectors.store.reopening import open_run_file, reopen_run, restore_rollups
from compileboard.collectors.store.run_rows import DETAIL, ROWS_AT_ONCE, RowCopy, order_tables
from compileboard.collectors.store.runs import publish_run
from compileboard.collectors.store.sealed_files import (
    SealedRun,
    check_run_file_metadata,
    get_sealed_run,
)
from compileboard.collectors.store.trash import database_path

LARGE_BYTES = 4 << 20  # unpacked; below it all rows come in one transaction
BYTES_AT_ONCE = 1 << 20  # The size of texts inserted at once.
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
        raise check_run_file_metadata(database_path(connection), sealed.file) or RunSealed(run_id)


def reopen_large_run(connection: sqlite3.Connection, run_id: str) -> bool:
    """Restore a large run before a transaction writes to it; return False if nothing was done.

    Nothing is done within a transaction: `reopen_run` restores the run there at once. Raises
    StoreError.
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
                _restore(writer, sealed, database)
            except (_RunChanged, sqlite3.IntegrityError):
                continue
            return True
    raise StoreBusy(
        f"run {run_id} changes again and again while its rows are put back. Try again later."
    )


def reopen_run_of_database(database: str, run_id: str) -> None:
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
        while (lease := try_acquire_lease(database, REOPEN)) is None:
            time.sleep(_WAIT_S)
    except OSError as error:
        raise StoreError(
            f"the locks beside {database} cannot be made ({error.strerror})."
        ) from error
    with lease:
        yield


_IS_MARKED = """
select 1 from sealed_runs
where run_id = :run_id and file_name = :file_name and emptied_us = 0
"""


def _restore(connection: sqlite3.Connection, sealed: SealedRun, database: str) -> None:
    """Restore a run in steps. Raises _RunChanged if the run or its file is replaced meanwhile."""
    key = {"run_id": sealed.run_id, "file_name": sealed.file.name}

    def check() -> None:
        if not has_row(connection, _IS_MARKED, key):
            raise _RunChanged

    with open_run_file(database, sealed.file) as file:
        with write_transaction(connection):
            connection.execute(
                """
                update sealed_runs set emptied_us = 0
                where run_id = :run_id and file_name = :file_name
                """,
                key,
            )
            check()
        if not sealed.is_emptied:
            delete_detail(connection, WriteSteps(connection, check), sealed.run_id)
        steps = WriteSteps(connection, check, pause=PAUSE, checkpoint_every=CHECKPOINT_EVERY)
        # A row may come before what it points to.
        connection.execute("pragma foreign_keys = off")
        try:
            copy = RowCopy(file, connection, sealed.run_id, DETAIL)
            rows = (
                (name, row)
                for name in order_tables(copy.tables, DETAIL)
                for row in copy.read(name, descending=True)
            )
            while steps.run(lambda: _insert_some_rows(copy, rows)):
                pass
        finally:
            connection.execute("pragma foreign_keys = on")

        def finish() -> int:
            restore_rollups(file, connection, sealed.run_id, copy.shifts.get("compiles", 0))
            publish_run(connection, sealed.run_id)  # so that it is not sealed again at once
            return 1

        steps.run(finish)
    checkpoint(connection)


def _insert_some_rows(copy: RowCopy, rows: Iterator[tuple[str, Any]]) -> int:
    copy.byte_count, count = 0, 0
    pending: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, row in islice(rows, ROWS_AT_ONCE):
        count += 1
        if copy.tables[name].has_id and name not in copy.shifts:
            copy.shifts[name] = copy.find_shift(name)
        pending[name].append(copy.convert(name, row))
        if copy.byte_count >= BYTES_AT_ONCE:
            break
    for name, converted in pending.items():
        copy.insert(name, converted[::-1])
    return count
