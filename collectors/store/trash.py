"""Deleted runs, kept for a week in a file each, from which they can be restored.

<database>-trash/               0700
    <hash of the run's id>.db   the run's rows, and the rows of shared tables to which they refer

Rows are removed instead of marked as deleted, so that no query has to filter them. Texts, 90% of a
run's bytes, are shared between runs by content and stay in the database until the run is
permanently deleted.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.contract.records import TABLES
from compileboard.collectors.store.connection import (
    DATABASE_VERSION,
    StoreError,
    checkpoint,
    explain,
    has_row,
    read_value,
    write_transaction,
)
from compileboard.collectors.store.run_rows import (
    RowCopy,
    delete_rows,
    list_needed_rows,
    read_tables,
)
from compileboard.collectors.store.runs import publish_removal, publish_run
from compileboard.collectors.store.sealed_files import (
    SealedRun,
    check_run_file_metadata,
    has_sealed_runs,
    list_sealed_runs,
    place_file,
    remove_run_files,
)
from compileboard.collectors.store.search import remove_run_words
from compileboard.collectors.store.stream_rows import (
    forget_old_texts,
    forget_run_streams,
)

WEEK_US = 7 * 86_400 * 1_000_000

# Rows that runs share, and the small tables that tell first whether any run still points to one.
# Commits are of a repository, not of one run.
SHARED: dict[str, tuple[str, ...]] = {
    "distinct_breaks": ("run_breaks",),
    "recompile_causes": ("run_causes",),
    "rerecording_reasons": ("run_rerecordings",),
    "failure_issues": ("run_issues",),
    "series": ("results",),
    "span_names": ("span_totals",),
    "configs": ("process_configs",),
    "source_excerpts": ("run_source_excerpts",),
    "functions": (
        *("run_functions", "distinct_breaks", "recompile_causes", "rerecording_reasons"),
        "failure_issues",
    ),
}
# What runs have in common:
THINGS = (
    *("distinct_breaks", "recompile_causes", "rerecording_reasons", "failure_issues"),
    *("series", "functions"),
)
TEXTS = tuple(  # what points to one
    (name, column.name)
    for name, table in TABLES.items()
    for column in table.columns.values()
    if column.constraint.startswith("references payloads")
)
# A machine pushes texts before their events.
_UNUSED = "digest not in (select digest from sent_texts)" + "".join(  # noqa: S608 - our own names
    f" and not exists (select 1 from {table} where {column} = payloads.id)"  # noqa: S608 - our own names
    for table, column in TEXTS
)
UNUSED_TEXTS = f"select id from payloads where {_UNUSED}"  # noqa: S608 - our own names
DELETE_TEXT = f"delete from payloads where id = ? and {_UNUSED}"  # noqa: S608 - our own names
_DROP_COMMITS = """
delete from commits where not exists (select 1 from runs where git_commit is not null)
"""


class CannotRestore(ValueError):
    pass


def delete_run(connection: sqlite3.Connection, run_id: str, *, now_us: int | None = None) -> bool:
    """Move a run into the trash; return False if there is no such run.

    Raises StoreError if the trash cannot be written; the run is then kept.
    """
    now_us = read_clock_us() if now_us is None else now_us
    path = trash_path(database_path(connection), run_id)
    with write_transaction(connection):
        row = connection.execute(
            """
            select coalesce(title, name) as name, suite, started_us,
            coalesce(size_bytes, 0) as file_bytes
            from runs
            left join run_annotations on run_annotations.run_id = runs.id
            left join sealed_runs on sealed_runs.run_id = runs.id
            where runs.id = :id
            """,
            {"id": run_id},
        ).fetchone()
        if row is None:
            return False
        _write_trash(connection, run_id, path)  # whole and on the disk before anything goes
        remove_run_words(connection, run_id)
        delete_rows(connection, run_id, ["stack_nodes"])
        connection.execute("delete from runs where id = :id", {"id": run_id})
        publish_removal(connection)
        connection.execute(
            """
            insert or replace into removed_runs
              (run_id, deleted_us, expires_us, name, suite, started_us, trash_bytes)
            values (:run_id, :now_us, :expires_us, :name, :suite, :started_us, :trash_bytes)
            """,
            {
                **dict(row),
                "run_id": run_id,
                "now_us": now_us,
                "expires_us": now_us + WEEK_US,
                "trash_bytes": path.stat().st_size + row["file_bytes"],
            },
        )
    with suppress(
        StoreError, sqlite3.Error
    ):  # the run is deleted; what this leaves goes with the next one
        _drop_orphans(connection)
    return True


def _drop_orphans(connection: sqlite3.Connection) -> None:
    """Delete shared rows to which nothing refers any more.

    This is a transaction of its own that reads each table once; SQLite's foreign key checks would
    scan whole tables for every row.
    """
    tables = read_tables(connection)
    connection.execute("pragma foreign_keys = off")
    try:
        with write_transaction(connection):
            has_sealed = has_sealed_runs(connection)
            for name, first in SHARED.items():
                if has_sealed and name in THINGS:
                    continue  # what points to it may be in a run's file
                pointing = [
                    (child.name not in first, child.name, column, key)
                    for child in tables.values()
                    for column, (parent, key, _cascades) in child.parents.items()
                    if parent == name
                ]
                unused = [
                    f"{key} not in (select {column} from {child} where {column} is not null)"  # noqa: S608 - our own names
                    for _, child, column, key in sorted(pointing)
                ]
                connection.execute(f"delete from {name} where {' and '.join(unused)}")  # noqa: S608 - our own names
    finally:
        connection.execute("pragma foreign_keys = on")


def restore_run(connection: sqlite3.Connection, run_id: str) -> bool:
    """Restore a deleted run; return False if none was deleted. It must be indexed again for search.

    Raises CannotRestore if it was permanently deleted, recorded again, or is of another version.
    """
    path = trash_path(database_path(connection), run_id)
    with write_transaction(connection):
        key = {"id": run_id}
        if not has_row(connection, "select 1 from removed_runs where run_id = :id", key):
            return False
        if has_row(connection, "select 1 from runs where id = :id", key):
            raise CannotRestore(
                f"run {run_id[:80]} was recorded or imported again since; delete that one first"
            )
        if not path.exists():
            raise CannotRestore(
                f"run {run_id[:80]} is deleted for good: {path} is not there. It goes a week "
                "after the run "
                f"was deleted; where the database was copied, copy {path.parent.name} too"
            )
        with closing(_open_trash(path)) as trash:
            if not _is_whole(trash, run_id):
                raise CannotRestore(
                    f"{path} is damaged; put it back from a backup, and restore the run then"
                )
            version = read_value(trash, "pragma user_version")
            if version > DATABASE_VERSION:
                raise CannotRestore(
                    f"run {run_id[:80]} was deleted by a newer CompileBoard; restore it with "
                    "that one"
                )
            _check_run_file(trash, database_path(connection))
            present = {run_id, *(row["id"] for row in connection.execute("select id from runs"))}
            RowCopy(trash, connection, run_id, present=present).run()
            publish_run(connection, run_id)
        connection.execute("delete from removed_runs where run_id = :id", key)
    path.unlink(missing_ok=True)
    return True


def prune_trash(
    connection: sqlite3.Connection, *, age_us: int = WEEK_US, now_us: int | None = None
) -> list[str]:
    now_us = read_clock_us() if now_us is None else now_us
    database = database_path(connection)
    with write_transaction(connection):
        rows = connection.execute(
            """
            select run_id from removed_runs
            where expires_us is not null and deleted_us <= :before_us
            order by deleted_us, run_id
            """,
            {"before_us": now_us - age_us},
        ).fetchall()
        pruned = [row["run_id"] for row in rows]
        for run_id in pruned:
            trash_path(database, run_id).unlink(missing_ok=True)
            remove_run_files(database, run_id)
            connection.execute(
                """
                update removed_runs
                set expires_us = null, name = null, suite = null, started_us = null,
                trash_bytes = null
                where run_id = :id
                """,
                {"id": run_id},
            )
            forget_run_streams(connection, run_id)
        _sweep(connection, database)
        unused = forget_old_texts(connection, now_us)
        if pruned:
            connection.execute(_DROP_COMMITS)
            unused = [row["id"] for row in connection.execute(UNUSED_TEXTS)]
        if unused:
            deleted = set(unused) - set(list_trashed_text_ids(database))
            connection.executemany(DELETE_TEXT, [(text_id,) for text_id in deleted])
    checkpoint(connection)
    return pruned


def database_path(connection: sqlite3.Connection) -> str:
    return str(connection.execute("pragma database_list").fetchone()["file"])


def trash_path(database: str, run_id: str) -> Path:
    """Return a deleted run's file, whose name is a hash because ids may be any text."""
    digest = hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return Path(f"{os.path.abspath(database)}-trash", f"{digest}.db")


