"""Bring a database to the version this program writes: numbered steps, each applied once, never edited."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from compileboard.collectors.store.connection import (
    APPLICATION_ID,
    DATABASE_VERSION,
    checkpoint,
    open_writer,
    write_transaction,
)
from compileboard.collectors.store.content_ids import give_content_ids
from compileboard.collectors.store.errors import StoreError, explain
from compileboard.collectors.store.ingest.stacks import grow_stacks
from compileboard.collectors.store.publications import number_runs
from compileboard.collectors.store.rollups.summaries import grow_summaries
from compileboard.collectors.store.suggestions import renew_suggestions

FOLDER = Path(__file__).parent


def migrate(path: str | os.PathLike[str]) -> int:
    """Bring the database at `path` up to date, creating it where there is none; return how many steps it took.

    Raises: StoreError in words if the file cannot be migrated.
    """
    connection = open_writer(path)
    try:
        return migrate_connection(connection)
    except sqlite3.Error as error:
        raise explain(error, os.fspath(path)) from error
    finally:
        connection.close()


def migrate_connection(connection: sqlite3.Connection) -> int:
    """Apply what is pending on an open writer, under the write lock so that two starts at once are safe."""
    if _version(connection) == DATABASE_VERSION:
        return 0
    connection.execute("pragma foreign_keys = off")  # not within a transaction; a step may give rows other keys
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
    """Raises: StoreError if a step left a row that points nowhere, which did not before."""
    with without_data_frames():
        import sqlite_utils

        migrations = _migrations()
    database = sqlite_utils.Database(connection)
    pending = len(migrations.pending(database))
    broken = connection.execute("pragma foreign_key_check").fetchall()
    migrations.apply(database)
    if len(connection.execute("pragma foreign_key_check").fetchall()) > len(broken):
        raise StoreError("rows would point nowhere after the migration; nothing was changed. Report this.")
    connection.execute(f"pragma application_id = {APPLICATION_ID}")
    connection.execute(f"pragma user_version = {DATABASE_VERSION}")
    return pending


@contextmanager
def without_data_frames() -> Iterator[None]:
    """Stop sqlite-utils from importing pandas and numpy: 0.4 s and 60 MB for data frames that nobody here hands it."""
    absent = [name for name in ("pandas", "numpy") if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("pragma user_version").fetchone()[0])


def _migrations() -> Any:
    from sqlite_utils.migrations import Migrations

    steps = Migrations("compileboard")
    # By name: the statements, then what has to be worked out of the rows there are.
    files: dict[str, tuple[str, tuple[Callable[[sqlite3.Connection], object], ...]]] = {
        "0001_first_schema": ("schema.sql", ()),
        "0002_trace_logs": ("schema_2.sql", (grow_stacks,)),
        "0003_timeline": ("schema_3.sql", ()),
        "0004_benchmark_results": ("schema_4.sql", ()),
        "0005_run_summaries": ("schema_5.sql", ()),
        "0006_findings": ("schema_6.sql", ()),
        "0007_rejects_failures_trash": ("schema_7.sql", ()),
        "0008_content_ids": ("schema_8.sql", (give_content_ids, number_runs)),
        "0009_incidents": ("schema_9.sql", (renew_suggestions,)),
        "0010_repros": ("schema_10.sql", ()),
        # Once, by the newest columns: a model with a wrong answer counts as failed since version 6.
        "0011_export_and_ranks": ("schema_11.sql", (grow_summaries,)),
        "0012_fleet": ("schema_12.sql", ()),
        "0013_second_engine": ("schema_13.sql", ()),
    }

    def apply(database: Any, file_name: str, functions: tuple[Callable[[sqlite3.Connection], object], ...]) -> None:
        for statement in read_statements(file_name):
            database.conn.execute(statement)
        for function in functions:
            function(database.conn)

    for name, (file_name, functions) in files.items():
        steps(name=name)(partial(apply, file_name=file_name, functions=functions))
    return steps


def read_statements(file_name: str) -> Iterator[str]:
    """Yield the statements of one of the schema's files."""
    return split_statements((FOLDER / file_name).read_text(encoding="utf-8"))


def split_statements(script: str) -> Iterator[str]:
    """Yield a script's statements one by one: executescript() would commit the transaction around them.

    Raises: StoreError if the script ends in the middle of a statement.
    """
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if any(line.strip() and not line.lstrip().startswith("--") for line in statement.splitlines()):
        raise StoreError(f"the schema ends in the middle of a statement: {statement.strip()[:80]!r}")
