"""Bundles: runs as one portable database with their texts, results and source.

A bundle is an ordinary database without side files: it can be served or merged. Its sender is not
trusted, so only our exact schema and texts of bounded size are accepted.
"""

from __future__ import annotations

import heapq
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from compileboard.collectors.contract.fingerprints import config_hash, content_id
from compileboard.collectors.contract.values import MAX_EXACT_INTEGER
from compileboard.collectors.store.bundle_values import find_odd_columns, remove_invalid_values
from compileboard.collectors.store.codec import measure_unpacked, unpack_bytes
from compileboard.collectors.store.connection import (
    APPLICATION_ID,
    DATABASE_VERSION,
    NotAStore,
    StoreError,
    StoreNotReadable,
    StoreTooNew,
    checkpoint,
    describe_foreign_file,
    explain,
    has_row,
    open_immutable,
    open_writer,
    read_value,
    write_transaction,
)
from compileboard.collectors.store.ingest.rows import SERIES
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.reopening import open_run_file, reopen_run
from compileboard.collectors.store.repros import ADD_RESULT
from compileboard.collectors.store.run_rows import (
    MOVED,
    RowCopy,
    delete_rows,
    list_own_rows,
    read_tables,
)
from compileboard.collectors.store.runs import (
    THIS_MACHINE,
    RunSender,
    claim_run,
    is_of_other_run,
    may_add,
    publish_run,
)
from compileboard.collectors.store.sealed_files import get_sealed_run, has_sealed_runs
from compileboard.collectors.store.search import index_run
from compileboard.collectors.store.trash import database_path
from compileboard.collectors.wire.lines import digest_of

_RUN = "run_id = :run_id"
# Not what its import adds: its end
_OF_PROCESS = "process_id in (select id from processes where run_id = :run_id)"
# What a run's recording consists of, in the order of its keys. The last column grows: a log that is
# read further, a text that was left out at first, a model that is measured again.
RECORDED = tuple(
    f"select {keys}, {state} from {table} where {where} order by {keys}"  # noqa: S608 - our own names
    for table, keys, state, where in (
        ("processes", "id", "0", _RUN),
        ("events", "process_id, sequence", "0", _OF_PROCESS),
        ("artifacts", "process_id, sequence", "state = 'kept'", _OF_PROCESS),
        ("logs", "process_id", "end_offset_bytes", _RUN),
        ("logs", "process_id", "not redacted", _RUN),
        ("trace_files", "name", "size_bytes", _RUN),
        ("trace_pieces", "name, position", "0", _RUN),
        ("result_files", "content_hash", "0", _RUN),
        ("results", "series_id, experiment", "time_us", _RUN),
        ("repros", "id", "0", _RUN),
    )
)
_REPLACED = (
    "processes",
    "run_rejects",
    "result_files",
    "run_source_excerpts",
    "run_totals",
    "repros",
)
_WITH_THEM = ("process_configs", "logs", "log_rejects", "repro_storages", "repro_results")
_ENDS = (
    "state",
    "ended_us",
    "heartbeat_us",
    "exit_code",
    "signal",
)  # Columns of the run that the longer recording replaces.


class RunGrowth(NamedTuple):
    state: str  # known | grown | apart
    event_count: int


_CONTENTS = f"""
select
  (select count(*) from processes where {_RUN}) as process_count,
  (select count(*) from events where {_OF_PROCESS}) as event_count,
  (select count(*) from artifacts where {_RUN} and state = 'kept') as kept_text_count,
  (select coalesce(sum(end_offset_bytes), 0) from logs where {_RUN}) as log_bytes,
  (select count(*) from result_files where {_RUN}) as result_file_count,
  (select count(*) from results where {_RUN}) as result_count,
  (select coalesce(max(time_us), 0) from results where {_RUN}) as newest_result_us,
  (select count(*) from repros where {_RUN}) as repro_count,
  (select count(*) from trials where {_RUN}) as trial_count
from runs
where id = :run_id
"""  # noqa: S608 - our own names


def count_contents(reader: sqlite3.Connection, run_id: str) -> dict[str, int] | None:
    """Count the stored parts of a run's recording by name; None if there is no such run."""
    row = reader.execute(_CONTENTS, {"run_id": run_id}).fetchone()
    return dict(row) if row else None


