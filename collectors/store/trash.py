"""Deleted runs, kept for a week in a file each, from which they can be restored.

<database>-trash/               0700
    <hash of the run's id>.db   the run's rows, and rows of shared tables that they point to

Rows are removed instead of marked as deleted, so that no query has to filter them. Texts, 90% of a
run's bytes, are shared between runs by content and stay in the database until the run is deleted
for good. What belongs to a run is read from the foreign keys: new tables need no change here.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from compileboard.collectors.store.connection import (
    DATABASE_VERSION,
    StoreError,
    checkpoint,
    explain,
    write_transaction,
)
from compileboard.collectors.store.leases import copy_owner
from compileboard.collectors.store.runs import get_last_result_id, publish_removal, publish_run
from compileboard.collectors.store.sealed_files import (
    SealedRun,
    glance_at_run_file,
    has_sealed_runs,
    list_sealed_runs,
    remove_run_files,
)
from compileboard.collectors.store.search import remove_run_words
from compileboard.collectors.store.stream_rows import (
    drop_unused_texts,
    forget_run_streams,
    list_old_texts,
)

WEEK_US = 7 * 86_400 * 1_000_000
REBUILT = ("search_documents", "search_runs")  # of the search index: it is made anew
STAYING = ("payloads",)  # until a run is deleted for good

# Rows that runs share, and the small tables that tell first whether any run still points to one.
# Commits are of a repository, not of one run.
SHARED: dict[str, tuple[str, ...]] = {
    "distinct_breaks": ("run_breaks",),
    "recompile_causes": ("run_causes",),
    "series": ("results",),
    "span_names": ("span_totals",),
    "configs": ("process_configs",),
    "source_excerpts": ("run_source_excerpts",),
    "functions": ("run_functions", "distinct_breaks", "recompile_causes"),
}
THINGS = ("distinct_breaks", "recompile_causes", "series", "functions")  # what runs have in common
TEXTS = (  # what points to one
    *(("artifacts", "payload_id"), ("spans", "payload_id"), ("repro_results", "program_id")),
    *(("repros", "program_id"), ("repros", "dynamo_program_id")),
)
_IN_USE = " union all ".join(
    f"select {column} from {table} where {column} is not null"  # noqa: S608 - our own names
    for table, column in TEXTS
)
DROP_TEXTS = (  # what a box sent before its events stays
    f"delete from payloads where id not in ({_IN_USE} union all select id from temp.trashed_texts) "  # noqa: S608 - our own names
    "and digest not in (select digest from sent_texts)",
    "delete from commits where not exists (select 1 from runs where git_commit is not null)",
)


class CannotRestore(ValueError):
    pass


@dataclass(frozen=True)
class TrashTable:
    name: str
    columns: tuple[str, ...]
    parents: dict[str, tuple[str, str, bool]] = field(
        default_factory=dict
    )  # column: table, its column, cascades
    # The column of SQLite's own number, which another row may have got meanwhile.
    number: str | None = None
    unique: tuple[str, ...] = ()
    required: frozenset[str] = frozenset()  # columns that are never null


def delete_run(connection: sqlite3.Connection, run_id: str, *, now_us: int | None = None) -> bool:
    """Move a run into the trash; False if there is no such run.

    Raises StoreError if the trash cannot be written; the run then stays.
    """
    now_us = time.time_ns() // 1000 if now_us is None else now_us
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
        tables = read_tables(connection)
        _write_trash(connection, tables, run_id, path)  # whole and on the disk before anything goes
        remove_run_words(connection, run_id)
        delete_stacks(connection, run_id)
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
        _drop_orphans(connection, tables)
    return True


def delete_stacks(connection: sqlite3.Connection, run_id: str) -> None:
    """Delete stacks from the innermost frame on; a cascade from the outermost is quadratic in
    depth.
    """
    connection.execute(
        "pragma defer_foreign_keys = on"
    )  # compiles, which point to them, go with the run
    nodes = connection.execute(
        "select id from stack_nodes where run_id = :id order by depth desc", {"id": run_id}
    )
    connection.executemany("delete from stack_nodes where id = :id", [dict(node) for node in nodes])


def _drop_orphans(connection: sqlite3.Connection, tables: dict[str, TrashTable]) -> None:
    """Delete shared rows that nothing refers to.

    In its own transaction, reading each table once; SQLite's foreign key checks would scan whole
    tables for every row.
    """
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
    """Restore a deleted run; False if none was deleted. It must be indexed again for search.

    Raises CannotRestore if it is gone for good, was recorded again, or is of another version.
    """
    path = trash_path(database_path(connection), run_id)
    with write_transaction(connection):
        key = {"id": run_id}
        if (
            connection.execute("select 1 from removed_runs where run_id = :id", key).fetchone()
            is None
        ):
            return False
        if connection.execute("select 1 from runs where id = :id", key).fetchone() is not None:
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
            (version,) = trash.execute("pragma user_version").fetchone()
            if version > DATABASE_VERSION:
                raise CannotRestore(
                    f"run {run_id[:80]} was deleted by a newer CompileBoard; restore it with "
                    "that one"
                )
            _check_run_file(trash, database_path(connection))
            connection.execute("pragma defer_foreign_keys = on")
            _Restoring(connection, trash).run()
            publish_run(connection, run_id)
        connection.execute("delete from removed_runs where run_id = :id", key)
    path.unlink(missing_ok=True)
    return True


def prune_trash(
    connection: sqlite3.Connection, *, age_us: int = WEEK_US, now_us: int | None = None
) -> list[str]:
    now_us = time.time_ns() // 1000 if now_us is None else now_us
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
        old_texts = list_old_texts(connection, now_us)
        if pruned or old_texts:
            _list_trashed_texts(connection, database)
        if pruned:
            for statement in DROP_TEXTS:
                connection.execute(statement)
        drop_unused_texts(connection, old_texts)
    checkpoint(connection)
    return pruned


def database_path(connection: sqlite3.Connection) -> str:
    return str(connection.execute("pragma database_list").fetchone()["file"])


def trash_path(database: str, run_id: str) -> Path:
    """Return a deleted run's file, named by a hash, since ids may be any text."""
    digest = hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return Path(f"{os.path.abspath(database)}-trash", f"{digest}.db")


