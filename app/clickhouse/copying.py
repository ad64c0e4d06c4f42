"""Copy a store to another place or engine, and verify the copy.

<DST>.copying/        the unverified copy; DST stays empty but for data of ClickHouse
    copy.json         progress, and the digest of the source
    board.db          a backup of the source's board, with its trash and its files of sealed runs
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from compileboard.app.clickhouse.client import SETTINGS, ClientPool
from compileboard.app.clickhouse.passes import Publisher
from compileboard.app.clickhouse.publisher import ROLLUPS, read_rollups
from compileboard.app.clickhouse.tables import make_folder, prepare_engine
from compileboard.app.core.address import ClickHouseAddress, StoreAddress
from compileboard.app.core.format import format_plural
from compileboard.collectors.store.backup import DATABASE, RUN_FILES, TRASH, write_backup
from compileboard.collectors.store.connection import (
    BOARD,
    StoreError,
    checkpoint,
    open_reader,
    open_writer,
    write_transaction,
)
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.store.pruning import vacuum
from compileboard.collectors.store.reopening import open_run_file, reopen_run
from compileboard.collectors.store.run_rows import (
    MOVED,
    RunTable,
    list_own_rows,
    read_tables,
)
from compileboard.collectors.store.sealed_files import (
    get_sealed_run,
    list_sealed_runs,
    remove_run_files,
    run_folder,
)
from compileboard.collectors.store.sealing import list_sealable, seal_run
from compileboard.collectors.store.tokens import ActionOrigin, record_action
from compileboard.collectors.store.trash import SHARED, trash_path
from compileboard.collectors.store.verification import verify

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client


_MASK = (1 << 64) - 1
# What a copy has of its own, or rebuilds.
_OWN = (
    *(
        "_sqlite_migrations",
        "publications",
        "published_runs",
        "engine_publications",
        "sealed_runs",
        "detection",
    ),
    *("search_documents", "search_runs", "search_words", "sent_texts", "payloads", *SHARED),
)
_IN_FILE = frozenset(MOVED)
_LEFT_OUT = {
    ("runs", "pub"),
    ("repros", "compile_key"),
}  # a sealed run's repros do not point to its compiles


class TableDigest(NamedTuple):
    row_count: int = 0
    checksum: int = 0

    def add(self, row_count: int, checksum: int) -> TableDigest:
        return TableDigest(self.row_count + row_count, (self.checksum + checksum) & _MASK)


class StoreDigest(NamedTuple):
    tables: dict[str, TableDigest]
    runs: dict[str, int]
    rollups: dict[str, TableDigest]


def digest_board(board: str) -> StoreDigest:
    """Raises StoreError if a sealed run's file is damaged or missing."""
    tables: dict[str, TableDigest] = {}
    runs: dict[str, int] = {}
    rollups = dict.fromkeys(ROLLUPS, TableDigest())
    with closing(open_reader(board)) as reader:
        reader.execute("begin")
        known = read_tables(reader)
        own_rows = list_own_rows(known)
        words = [name for name in known if name not in own_rows and name not in _OWN]
        rows = _RowDigests(reader, known)
        for name in words:
            tables[name] = rows.add_up(name, "1", {})
        run_ids = [row["id"] for row in reader.execute("select id from runs order by id")]
        for run_id in run_ids:
            total = 0
            for name, digest in _digest_run(reader, known, own_rows, run_id, board, rollups):
                tables[name] = tables.get(name, TableDigest()).add(*digest)
                total += digest.checksum + digest.row_count
            runs[run_id] = total & _MASK
    tables["deleted runs"] = _digest_trash(board)
    return StoreDigest(tables, runs, rollups)


