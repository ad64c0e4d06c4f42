from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from functools import cache
from typing import Protocol

from compileboard.app.clickhouse.client import ClientPool
from compileboard.app.clickhouse.engine import ClickHouseEngine
from compileboard.app.clickhouse.run_files import RunFiles
from compileboard.app.core.address import ClickHouseAddress, parse_address, read_password
from compileboard.app.core.engine import Engine, SqliteEngine
from compileboard.collectors.store.connection import EXPECTED, StoreError, open_reader
from compileboard.collectors.store.sealed_files import (
    RunFileMissing,
    RunFileUnavailable,
    SealedRun,
    get_sealed_run,
    has_sealed_runs,
)

MAX_OPEN = 128  # run files: twice those of one side of a comparison


class Store(Protocol):
    @property
    def board(self) -> sqlite3.Connection:
        """The board: triage, tokens, incidents, and unsealed runs."""

    @property
    def engine(self) -> Engine:
        """The engine that queries all runs."""

    @property
    def unavailable(self) -> dict[str, RunFileUnavailable]:
        """Opened runs whose file cannot be used, by id."""

    def open_run(self, run_id: str) -> sqlite3.Connection:
        """Return a connection to the data of one run, or to the board for an unknown run. It is
        closed with the store.

        Raises RunFileUnavailable if the run's file cannot be used.
        """

    def close(self) -> None: ...


class FileStore:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.board = connection
        self.engine: Engine = SqliteEngine(connection)
        self.unavailable: dict[str, RunFileUnavailable] = {}

    def open_run(self, run_id: str) -> sqlite3.Connection:
        return self.board

    def close(self) -> None:
        self.board.close()


class FolderStore:
    def __init__(self, board: sqlite3.Connection, engine: Engine, files: RunFiles) -> None:
        self.board = board
        self.engine = engine
        self.unavailable: dict[str, RunFileUnavailable] = {}
        self._files = files
        self._runs: dict[str, sqlite3.Connection] = {}

    def open_run(self, run_id: str) -> sqlite3.Connection:
        connection = self._runs.pop(run_id, None)
        if connection is None:
            if run_id in self.unavailable:  # a damaged file is read to its end before it is refused
                raise self.unavailable[run_id].with_traceback(None)
            sealed = get_sealed_run(self.board, run_id)
            if sealed is None:
                return self.board
            try:
                connection = self._open_file(sealed)
            except RunFileUnavailable as error:
                self.unavailable[run_id] = error
                raise
        self._runs[run_id] = connection
        if len(self._runs) > MAX_OPEN:
            self._runs.pop(next(iter(self._runs))).close()
        return connection

    def _open_file(self, sealed: SealedRun) -> sqlite3.Connection:
        try:
            return self._files.open(sealed)
        except RunFileMissing:  # pruned in the meantime: its file was renamed
            with closing(open_reader(self._files.board)) as board:
                newest = get_sealed_run(board, sealed.run_id)
            if newest is None or newest.file == sealed.file:
                raise
            return self._files.open(newest)

    def close(self) -> None:
        self.engine.close()
        for connection in (*self._runs.values(), self.board):
            connection.close()


def open_store(text: str) -> Store:
    """Open the store in `--db`. Raises StoreError if it is missing, newer, older, locked or not a
    database.
    """
    address = parse_address(text)
    reader = open_reader(address.board)
    reader.execute("begin")  # a page reads one snapshot, which begins with its first query
    if address.clickhouse is None:
        if has_sealed_runs(reader):
            reader.close()
            raise StoreError(
                f"{address.board} has runs whose detail is in files beside it. Give the "
                "address of its folder: "
                f"--db {EXPECTED}."
            )
        return FileStore(reader)
    engine = ClickHouseEngine(_share_clients(address.clickhouse, os.getpid()))
    return FolderStore(reader, engine, RunFiles(address.board, address.cache))


@cache
def _share_clients(address: ClickHouseAddress, _process_id: int) -> ClientPool:
    return ClientPool(address, read_password(os.environ))


def open_run_or_board(store: Store, run_id: str) -> sqlite3.Connection:
    """Return a connection to a run's detail, or to the board if its file is lost."""
    try:
        return store.open_run(run_id)
    except RunFileUnavailable:
        return store.board


def group_runs(
    store: Store, run_ids: Iterable[str], *, max_files: int | None = None
) -> list[tuple[sqlite3.Connection, list[str]]]:
    """Group runs by the file with their detail; those beyond `max_files` or with a lost file are
    left out.
    """
    groups: dict[int, tuple[sqlite3.Connection, list[str]]] = {}
    for run_id in run_ids:
        if len(groups) == max_files:
            break
        try:
            connection = store.open_run(run_id)
        except RunFileUnavailable:
            continue
        groups.setdefault(id(connection), (connection, []))[1].append(run_id)
    return list(groups.values())