def read_tables(connection: sqlite3.Connection) -> dict[str, TrashTable]:
    names = [
        row[0]
        for row in connection.execute(
            "select name from sqlite_schema where type = 'table' and sql is not null"
        )
    ]
    return {
        name: _read_table(connection, name)
        for name in names
        if not name.startswith(("search_words", "sqlite_"))
    }


def _read_table(connection: sqlite3.Connection, name: str) -> TrashTable:
    columns = connection.execute(
        'select name, type, pk, "notnull" from pragma_table_info(?)', (name,)
    ).fetchall()
    keys = connection.execute(
        'select "from", "table", "to", on_delete from pragma_foreign_key_list(?) order by id, seq',
        (name,),
    ).fetchall()
    unique: tuple[str, ...] = ()
    for index in connection.execute(
        "select name from pragma_index_list(?) where [unique] order by seq desc", (name,)
    ):
        unique = tuple(
            row[0]
            for row in connection.execute("select name from pragma_index_info(?)", (index["name"],))
        )
    has_id = [(column["name"], column["type"].lower()) for column in columns if column["pk"]] == [
        ("id", "integer")
    ]
    number = "id" if has_id else "rowid" if _has_rowid(connection, name) else None
    return TrashTable(
        name,
        (*(column["name"] for column in columns), *(["rowid"] if number == "rowid" else [])),
        {key["from"]: (key["table"], key["to"], key["on_delete"] == "CASCADE") for key in keys},
        number,
        unique
        or (
            ("id",) if has_id else ()
        ),  # a row that its id alone tells apart has one of its content
        frozenset(column["name"] for column in columns if column["notnull"] or column["pk"]),
    )