def _digest_run(
    reader: sqlite3.Connection,
    known: dict[str, RunTable],
    own_rows: dict[str, str],
    run_id: str,
    board: str,
    rollups: dict[str, TableDigest],
) -> Iterator[tuple[str, TableDigest]]:
    key = {"run_id": run_id}
    names = [name for name in own_rows if name not in _OWN]
    sealed = get_sealed_run(reader, run_id)
    here = _RowDigests(reader, known)
    if sealed is None:
        _add_rollups(reader, run_id, rollups)
        yield from ((name, here.add_up(name, own_rows[name], key)) for name in names)
        return
    yield from (
        (name, here.add_up(name, own_rows[name], key)) for name in names if name not in _IN_FILE
    )
    with open_run_file(board, sealed.file) as file:
        _add_rollups(file, run_id, rollups)
        there = _RowDigests(file, known)
        yield from (
            (name, there.add_up(name, own_rows[name], key)) for name in names if name in _IN_FILE
        )


class _RowDigests:
    def __init__(self, connection: sqlite3.Connection, tables: dict[str, RunTable]) -> None:
        self._cursor = connection.cursor()
        self._cursor.row_factory = None
        self._connection = connection
        self._tables = tables
        self._pointed: dict[tuple[str, Any], bytes] = {}

    def add_up(self, name: str, where: str, values: dict[str, str]) -> TableDigest:
        table = self._tables[name]
        columns = [
            column
            for column in table.columns
            if (name, column) not in _LEFT_OUT and not (column == "id" and _is_numbered(table))
        ]
        pointing = {
            column: parent
            for column, (parent, key, _cascades) in table.parents.items()
            if key == "id" and _is_numbered(self._tables[parent])
        }
        count = total = 0
        cursor = self._connection.cursor()
        cursor.row_factory = None
        for row in cursor.execute(f"select {', '.join(columns)} from {name} where {where}", values):  # noqa: S608 - our own names
            content = [
                self._digest_reference(pointing[column], value)
                if column in pointing and value is not None
                else value
                for column, value in zip(columns, row)
            ]
            count += 1
            total += int.from_bytes(_digest_row(name, content), "big")
        return TableDigest(count, total & _MASK)

    def _digest_reference(self, name: str, number: Any) -> bytes:
        chain: list[tuple[Any, list[Any], int]] = []
        table = self._tables[name]
        columns = _CONTENT.get(name, table.unique)
        while (name, number) not in self._pointed:
            sql = f"select {', '.join(columns)} from {name} where id = ?"  # noqa: S608 - our own names
            row = self._cursor.execute(sql, (number,)).fetchone()
            values = list(row) if row else [b"no such row"]
            own = columns.index("parent_id") if row and "parent_id" in columns else -1
            for position, column in enumerate(columns if row else ()):
                parent = table.parents.get(column)
                if (
                    parent
                    and parent[0] != name
                    and parent[1] == "id"
                    and _is_numbered(self._tables[parent[0]])
                ):
                    values[position] = self._digest_reference(parent[0], values[position])
            chain.append((number, values, own))
            if own < 0 or values[own] is None:
                break
            number = values[own]
        for number, values, own in reversed(chain):  # outermost first, to avoid deep recursion
            if own >= 0 and values[own] is not None:
                values[own] = self._pointed[name, values[own]]
            self._pointed[name, number] = _digest_row(name, values)
        return self._pointed[name, chain[0][0] if chain else number]


# For tables without unique columns in the schema: an index of an expression, or a text by its
# content.
_CONTENT = {"stack_nodes": ("run_id", "parent_id", "file", "line", "name")}


def _is_numbered(table: RunTable) -> bool:
    return table.has_id and (table.name in _IN_FILE or table.name in ("payloads", "span_names"))


def _digest_row(name: str, values: Iterable[Any]) -> bytes:
    digest = blake2b(name.encode(), digest_size=8)
    for value in values:
        digest.update(_dump_value(value))
    return digest.digest()


def _dump_value(value: Any) -> bytes:
    if value is None:
        return b"n"
    if isinstance(value, int):
        return b"i%d;" % value
    if isinstance(value, float):
        return b"f" + struct.pack(">d", value)
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return b"%s%d:%s" % (b"b" if isinstance(value, bytes) else b"t", len(data), data)