def find_growth(
    connection: sqlite3.Connection, bundle: sqlite3.Connection, run_id: str
) -> RunGrowth:
    """Return `known` if a bundle has no more of a run than the database, `grown` if it has
    everything and more.

    Returns `apart` if each lacks something, or the run is pruned or being recorded. Raises
    StoreError if a sealed run's file is damaged or missing.
    """
    key = {"run_id": run_id}
    with _open_detail(connection, run_id) as detail:
        has_more_here = has_more_there = False
        for statement in RECORDED:
            here, there = _compare(detail.execute(statement, key), bundle.execute(statement, key))
            has_more_here, has_more_there = has_more_here or here, has_more_there or there
        event_count = read_value(detail, f"select count(*) from events where {_RUN}", key)  # noqa: S608 - our own names
    trials = {row[0] for row in bundle.execute(f"select id from trials where {_RUN}", key)}  # noqa: S608 - our own names
    has_more_there |= not trials <= {row[0] for row in connection.execute("select id from trials")}
    if not has_more_there:
        return RunGrowth("known", event_count)
    is_fixed = has_row(
        connection,
        """
        select 1
        from runs
        where id = :run_id
          and (state = 'running' or exists (select 1 from pruned_runs where run_id = :run_id))
        """,
        key,
    )
    return RunGrowth("apart" if has_more_here or is_fixed else "grown", event_count)


@contextmanager
def _open_detail(connection: sqlite3.Connection, run_id: str) -> Iterator[sqlite3.Connection]:
    sealed = get_sealed_run(connection, run_id)
    if sealed is None:
        yield connection
        return
    with open_run_file(database_path(connection), sealed.file) as file:
        yield file


def _compare(here: Iterable[Sequence[Any]], there: Iterable[Sequence[Any]]) -> tuple[bool, bool]:
    """Return whether either has a key that the other lacks, or a greater state of one.

    Rows are a key and a state, in the order of their keys.
    """
    has_more_here = has_more_there = False
    rows = heapq.merge(
        (((*key,), "here", state) for *key, state in here),
        (((*key,), "there", state) for *key, state in there),
    )
    for _key, of_key in groupby(rows, key=itemgetter(0)):
        states = {side: state for _, side, state in of_key}
        ours, theirs = states.get("here", -1), states.get("there", -1)
        has_more_here |= ours > theirs
        has_more_there |= ours < theirs
    return has_more_here, has_more_there


def grow_run(
    connection: sqlite3.Connection,
    bundle: sqlite3.Connection,
    run_id: str,
    present: Collection[str],
) -> None:
    """Replace a run's rows by the bundle's, in the caller's transaction.

    Links to runs that are not `present` are dropped. User notes, the name and answers about repros
    are kept. The run must be indexed again for search.
    """
    key = {"run_id": run_id}
    connection.execute(
        "delete from sealed_runs where run_id = :run_id", key
    )  # the bundle has all that its file has
    answers = connection.execute(
        (
            "select * from repro_results where repro_id in (select id from repros where run_id = "
            ":run_id)"
        ),
        key,
    ).fetchall()
    delete_rows(connection, run_id, (*MOVED, *_REPLACED))
    RowCopy(bundle, connection, run_id, {*MOVED, *_REPLACED, *_WITH_THEM}).run()
    connection.executemany(ADD_RESULT, [dict(answer) for answer in answers])
    _update_run(connection, bundle, key, present)
    connection.execute("delete from search_runs where run_id = :run_id", key)


def _update_run(
    connection: sqlite3.Connection,
    bundle: sqlite3.Connection,
    key: dict[str, str],
    present: Collection[str],
) -> None:
    run = dict(bundle.execute("select * from runs where id = :run_id", key).fetchone())
    columns = [name for name in run if name not in ("id", "pub")]
    changes = [
        f"{name} = :{name}" if name in _ENDS else f"{name} = coalesce({name}, :{name})"
        for name in columns
    ]
    connection.execute(f"update runs set {', '.join(changes)} where id = :id", run)  # noqa: S608 - our own names
    RowCopy(
        bundle, connection, key["run_id"], ("run_tags", "trials"), present=present, adds=True
    ).run()


