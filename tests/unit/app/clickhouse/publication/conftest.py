"""A board of three runs, and an empty database of ClickHouse in this process."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compileboard.app.clickhouse import tables
from tests.unit.app.clickhouse.databases import empty_database, open_database
from tests.unit.app.clickhouse.publication.boards import record_board, write


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record a board; its folder has its trash too."""
    path = tmp_path_factory.mktemp("boards") / "board.db"
    record_board(path, 3)
    return path


@pytest.fixture
def board(recorded: Path, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Open a copy of the recorded board."""
    shutil.copytree(recorded.parent, tmp_path / "board")
    with write(tmp_path / "board" / "board.db") as connection:
        yield connection


@pytest.fixture(scope="module")
def own_database(chdb_folder: Path) -> Any:
    """Make a database of a module's own, and return a client of it."""
    client = open_database(chdb_folder)
    tables.create_tables(client)
    return client


@pytest.fixture
def client(own_database: Any) -> Any:
    """Empty the module's database, and return a client of it."""
    empty_database(own_database)
    return own_database