def _write_trash(connection: sqlite3.Connection, run_id: str, path: Path) -> None:
    new = path.with_suffix(".new")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        new.unlink(missing_ok=True)
        with closing(sqlite3.connect(new, isolation_level=None)) as trash:
            trash.execute("begin")
            _write_rows(connection, run_id, trash)
            trash.execute(f"pragma user_version = {DATABASE_VERSION}")
            trash.execute("commit")
        place_file(new, path, database_path(connection))
    except (sqlite3.Error, OSError) as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        if isinstance(error, sqlite3.Error):
            raise explain(error, str(path)) from error
        raise StoreError(
            f"{path.parent} cannot be written ({error.strerror}), so the run was not deleted: "
            "it is kept there for a "
            "week. Check the folder's permissions and the disk's room."
        ) from error


def _write_rows(connection: sqlite3.Connection, run_id: str, trash: sqlite3.Connection) -> None:
    tables = read_tables(connection)
    for name, where in list_needed_rows(tables).items():
        columns, marks = ", ".join(tables[name].columns), ", ".join("?" * len(tables[name].columns))
        order = " order by rowid" if tables[name].has_rowid else ""
        rows = connection.execute(
            f"select {columns} from {name} where {where}{order}",  # noqa: S608 - our own names
            {"run_id": run_id},
        )
        trash.execute(f"create table {name} ({columns})")
        trash.executemany(f"insert into {name} values ({marks})", rows)  # noqa: S608 - our own names


