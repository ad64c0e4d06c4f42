"""Restore a sealed run's rows when more data of it is to be stored."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from compileboard.collectors.store.connection import DATABASE_VERSION, open_immutable, open_writer
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.run_rows import DETAIL, ROLLUPS, RowCopy, delete_rows
from compileboard.collectors.store.sealed_files import (
    RunFile,
    get_sealed_run,
    open_workplace,
    unpack_run_file,
)
from compileboard.collectors.store.trash import database_path

_HEADER_BYTES = 64  # of SQLite's header, which ends with `pragma user_version`


def reopen_run(connection: sqlite3.Connection, run_id: str, board: str | None = None) -> bool:
    """Restore a sealed run's rows in the caller's transaction; return False if it is not sealed.

    Cached ids become invalid, and the run must be indexed again. The file is kept for current
    readers until the run is sealed again. `board` is the database, if this is a copy. Raises
    StoreError.
    """
    sealed = get_sealed_run(connection, run_id)
    if sealed is None:
        return False
    with open_run_file(board or database_path(connection), sealed.file) as file:
        if not sealed.is_emptied:
            delete_rows(connection, run_id, DETAIL)
        shift = RowCopy(file, connection, run_id, DETAIL, keeps_results=True).run()
        restore_rollups(file, connection, run_id, shift)
    return True


@contextmanager
def open_run_file(database: str, file: RunFile) -> Iterator[sqlite3.Connection]:
    """Open a copy of a sealed run's file. Raises StoreError if it is damaged or missing."""
    with open_workplace(database) as folder:
        unpack_current(database, file, folder / "run.db")
        with closing(open_immutable(folder / "run.db")) as run:
            yield run


def restore_rollups(
    file: sqlite3.Connection, connection: sqlite3.Connection, run_id: str, shift: int
) -> None:
    key = {"run_id": run_id}
    RowCopy(file, connection, run_id, ROLLUPS, keeps_results=True).run()
    keys = file.execute(
        "select id, compile_key from repros where compile_key is not null"
    ).fetchall()
    connection.executemany(
        "update repros set compile_key = :compile_key where id = :id",
        [{"id": row["id"], "compile_key": row["compile_key"] + shift} for row in keys],
    )
    connection.execute("delete from search_runs where run_id = :run_id", key)
    connection.execute("delete from sealed_runs where run_id = :run_id", key)


def unpack_current(database: str, file: RunFile, target: Path) -> None:
    unpack_run_file(database, file, target)
    with target.open("rb") as unpacked:
        if unpacked.read(_HEADER_BYTES)[-4:] == DATABASE_VERSION.to_bytes(4, "big"):
            return
    with closing(open_writer(target, create=False)) as writer:
        migrate_connection(writer)
        writer.execute("pragma journal_mode = delete")