def _has_rowid(connection: sqlite3.Connection, name: str) -> bool:
    try:
        connection.execute(f"select rowid from {name} limit 0")  # noqa: S608 - our own names
    except sqlite3.OperationalError:
        return False
    return True


def list_own_rows(tables: dict[str, TrashTable]) -> dict[str, str]:
    return {name: where for name in tables if (where := _where(tables, name)) is not None}


def _where(tables: dict[str, TrashTable], name: str) -> str | None:
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


def _write_trash(
    connection: sqlite3.Connection, tables: dict[str, TrashTable], run_id: str, path: Path
) -> None:
    new = path.with_suffix(".new")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        new.unlink(missing_ok=True)
        with closing(sqlite3.connect(new, isolation_level=None)) as trash:
            trash.execute("begin")
            _write_rows(connection, tables, run_id, trash, STAYING)
            trash.execute(f"pragma user_version = {DATABASE_VERSION}")
            trash.execute("commit")
        new.chmod(0o600)
        for made in (path.parent, new):
            copy_owner(made, Path(database_path(connection)))
        new.replace(path)
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


def _write_rows(
    connection: sqlite3.Connection,
    tables: dict[str, TrashTable],
    run_id: str,
    trash: sqlite3.Connection,
    staying: tuple[str, ...],
    only: Collection[str] | None = None,
) -> None:
    owned = list_own_rows(tables)
    skipped = {*staying, *owned}
    owned = {name: where for name, where in owned.items() if only is None or name in only}
    for name, where in owned.items():
        _copy(
            trash,
            tables[name],
            connection.execute(_select(tables[name], where), {"run_id": run_id}),
        )
    pointing = list(owned)
    while pointing:  # the rows of shared tables, and what those point to
        pointing = list(dict.fromkeys(_copy_shared(connection, trash, tables, skipped, pointing)))


def copy_run(
    source: sqlite3.Connection, target: sqlite3.Connection, run_id: str, present: Iterable[str]
) -> None:
    """Copy a run with its texts into another database of this version, in the caller's transaction.

    Links to runs that are not `present` are dropped.
    """
    tables = read_tables(source)
    with closing(sqlite3.connect("", isolation_level=None)) as rows:  # a file that SQLite removes
        rows.row_factory = sqlite3.Row
        rows.execute("begin")
        _write_rows(source, tables, run_id, rows, ())
        rows.execute("create temp table present (run_id)")
        rows.executemany("insert into present values (?)", ((other_id,) for other_id in present))
        for name, table in tables.items():
            for column, (parent, _key, cascades) in table.parents.items():
                if parent == "runs" and not cascades and _where(tables, name) is not None:
                    rows.execute(
                        f"update {name} set {column} = null where {column} not in (select "  # noqa: S608 - our own names
                        "run_id from present)"
                    )
        target.execute("pragma defer_foreign_keys = on")
        _Restoring(target, rows).run()


def put_back_rows(
    source: sqlite3.Connection,
    target: sqlite3.Connection,
    run_id: str,
    only: Collection[str],
    *,
    is_own: bool = True,
) -> int:
    """Copy a run's rows of some tables, in the caller's transaction; return the offset added to the
    ids of its compiles, which may be taken.

    With `is_own`, result ids are kept.
    """
    with closing(sqlite3.connect("", isolation_level=None)) as rows:
        rows.row_factory = sqlite3.Row
        rows.execute("begin")
        _write_rows(source, read_tables(source), run_id, rows, (), only)
        target.execute("pragma defer_foreign_keys = on")
        restoring = _Restoring(target, rows, is_own=is_own)
        restoring.run()
        return restoring.shift.get("compiles", 0)


