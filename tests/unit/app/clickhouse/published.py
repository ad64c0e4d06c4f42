"""A board and what is published of it, for tests of queries and pages on both engines."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from flask.testing import FlaskClient

from compileboard.app.clickhouse import tables
from compileboard.app.clickhouse.client import ClientPool
from compileboard.app.clickhouse.engine import ClickHouseEngine
from compileboard.app.clickhouse.passes import Publisher
from compileboard.app.clickhouse.publisher import ROLLUPS, THINGS
from compileboard.app.core.address import ClickHouseAddress
from compileboard.app.core.engine import Engine
from compileboard.collectors.store.connection import BOARD, open_reader
from tests.unit.app.clickhouse.databases import empty_database, open_database
from tests.unit.app.seed import START_US

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

BOTH_ENGINES = ["sqlite", pytest.param("clickhouse", marks=pytest.mark.clickhouse)]
PAGES_ON_BOTH_ENGINES = [
    "sqlite",
    pytest.param("clickhouse", marks=[pytest.mark.clickhouse, pytest.mark.nightly]),
]
on_both_engines = pytest.mark.both_engines  # of a test, or as `pytestmark` of a module
board_on_both_engines = pytest.mark.parametrize(
    "board", BOTH_ENGINES, indirect=True
)  # of the notebook
over_a_file = pytest.mark.parametrize("engine_name", ["sqlite"])
OpenEngine = Callable[[sqlite3.Connection], Engine]
OpenClient = Callable[[Path], FlaskClient]

_PUBLISHED = (
    "runs",
    "run_totals",
    "run_tags",
    "run_annotations",
    "processes",
    "commits",
    *ROLLUPS,
    *THINGS,
)
_MAX_DATABASES = 4


def open_clients(folder: Path) -> ClientPool:
    """Make an empty database of its own below `chdb_folder`, and return clients of it."""
    return ClientPool(
        ClickHouseAddress(None, None, "default", str(open_database(folder).database), str(folder))
    )


class PublishedBoard:
    """A database of ClickHouse in which board after board is published."""

    def __init__(self, folder: Path) -> None:
        self._digest = b""
        self.clients = open_clients(folder)
        self.engine = ClickHouseEngine(self.clients)
        with self.clients.borrow() as client:
            tables.create_tables(client)

    def publish(self, board: sqlite3.Connection, digest: bytes | None = None) -> ClickHouseEngine:
        """Put what a board has now in place of what is there; the board is not written."""
        digest = digest or digest_published(board)
        if digest == self._digest:
            return self.engine
        self._digest = b""
        with self.clients.borrow() as client:
            empty_database(client)
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
            board.backup(copy)
            copy.row_factory = sqlite3.Row
            outcome = Publisher(self.clients).run_pass(copy, START_US, everything=True)
        assert not outcome.refused, outcome.refused
        self._digest = digest
        return self.engine


class PublishedBoards:
    """A few databases of ClickHouse: what the last boards had is there still, and not published
    again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._databases: dict[bytes, PublishedBoard] = {}

    def open_engine(self, board: sqlite3.Connection) -> ClickHouseEngine:
        """Return an engine with what a board has now."""
        digest = digest_published(board)
        published = self._databases.pop(digest, None)
        if published is None:
            is_new = len(self._databases) < _MAX_DATABASES
            published = (
                PublishedBoard(self._folder)
                if is_new
                else self._databases.pop(next(iter(self._databases)))
            )
        self._databases[digest] = published
        return published.publish(board, digest)

    def lend(self, path: Path) -> ClientPool:
        """Return clients for the folder of a store, where `path` is of ClickHouse's files."""
        return _LazyClients(self, path.parent / BOARD)


class _LazyClients(ClientPool):
    """Clients of a database with what a board has when the first is taken, as a follower publishes
    it.
    """

    def __init__(self, boards: PublishedBoards, board: Path) -> None:
        super().__init__(ClickHouseAddress(None, None, "default", "default", str(board)))
        self._boards, self._board = boards, board
        self._published: ClientPool | None = None

    @contextmanager
    def borrow(self) -> Iterator[Client]:
        if self._published is None:
            with closing(open_reader(self._board)) as reader:
                self._published = self._boards.open_engine(reader).clients
        with self._published.borrow() as client:
            yield client


def digest_published(board: sqlite3.Connection) -> bytes:
    """Return a digest of all rows that are published, or that something published is made of."""
    digest = blake2b()
    cursor = board.cursor()
    cursor.row_factory = None
    for table in _PUBLISHED:
        digest.update(repr(cursor.execute(f"select * from {table}").fetchall()).encode())
    return digest.digest()