def _open_trash(path: Path) -> sqlite3.Connection:
    trash = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
    trash.row_factory = sqlite3.Row
    return trash


def _is_whole(trash: sqlite3.Connection, run_id: str) -> bool:
    try:
        state = read_value(trash, "pragma quick_check(1)")
        return state == "ok" and has_row(trash, "select 1 from runs where id = ?", (run_id,))
    except sqlite3.DatabaseError:
        return False


def find_sealed_run(trash: sqlite3.Connection) -> SealedRun | None:
    return next(iter(list_sealed_runs(trash)), None)


def _check_run_file(trash: sqlite3.Connection, database: str) -> None:
    sealed = find_sealed_run(trash)
    error = sealed and check_run_file_metadata(database, sealed.file)
    if error:
        raise CannotRestore(str(error).removesuffix(".")) from error


def _sweep(connection: sqlite3.Connection, database: str) -> None:
    folder = trash_path(database, "").parent
    waiting = connection.execute("select run_id from removed_runs where expires_us is not null")
    known = {trash_path(database, row["run_id"]) for row in waiting}
    for path in folder.glob("*"):
        if path not in known:
            path.unlink(missing_ok=True)


def list_trashed_text_ids(database: str) -> list[int]:
    ids: set[int] = set()
    for path in trash_path(database, "").parent.glob("*.db"):
        with closing(_open_trash(path)) as trash:
            for table, column in TEXTS:
                with suppress(sqlite3.OperationalError):
                    rows = trash.execute(f"select {column} from {table} where {column} is not null")  # noqa: S608 - our own names
                    ids.update(row[0] for row in rows)
    return sorted(ids)