MAGIC = b"SQLite format 3\0"
MAX_TEXT_BYTES = 256 << 20  # The size of one text; a trace record has at most 64 MiB.
# The columns that make the id of a thing that runs share.
_IDENTITIES = {
    "function": "file, name from functions",
    "break": "fingerprint from distinct_breaks",
    "series": f"{', '.join(SERIES)} from series",
    "cause": "fingerprint from recompile_causes",
    "rerecording": "fingerprint from rerecording_reasons",
    "issue": "fingerprint from failure_issues",
    "source": "file, first_line, text from source_excerpts",
}
_OF_CONTENT = (
    "functions",
    "distinct_breaks",
    "series",
    "recompile_causes",
    "rerecording_reasons",
    "failure_issues",
    "source_excerpts",
    "repros",
)
# Where a table has compressed texts.
PACKED = (("payloads", "body"), ("events", "body"), ("configs", "body"), ("repros", "manifest"))


@dataclass(frozen=True)
class MergedRun:
    run_id: str
    name: str
    state: str  # new | grown | known | apart | foreign | deleted
    record_count: int


def write_bundle(
    reader: sqlite3.Connection, run_ids: Sequence[str], path: str, *, page_bytes: int | None = None
) -> None:
    """Write runs, including sealed ones, into a new file, atomically.

    Raises StoreError, or OSError if it cannot be written.
    """
    target = os.path.realpath(path)
    if os.path.isdir(target):
        raise IsADirectoryError(0, "it is a folder; give a file's name")
    with tempfile.TemporaryDirectory(prefix=".bundle.", dir=os.path.dirname(target)) as folder:
        new = os.path.join(folder, "bundle.db")
        Path(new).write_bytes(_make_empty())
        with closing(open_writer(new)) as writer:
            with write_transaction(writer):
                for run_id in sorted(set(run_ids)):
                    RowCopy(reader, writer, run_id, present=run_ids).run()
                    reopen_run(writer, run_id, database_path(reader))
                    publish_run(writer, run_id)
                _copy_commits(reader, writer)
            for run_id in sorted(set(run_ids)):
                index_run(writer, run_id)
            checkpoint(writer)
            writer.execute("pragma journal_mode = delete")
            if page_bytes is not None:
                writer.execute(f"pragma page_size = {page_bytes:d}")
            writer.execute("vacuum")
        os.replace(new, target)


@cache
def _make_empty() -> bytes:
    with tempfile.TemporaryDirectory(prefix="compileboard-bundle-") as folder:
        path = Path(folder, "empty.db")
        with closing(open_writer(path)) as writer:
            migrate_connection(writer)
            writer.execute("update _sqlite_migrations set applied_at = ''")
            checkpoint(writer)
            writer.execute("pragma journal_mode = delete")
        return path.read_bytes()


def _copy_commits(reader: sqlite3.Connection, writer: sqlite3.Connection) -> None:
    for (commit,) in writer.execute(
        "select distinct git_commit from runs where git_commit is not null"
    ).fetchall():
        rows = reader.execute(
            "select hash, parent_hash, time_us, author, subject from commits where hash = ?",
            (commit,),
        )
        writer.executemany("insert or ignore into commits values (?, ?, ?, ?, ?)", map(tuple, rows))


