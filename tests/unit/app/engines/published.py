"""A board and what is published of it, for tests of queries on both engines."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from compileboard.app.engines import tables
from compileboard.app.engines.address import ClickHouseAddress
from compileboard.app.engines.clickhouse import ClickHouseEngine
from compileboard.app.engines.client import Clients, connect
from compileboard.app.engines.publication.passes import Publisher
from compileboard.app.queries.engine import Engine
from tests.unit.app.engines.databases import empty_database, open_database
from tests.unit.app.seed import START_US


def open_clients(folder: Path) -> Clients:
    """Make an empty database of its own below `chdb_folder`, and return clients of it."""
    return Clients(ClickHouseAddress(None, None, "default", str(open_database(folder).database), str(folder)))


OpenEngine = Callable[[sqlite3.Connection], Engine]


class PublishedBoard:
    """A database of ClickHouse in which board after board is published."""

    def __init__(self, folder: Path) -> None:
        self._state: tuple[object, ...] = ()
        self._clients = open_clients(folder)
        self.engine = ClickHouseEngine(self._clients)
        self._client = connect(self._clients.address)
        tables.create(self._client)

    def publish(self, board: sqlite3.Connection) -> ClickHouseEngine:
        """Put what a board has now in place of what is there; the board is not written."""
        (path,) = (row[2] for row in board.execute("pragma database_list") if row[1] == "main")
        state = (path, board.total_changes, *board.execute("pragma data_version").fetchone())
        if state == self._state:
            return self.engine
        self._state = state
        empty_database(self._client)
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
            board.backup(copy)
            copy.row_factory = sqlite3.Row
            outcome = Publisher(self._clients).run_pass(copy, START_US, everything=True)
        assert not outcome.refused, outcome.refused
        return self.engine
