"""Migrate a database by numbered steps. Each is applied once and never edited."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from compileboard.collectors.store.connection import (
    APPLICATION_ID,
    DATABASE_VERSION,
    StoreError,
    check_pages,
    checkpoint,
    explained,
    open_writer,
    read_value,
    write_transaction,
)

FOLDER = Path(__file__).parent
STEPS = ("schema_1",)  # SQL files here, in order; DATABASE_VERSION is their number


def migrate(path: str | os.PathLike[str]) -> int:
    """Migrate the database at `path`, creating it if missing; return the number of steps.

    Raises StoreError if the file is damaged or cannot be migrated.
    """
    with closing(open_writer(path)) as connection, explained(os.fspath(path)):
        check_pages(connection, os.fspath(path))
        return migrate_connection(connection)


def make_missing(path: str) -> str | None:
    is_missing = not os.path.exists(path)
    if not is_missing and not (os.path.isfile(path) and os.path.getsize(path) == 0):
        return None
    migrate(path)
    return f"{path} {'did not exist' if is_missing else 'was empty'}: made an empty database"


def migrate_connection(connection: sqlite3.Connection) -> int:
    """Apply pending migrations and return their number. Concurrent calls are safe: they wait for
    the write lock, and then find none pending.
    """
    if _version(connection) == DATABASE_VERSION:
        return 0
    connection.execute(
        "pragma foreign_keys = off"
    )  # not within a transaction; a step may give rows other keys
    try:
        with write_transaction(connection):
            if _version(connection) == DATABASE_VERSION:
                return 0
            pending = _apply(connection)
    finally:
        connection.execute("pragma foreign_keys = on")
    checkpoint(connection)
    return pending


def _apply(connection: sqlite3.Connection) -> int:
    with without_data_frames():
        import sqlite_utils

        migrations = _migrations()
    database = sqlite_utils.Database(connection)
    pending = len(migrations.pending(database))
    broken = connection.execute("pragma foreign_key_check").fetchall()
    migrations.apply(database)
    if len(connection.execute("pragma foreign_key_check").fetchall()) > len(broken):
        raise StoreError(
            "rows would point nowhere after the migration; nothing was changed. Report this."
        )
    connection.execute(f"pragma application_id = {APPLICATION_ID}")
    connection.execute(f"pragma user_version = {DATABASE_VERSION}")
    return pending


@contextmanager
def without_data_frames() -> Iterator[None]:
    """Keep sqlite-utils from importing pandas and numpy, which takes 0.4 s and 60 MB."""
    absent = [name for name in ("pandas", "numpy") if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def _version(connection: sqlite3.Connection) -> int:
    return int(read_value(connection, "pragma user_version"))


def _migrations() -> Any:
    from sqlite_utils.migrations import Migrations

    migrations = Migrations("compileboard")
    for name in STEPS:
        migrations(name=name)(partial(_apply_step, name=name))
    return migrations


def _apply_step(database: Any, name: str) -> None:
    for statement in split_statements((FOLDER / f"{name}.sql").read_text(encoding="utf-8")):
        database.conn.execute(statement)


def split_statements(script: str) -> Iterator[str]:
    """Yield a script's statements. executescript() is not used, because it would commit the
    surrounding transaction.

    Raises StoreError if the script ends within a statement.
    """
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if any(line.strip() and not line.lstrip().startswith("--") for line in statement.splitlines()):
        raise StoreError(
            f"the schema ends in the middle of a statement: {statement.strip()[:80]!r}"
        )