def _digest_trash(board: str) -> TableDigest:
    digest = TableDigest()
    folder = trash_path(board, "").parent
    for path in sorted(folder.glob("*.db")) if folder.is_dir() else ():
        digest = digest.add(1, int.from_bytes(_digest_row(path.name, [path.read_bytes()]), "big"))
    return digest


def _add_rollups(
    connection: sqlite3.Connection, run_id: str, rollups: dict[str, TableDigest]
) -> None:
    for table, rows in read_rollups(connection, run_id)[0].items():
        total = sum(
            zlib.crc32("\x1f".join(map(_format_digest, (run_id, *row))).encode("utf-8", "replace"))
            for row in rows
        )
        rollups[table] = rollups[table].add(len(rows), total)


def _format_digest(value: Any) -> str:
    if value is None:
        return "\\N"
    return (
        str(struct.unpack("<Q", struct.pack("<d", value))[0])
        if isinstance(value, float)
        else str(value)
    )


def digest_engine(client: Client) -> dict[str, TableDigest]:
    digests = {}
    types = dict[tuple[str, str], str]()
    sql = "select table, name, type from system.columns where database = currentDatabase()"
    for table, name, kind in client.query(sql).result_rows:
        types[table, name] = kind
    for table, names in ROLLUPS.items():
        texts = []
        for name in ("run_id", *names):
            is_float = "Float64" in types[table, name]
            text = (
                f"toString(reinterpretAsUInt64(assumeNotNull({name})))"
                if is_float
                else f"toString({name})"
            )
            texts.append(f"if({name} is null, '\\\\N', {text})")
        sql = (
            "select count(), sum(toUInt64(CRC32(concatWithSeparator('\x1f', "  # noqa: S608 - our own names
            f"{', '.join(texts)})))) from {table}"
        )
        ((count, total),) = client.query(sql, settings=SETTINGS).result_rows
        digests[table] = TableDigest(count, (total or 0) & _MASK)
    return digests


def list_digest_differences(expected: StoreDigest, actual: StoreDigest) -> Iterator[str]:
    for name in sorted(expected.tables.keys() | actual.tables.keys()):
        before, after = (
            expected.tables.get(name, TableDigest()),
            actual.tables.get(name, TableDigest()),
        )
        if before != after:
            counts = f"{before.row_count:,} rows → {after.row_count:,}"
            yield f"{name}: {'other rows' if before.row_count == after.row_count else counts}"
    changed = [
        run_id for run_id in expected.runs if expected.runs[run_id] != actual.runs.get(run_id)
    ]
    yield from (f"run {run_id}: its rows differ" for run_id in changed[:20])
    yield from (
        f"run {run_id}: not in the first"
        for run_id in sorted(actual.runs.keys() - expected.runs.keys())[:20]
    )


_STATE, _SNAPSHOT = "copy.json", "snapshot"
_AT_ONCE = 1000
Say = Callable[[str], None]


class CopyError(StoreError):
    """A store cannot be copied, or the copy differs."""


@dataclass(frozen=True)
class StoreComparison:
    source: StoreDigest
    target: StoreDigest
    differences: list[str]


