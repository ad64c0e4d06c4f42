"""Digests of a store's content, the same wherever its rows are and whatever their ids.

Each table has a count and a sum over its rows, independent of order. A database's own numbers,
publications and search index are left out.
"""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from compileboard.app.engines.client import SETTINGS
from compileboard.app.engines.publication.snapshot import ROLLUPS, read_rollups
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.store.dashboard.trash import (
    SHARED,
    TrashTable,
    list_own_rows,
    read_tables,
    trash_path,
)
from compileboard.collectors.store.sealed.files import open_workplace
from compileboard.collectors.store.sealed.reopening import unpack_current
from compileboard.collectors.store.sealed.rows import DETAIL, get_sealed_run
from compileboard.collectors.store.sealed.rows import ROLLUPS as SEALED_ROLLUPS

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_MASK = (1 << 64) - 1
# What a copy has of its own, or has to make anew.
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
_IN_FILE = frozenset((*DETAIL, *SEALED_ROLLUPS))
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
    known: dict[str, TrashTable],
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
    with open_workplace(board) as folder:
        path = folder / "run.db"
        unpack_current(board, sealed.file, path)
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as file:
            file.row_factory = sqlite3.Row
            _add_rollups(file, run_id, rollups)
            there = _RowDigests(file, known)
            yield from (
                (name, there.add_up(name, own_rows[name], key))
                for name in names
                if name in _IN_FILE
            )


class _RowDigests:
    def __init__(self, connection: sqlite3.Connection, tables: dict[str, TrashTable]) -> None:
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
            if (name, column) not in _LEFT_OUT
            and column != "rowid"
            and not (column == "id" and _is_numbered(table))
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
                self._point(pointing[column], value)
                if column in pointing and value is not None
                else value
                for column, value in zip(columns, row)
            ]
            count += 1
            total += int.from_bytes(_digest(name, content), "big")
        return TableDigest(count, total & _MASK)

    def _point(self, name: str, number: Any) -> bytes:
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
                    values[position] = self._point(parent[0], values[position])
            chain.append((number, values, own))
            if own < 0 or values[own] is None:
                break
            number = values[own]
        for number, values, own in reversed(
            chain
        ):  # the outermost first: recursion would be as deep as a stack
            if own >= 0 and values[own] is not None:
                values[own] = self._pointed[name, values[own]]
            self._pointed[name, number] = _digest(name, values)
        return self._pointed[name, chain[0][0] if chain else number]


# Where the schema's unique columns do not say it: an index of an expression, or a text by what it
# is.
_CONTENT = {"stack_nodes": ("run_id", "parent_id", "file", "line", "name")}


def _is_numbered(table: TrashTable) -> bool:
    return table.number == "id" and (
        table.name in _IN_FILE or table.name in ("payloads", "span_names")
    )


def _digest(name: str, values: Iterable[Any]) -> bytes:
    digest = blake2b(name.encode(), digest_size=8)
    for value in values:
        digest.update(_dump(value))
    return digest.digest()


def _dump(value: Any) -> bytes:
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
        digest = digest.add(1, int.from_bytes(_digest(path.name, [path.read_bytes()]), "big"))
    return digest


def _add_rollups(
    connection: sqlite3.Connection, run_id: str, rollups: dict[str, TableDigest]
) -> None:
    for table, rows in read_rollups(connection, run_id)[0].items():
        total = sum(
            zlib.crc32("\x1f".join(map(_write, (run_id, *row))).encode("utf-8", "replace"))
            for row in rows
        )
        rollups[table] = rollups[table].add(len(rows), total)


def _write(value: Any) -> str:
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