def _copy_shared(
    connection: sqlite3.Connection,
    trash: sqlite3.Connection,
    tables: dict[str, TrashTable],
    skipped: set[str],
    pointing: list[str],
) -> Iterator[str]:
    for name in pointing:
        for column, (parent, key, _cascades) in tables[name].parents.items():
            if parent in skipped:
                continue
            keys = {row[0] for row in trash.execute(f"select distinct {column} from {name}")}  # noqa: S608 - our own names
            with suppress(sqlite3.OperationalError):  # nothing of it is there yet
                keys -= {row[0] for row in trash.execute(f"select {key} from {parent}")}  # noqa: S608 - our own names
            for value in sorted(keys - {None}):
                rows = connection.execute(
                    _select(tables[parent], f"{key} = :value"), {"value": value}
                )
                _copy(trash, tables[parent], rows)
                yield parent


def _select(table: TrashTable, where: str) -> str:
    return f"select {', '.join(table.columns)} from {table.name} where {where}"  # noqa: S608 - our own names


def _copy(trash: sqlite3.Connection, table: TrashTable, rows: sqlite3.Cursor) -> None:
    trash.execute(f"create table if not exists {table.name} ({', '.join(table.columns)})")
    marks = ", ".join("?" * len(table.columns))
    trash.executemany(f"insert into {table.name} values ({marks})", rows)  # noqa: S608 - our own names


def _open_trash(path: Path) -> sqlite3.Connection:
    trash = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
    trash.row_factory = sqlite3.Row
    return trash


def _is_whole(trash: sqlite3.Connection, run_id: str) -> bool:
    try:
        (state,) = trash.execute("pragma quick_check(1)").fetchone()
        return (
            state == "ok"
            and trash.execute("select 1 from runs where id = ?", (run_id,)).fetchone() is not None
        )
    except sqlite3.DatabaseError:
        return False


def find_sealed_run(trash: sqlite3.Connection) -> SealedRun | None:
    with suppress(sqlite3.OperationalError):  # it was deleted before there were sealed runs
        return next(iter(list_sealed_runs(trash)), None)
    return None


def _check_run_file(trash: sqlite3.Connection, database: str) -> None:
    sealed = find_sealed_run(trash)
    error = sealed and glance_at_run_file(database, sealed.file)
    if error:
        raise CannotRestore(str(error).removesuffix(".")) from error