def copy_store(
    source: StoreAddress,
    target: StoreAddress,
    *,
    password: str,
    program_version: str,
    origin: ActionOrigin,
    resume: bool = False,
    say: Say = lambda line: None,
) -> StoreComparison:
    """Copy a store to an empty place, and compare the two.

    Raises StoreError, or CopyError if something differs; the copy is then kept for `resume`.
    """
    work = _find_work_folder(target)
    with _open_work_folder(work, source, target, resume) as state:
        board = str(work / BOARD)
        if "digest" not in state:
            try:
                _snapshot_source(source, work, program_version, say)
                say("adding up what was copied")
                state["digest"] = digest_board(board)
            except BaseException:
                shutil.rmtree(work, ignore_errors=True)  # nothing to resume
                raise
            _save_state(work, state)
        expected = _read_digest(state["digest"])
        if target.clickhouse is None:
            _reopen_all(board, say)
        else:
            _publish_all(work, state, board, target.clickhouse, password, say)
            _seal_all(board, say)
        comparison = _compare_copy(expected, board, target.clickhouse, password, say)
        problems = [*comparison.differences, *_list_problems(board, say)]
        if problems:
            raise CopyError(
                f"{work} is not what was copied, and stays there: {problems[0]} (of "
                f"{len(problems)})"
            )
        with closing(open_writer(board, create=False)) as writer:
            record_action(
                writer, "database.copy", os.path.basename(source.folder or source.board), origin
            )
            checkpoint(writer)
        _move_copy(work, target)
    return comparison


def compare_stores(
    source: StoreAddress, target: StoreAddress, password: str, say: Say
) -> StoreComparison:
    say("adding up the first")
    return _compare_copy(digest_board(source.board), target.board, target.clickhouse, password, say)


def _find_work_folder(target: StoreAddress) -> Path:
    root = Path(os.path.abspath(target.folder or target.board))
    if os.path.lexists(target.board):
        raise CopyError(f"{target.board} is there already; a copy needs a new place.")
    if not root.parent.is_dir():
        raise CopyError(f"there is no folder {root.parent}; make it first.")
    return root.with_name(f"{root.name}.copying")


@contextmanager
def _open_work_folder(
    work: Path, source: StoreAddress, target: StoreAddress, resume: bool
) -> Iterator[dict[str, Any]]:
    names = {"source": os.path.abspath(source.board), "target": os.path.abspath(target.board)}
    try:
        known = json.loads((work / _STATE).read_text(encoding="utf-8")) if work.exists() else None
    except (OSError, ValueError):
        known = {}
    if known is not None and not resume:
        raise CopyError(
            f"{work} is of a copy that stopped: --resume goes on with it, or remove it."
        )
    if known and {name: known.get(name) for name in names} != names:
        raise CopyError(
            f"{work} is of another copy ({known.get('source')} to {known.get('target')}); "
            "remove it."
        )
    try:
        work.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise CopyError(f"{work} cannot be made ({error.strerror}).") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        state = known or names
        _save_state(work, state)
        yield state
    except BlockingIOError:
        raise CopyError(f"another copy is at work in {work}; wait for it.") from None
    except OSError as error:
        raise CopyError(
            f"{error.filename or work} cannot be written ({error.strerror}); --resume goes on."
        ) from error
    finally:
        os.close(descriptor)


def _save_state(work: Path, state: dict[str, Any]) -> None:
    new = work / f"{_STATE}.new"
    new.write_text(json.dumps(state), encoding="utf-8")
    new.replace(work / _STATE)


def _read_digest(values: Any) -> StoreDigest:
    tables, runs, rollups = values
    return StoreDigest(
        {name: TableDigest(*digest) for name, digest in tables.items()},
        dict(runs),
        {name: TableDigest(*digest) for name, digest in rollups.items()},
    )


def _snapshot_source(source: StoreAddress, work: Path, program_version: str, say: Say) -> None:
    for left in work.iterdir():
        if left.name != _STATE:
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    say(f"copying {source.board}")
    snapshot, board = work / _SNAPSHOT, work / BOARD
    problems: list[str] = []
    write_backup(source.board, str(snapshot), program_version=program_version, problems=problems)
    if problems:
        for problem in problems:
            say(problem)
        raise CopyError(
            f"{source.board} lacks files of {format_plural(len(problems), 'run')}, so nothing "
            "was copied. Put them "
            "back from a backup: `compileboard restore BACKUP --run-files`."
        )
    (snapshot / TRASH).replace(trash_path(str(board), "").parent)
    if (snapshot / RUN_FILES).is_dir():
        (snapshot / RUN_FILES).replace(run_folder(str(board)))
    (snapshot / DATABASE).replace(board)
    shutil.rmtree(snapshot)
    migrate(board)
    with closing(open_writer(board, create=False)) as writer, write_transaction(writer):
        # Belongs to the engine it came from: its progress of detection is numbered by it.
        for table in ("published_runs", "engine_publications", "detection"):
            writer.execute(f"delete from {table}")  # noqa: S608 - our own names