def is_bundle(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def merge_bundle(
    connection: sqlite3.Connection,
    path: str,
    *,
    label: str | None = None,
    again: bool = False,
    max_bytes: int | None = None,
    sender: RunSender = THIS_MACHINE,
) -> Iterator[MergedRun]:
    """Add a bundle's runs under their ids, each in one transaction.

    An existing run is replaced only if the bundle has more of it. A run deleted here is skipped
    unless `again`. `max_bytes` limits the size of all unpacked texts; `label` is the file's
    display name. A run of another sender, or one that shares a process with another run, is
    reported as `foreign`. Raises NotAStore, StoreTooNew or StoreError.
    """
    count_events = "select count(*) from events where run_id = ?"
    name = label or os.path.basename(path)
    with _open_checked(path, name, max_bytes) as bundle:
        runs = bundle.execute("select id, name from runs order by started_us, id").fetchall()
        if not runs:
            raise NotAStore(f"{name} is a CompileBoard database without runs; expected a bundle.")
        for run_id, run_name in runs:
            with write_transaction(connection):
                state, known_count = _find_state(
                    connection, bundle, run_id, again=again, sender=sender
                )
                count = 0
                if state in ("new", "grown"):
                    claim_run(connection, run_id, sender)
                    present = [row[0] for row in connection.execute("select id from runs")]
                    present = [
                        run_id,
                        *(
                            other_id
                            for other_id in present
                            if may_add(connection, other_id, sender)
                        ),
                    ]
                    if state == "new":
                        RowCopy(bundle, connection, run_id, present=present).run()
                    else:
                        grow_run(connection, bundle, run_id, present)
                    publish_run(connection, run_id)
                    _copy_commits(bundle, connection)
                    connection.execute("delete from removed_runs where run_id = ?", (run_id,))
                    count = int(read_value(bundle, count_events, (run_id,))) - known_count
            yield MergedRun(run_id, run_name, state, count)
    checkpoint(connection)


def _find_state(
    connection: sqlite3.Connection,
    bundle: sqlite3.Connection,
    run_id: str,
    *,
    again: bool,
    sender: RunSender,
) -> RunGrowth:
    if not may_add(connection, run_id, sender) or _has_process_of_other_run(
        connection, bundle, run_id
    ):
        return RunGrowth("foreign", 0)
    if has_row(connection, "select 1 from runs where id = ?", (run_id,)):
        return find_growth(connection, bundle, run_id)
    is_deleted = has_row(connection, "select 1 from removed_runs where run_id = ?", (run_id,))
    return RunGrowth("deleted" if is_deleted and not again else "new", 0)


def _has_process_of_other_run(
    connection: sqlite3.Connection, bundle: sqlite3.Connection, run_id: str
) -> bool:
    tables = read_tables(bundle)
    columns = {"processes": "id"} | {
        name: "process_id" for name, table in tables.items() if "process_id" in table.columns
    }
    process_ids: set[str] = set()
    for name, where in list_own_rows(tables).items():
        if name in columns:
            statement = f"select distinct {columns[name]} from {name} where {where}"  # noqa: S608 - our own names
            process_ids.update(row[0] for row in bundle.execute(statement, {"run_id": run_id}))
    return any(is_of_other_run(connection, run_id, process_id) for process_id in process_ids)


@contextmanager
def _open_checked(path: str, name: str, max_bytes: int | None) -> Iterator[sqlite3.Connection]:
    """Open a bundle for reading after checking that it is harmless.

    An older version is migrated in a copy, and invalid values are removed from a copy.
    """
    with tempfile.TemporaryDirectory(prefix="compileboard-bundle-") as folder:
        try:
            with closing(_open_foreign(path)) as bundle:
                version = _check_kind(bundle, name)
            copy = os.path.join(folder, "bundle.db")
            if version < DATABASE_VERSION:
                shutil.copyfile(path, copy)
                with _open_copy(copy) as writer:
                    migrate_connection(writer)
                path = copy
            with closing(_open_foreign(path)) as bundle:
                _check_content(bundle, name, max_bytes)
                odd = find_odd_columns(bundle)
            if odd:
                if path != copy:
                    shutil.copyfile(path, copy)
                with _open_copy(copy) as writer, write_transaction(writer):
                    remove_invalid_values(writer, odd)
                path = copy
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise _explain(error, name) from error
        with closing(_open_foreign(path)) as bundle:
            try:
                yield bundle
            except sqlite3.DataError as error:
                raise _explain(error, name) from error


@contextmanager
def _open_copy(path: str) -> Iterator[sqlite3.Connection]:
    """Open a copy for writing. Its write-ahead log is removed at the end."""
    with closing(open_writer(path)) as writer:
        yield writer
        writer.execute("pragma journal_mode = delete")


def _explain(error: sqlite3.Error | UnicodeDecodeError, name: str) -> StoreError:
    if isinstance(error, sqlite3.DataError):
        return NotAStore(f"{name} has a text of {MAX_TEXT_BYTES:,} bytes or more; it is refused.")
    refusal = explain(error, name)
    return NotAStore(_damaged(name)) if isinstance(refusal, StoreNotReadable) else refusal


def _damaged(name: str) -> str:
    return f"{name} is damaged or cut off; send it again, or export it anew."


def _open_foreign(path: str) -> sqlite3.Connection:
    bundle = open_immutable(path)
    for pragma in ("trusted_schema = off", "cell_size_check = on", "query_only = on"):
        bundle.execute(f"pragma {pragma}")
    if hasattr(bundle, "setlimit"):  # from Python 3.11 on
        bundle.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT_BYTES)
    return bundle