class _Restoring:
    def __init__(
        self, connection: sqlite3.Connection, trash: sqlite3.Connection, *, is_own: bool = False
    ) -> None:
        self._connection = connection
        self._trash = trash
        self._is_own = is_own  # what its sealed results were called, nobody else is
        tables = read_tables(connection)
        held = {
            row[0] for row in trash.execute("select name from sqlite_schema where type = 'table'")
        }
        self._owned = [
            table
            for name, table in tables.items()
            if name in held and _where(tables, name) is not None
        ]
        self._shared = [
            table for name, table in tables.items() if name in held and _where(tables, name) is None
        ]
        self.shift = {
            trash_table.name: self._find_shift(trash_table) for trash_table in self._owned
        }
        self._referred = {
            trash_table.name for trash_table in self._owned if trash_table.number == "id"
        }
        self._numbers: dict[str, dict[int, int]] = {}

    def run(self) -> None:
        pending = list(self._shared)
        while pending:  # those first that others of them point to
            names = {trash_table.name for trash_table in pending}
            ready = [
                trash_table
                for trash_table in pending
                if not names & {parent for parent, _, _ in trash_table.parents.values()}
            ]
            for table in ready:
                self._put_shared(table)
            pending = [trash_table for trash_table in pending if trash_table not in ready]
        for table in self._owned:
            self._put_owned(table)

    def _find_shift(self, table: TrashTable) -> int:
        number = table.number
        if number is None:
            return 0
        numbers = {row[0] for row in self._trash.execute(f"select {number} from {table.name}")}  # noqa: S608 - our own names
        if not numbers:
            return 0
        span: dict[str, int] = {"low": min(numbers), "high": max(numbers)}
        given = (
            get_last_result_id(self._connection)
            if table.name == "results" and not self._is_own
            else 0
        )
        taken = self._connection.execute(
            f"select {number} from {table.name} where {number} between :low and :high",  # noqa: S608 - our own names
            span,
        )
        if span["low"] > given and not any(row[0] in numbers for row in taken):
            return 0
        (most,) = self._connection.execute(f"select max({number}) from {table.name}").fetchone()  # noqa: S608 - our own names
        return max(int(most or 0), given) + 1 - span["low"]

    def _rows(self, table: TrashTable) -> Iterator[dict[str, Any]]:
        for row in self._trash.execute(f"select * from {table.name} order by rowid"):  # noqa: S608 - our own names
            values = dict(row)
            for column, (parent, _key, _cascades) in table.parents.items():
                value = values.get(column)
                if value is None:
                    continue
                if parent in self._numbers:
                    values[column] = self._numbers[parent][value]
                elif parent in self._referred:
                    values[column] = value + self.shift[parent]
            yield values

    def _put_shared(self, table: TrashTable) -> None:
        numbers: dict[int, int] = {}
        same = " and ".join(f"{name} is :{name}" for name in table.unique)
        find = f"select id from {table.name} where {same}"  # noqa: S608 - our own names
        for values in self._rows(table):
            self._insert(table, values, "or ignore")
            if table.number != "id":
                continue
            row = self._connection.execute(find, values).fetchone()
            if row is None:  # its number is another's
                self._insert(table, {name: value for name, value in values.items() if name != "id"})
                row = self._connection.execute(find, values).fetchone()
            numbers[values["id"]] = row["id"]
        if table.number == "id":
            self._numbers[table.name] = numbers

    def _put_owned(self, table: TrashTable) -> None:
        shift, number = self.shift[table.name], table.number
        rows = self._rows(table)
        for first in rows:  # one statement for all
            added = (
                values | {number: values[number] + shift} if shift and number in values else values
                for values in chain([first], rows)
            )
            self._connection.executemany(write_insert(table, first), added)

    def _insert(self, table: TrashTable, values: dict[str, Any], otherwise: str = "") -> None:
        self._connection.execute(write_insert(table, values, otherwise), values)


def write_insert(table: TrashTable, names: Iterable[str], otherwise: str = "") -> str:
    names = tuple(names)
    marks = ", ".join(f":{name}" for name in names)
    return f"insert {otherwise} into {table.name} ({', '.join(names)}) values ({marks})"  # noqa: S608 - our own names


def _sweep(connection: sqlite3.Connection, database: str) -> None:
    folder = trash_path(database, "").parent
    waiting = connection.execute("select run_id from removed_runs where expires_us is not null")
    known = {trash_path(database, row["run_id"]) for row in waiting}
    for path in folder.glob("*"):
        if path not in known:
            path.unlink(missing_ok=True)


def _list_trashed_texts(connection: sqlite3.Connection, database: str) -> None:
    connection.execute("create temp table if not exists trashed_texts (id integer primary key)")
    connection.execute("delete from temp.trashed_texts")
    trashed = ((text_id,) for text_id in list_trashed_texts(database))
    connection.executemany("insert or ignore into temp.trashed_texts values (?)", trashed)


def list_trashed_texts(database: str) -> list[int]:
    ids: set[int] = set()
    for path in trash_path(database, "").parent.glob("*.db"):
        with closing(_open_trash(path)) as trash:
            for table, column in TEXTS:
                with suppress(sqlite3.OperationalError):
                    rows = trash.execute(f"select {column} from {table} where {column} is not null")  # noqa: S608 - our own names
                    ids.update(row[0] for row in rows)
    return sorted(ids)