def _reopen_all(board: str, say: Say) -> None:
    with closing(open_writer(board, create=False)) as writer:
        sealed = list_sealed_runs(writer)
        for position, run in enumerate(sealed, 1):
            with write_transaction(writer):
                reopen_run(writer, run.run_id)
            say(f"run {position:,} of {len(sealed):,} is in the file again")
        checkpoint(writer)
        for run in sealed:
            remove_run_files(board, run.run_id)


def _publish_all(
    work: Path,
    state: dict[str, Any],
    board: str,
    address: ClickHouseAddress,
    password: str,
    say: Say,
) -> None:
    if address.host is None:
        make_folder(os.path.dirname(address.path))
    prepare_engine(address, password)
    clients = ClientPool(address, password)
    with closing(clients):
        with clients.borrow() as client:
            if (
                "engine" not in state
                and client.query("select count() from boards").result_rows[0][0]
            ):
                raise CopyError(
                    f"{address.label} has the runs of another dashboard; name an empty database."
                )
        state["engine"] = address.label
        _save_state(work, state)
        publisher = Publisher(clients)
        with closing(open_writer(board, create=False)) as writer:
            say("publishing runs")
            while True:
                outcome = publisher.run_pass(writer, time.time_ns() // 1000, everything=True)
                if outcome.refused:
                    raise CopyError(f"not every run can be published: {outcome.refused[0]}")
                if not (outcome.whole_count or outcome.row_count or outcome.removed_count):
                    return
                say(f"published {outcome.whole_count:,} runs")


def _seal_all(board: str, say: Say) -> None:
    with closing(open_writer(board, create=False)) as writer:
        count = 0
        while run_ids := list_sealable(writer, time.time_ns() // 1000, _AT_ONCE, quiet_us=0):
            for run_id in run_ids:
                seal_run(writer, run_id, quiet_us=0)
                count += 1
            say(f"sealed {count:,} runs")
        if count:
            vacuum(writer)


def _compare_copy(
    expected: StoreDigest, board: str, address: ClickHouseAddress | None, password: str, say: Say
) -> StoreComparison:
    say("comparing")
    actual = digest_board(board)
    differences = list(list_digest_differences(expected, actual))
    if address is not None:
        clients = ClientPool(address, password)
        with closing(clients), clients.borrow() as client:
            for table, digest in digest_engine(client).items():
                if digest != expected.rollups[table]:
                    rows = f"{expected.rollups[table].row_count:,} rows → {digest.row_count:,}"
                    differences.append(f"{table} in {address.label}: {rows}, or other values")
    return StoreComparison(expected, actual, differences)


def _list_problems(board: str, say: Say) -> list[str]:
    say("verifying texts and files")
    return [
        f"{check.subject}: {problem}"
        for check in verify(board, texts=True)
        for problem in check.problems
    ]


def _move_copy(work: Path, target: StoreAddress) -> None:
    board, database = work / BOARD, os.path.abspath(target.board)
    if target.folder is not None:
        make_folder(target.folder)
        if run_folder(str(board)).is_dir():
            run_folder(str(board)).replace(run_folder(database))
    trash = trash_path(str(board), "").parent
    if trash.is_dir():
        trash.replace(trash_path(database, "").parent)
    with closing(sqlite3.connect(board, isolation_level=None)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    os.replace(board, database)
    shutil.rmtree(work)