def _check_kind(bundle: sqlite3.Connection, name: str) -> int:
    application_id = read_value(bundle, "pragma application_id")
    if application_id != APPLICATION_ID:
        raise NotAStore(describe_foreign_file(name, application_id))
    version = int(read_value(bundle, "pragma user_version"))
    if version > DATABASE_VERSION:
        raise StoreTooNew(
            f"{name} has database version {version}; this CompileBoard knows versions up to "
            f"{DATABASE_VERSION}. "
            "Upgrade CompileBoard."
        )
    odd = bundle.execute(
        "select type, name from sqlite_schema where type in ('trigger', 'view') limit 1"
    ).fetchone()
    if odd is not None:
        raise NotAStore(
            f"{name} has a {odd['type']}, which no bundle of CompileBoard has; it is refused."
        )
    return version


def _check_content(bundle: sqlite3.Connection, name: str, max_bytes: int | None) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        fresh.row_factory = sqlite3.Row
        migrate_connection(fresh)
        ours = _read_schema(fresh)
    other = sorted(set(_read_schema(bundle)).symmetric_difference(ours))
    if other:
        raise NotAStore(
            f"{name} differs from a CompileBoard database in {other[0][1][:80]!r}; it is refused."
        )
    if has_sealed_runs(bundle):
        raise NotAStore(
            f"{name} has runs whose detail is in other files; it is refused. Export a bundle "
            "of them."
        )
    state = read_value(bundle, "pragma quick_check(1)")
    if state != "ok" or has_row(bundle, "pragma foreign_key_check"):
        raise NotAStore(_damaged(name))
    _check_ids(bundle, name)
    total_bytes = 0
    for table, column in PACKED:
        for (body,) in bundle.execute(f"select {column} from {table}"):  # noqa: S608 - our own names
            size_bytes = measure_unpacked(body, MAX_TEXT_BYTES)
            total_bytes += size_bytes
            if size_bytes >= MAX_TEXT_BYTES:
                raise NotAStore(
                    f"{name} has a text of {MAX_TEXT_BYTES:,} bytes or more; it is refused."
                )
            if max_bytes is not None and total_bytes > max_bytes:
                raise NotAStore(
                    f"{name} has more than {max_bytes:,} bytes of texts, the limit (--limit-bytes)."
                )
    for table, key, hash_body in (
        ("payloads", "lower(hex(digest))", digest_of),
        ("configs", "hash", _hash_config),
    ):
        for digest, body in bundle.execute(f"select {key}, body from {table}"):  # noqa: S608 - our own names
            try:
                is_its_text = hash_body(unpack_bytes(body)) == digest
            except ValueError:  # damaged
                is_its_text = False
            if not is_its_text:
                raise NotAStore(f"{name} has a text that is not that of its digest; it is refused.")


def _hash_config(body: bytes) -> str:
    return config_hash(body.decode("utf-8", "surrogatepass"))


def _check_ids(bundle: sqlite3.Connection, name: str) -> None:
    """Check that ids of shared rows match their content, since other runs refer to them too.

    Other ids are SQLite's row numbers, which must leave room for later rows. Raises NotAStore for
    an id that is not so.
    """
    for table in read_tables(bundle).values():
        if table.has_id and table.name not in _OF_CONTENT:
            least, most = bundle.execute(f"select min(id), max(id) from {table.name}").fetchone()  # noqa: S608 - our own names
            if least is not None and not 0 <= least <= most <= MAX_EXACT_INTEGER:
                raise NotAStore(
                    f"{name} has a row of {table.name} with an impossible id; it is refused."
                )
    for kind, columns in _IDENTITIES.items():
        for row_id, *content in bundle.execute(f"select id, {columns}"):
            if row_id != content_id(kind, *content):
                raise NotAStore(f"{name} has a {kind} under the id of another one; it is refused.")


def _read_schema(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    rows = connection.execute("select type, name, coalesce(sql, '') from sqlite_schema")
    return [(kind, name, " ".join(sql.split())) for kind, name, sql in rows]
