from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

from compileboard.app import create_app
from compileboard.app.queries.engine import SqliteEngine
from compileboard.app.settings import Settings
from compileboard.collectors.store.connection import open_reader, open_writer
from compileboard.collectors.store.migrations import migrate
from tests.tools.make_db import main as make_db
from tests.unit.app.engines.published import OpenEngine, PublishedBoard
from tests.unit.app.explored import explore
from tests.unit.app.queries.broad_board import make_broad_board


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Make an empty database once; each test gets its own copy."""
    path = tmp_path_factory.mktemp("store") / "empty.db"
    migrate(path)
    return path.read_bytes()


@pytest.fixture
def database(tmp_path: Path, empty_database: bytes) -> Path:
    path = tmp_path / "compileboard.db"
    path.write_bytes(empty_database)
    return path


@pytest.fixture
def store(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_writer(database)) as connection:
        yield connection


@pytest.fixture
def reader(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_reader(database)) as connection:
        yield connection


@pytest.fixture(scope="session")
def published_board(chdb_folder: Path) -> PublishedBoard:
    """Make a database of ClickHouse once; each test publishes its own board there."""
    return PublishedBoard(chdb_folder)


@pytest.fixture(params=["sqlite", pytest.param("clickhouse", marks=pytest.mark.clickhouse)])
def open_engine(request: pytest.FixtureRequest) -> OpenEngine:
    """Open the tables across runs of a board, as it is at that moment, on each engine."""
    if request.param == "sqlite":
        return SqliteEngine
    published: PublishedBoard = request.getfixturevalue("published_board")
    return published.publish


@pytest.fixture(scope="session")
def shared_app() -> Flask:
    """Make the application once: compiling its templates takes longer than most tests."""
    return create_app(Settings())


@pytest.fixture
def client(database: Path, shared_app: Flask) -> FlaskClient:
    return _over(shared_app, database)


def _over(app: Flask, database: Path) -> FlaskClient:
    app.config["COMPILEBOARD"] = Settings(db=str(database))
    return app.test_client()


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record torch's own logs once; tests only read it."""
    path = tmp_path_factory.mktemp("recorded") / "recorded.db"
    assert make_db([str(path)]) == 0
    return path


@pytest.fixture(scope="session")
def broad(tmp_path_factory: pytest.TempPathFactory, recorded: Path) -> Path:
    """Make a board with all that statements across runs can meet once; tests only read it."""
    path = tmp_path_factory.mktemp("broad") / "board.db"
    make_broad_board(path, recorded)
    return path


@pytest.fixture
def recorded_client(recorded: Path, shared_app: Flask) -> FlaskClient:
    return _over(shared_app, recorded)


@pytest.fixture
def recorded_reader(recorded: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_reader(recorded)) as connection:
        yield connection


@pytest.fixture(scope="session")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Import whole trace logs once, with graphs, code, guards and phases; tests only read it."""
    path = tmp_path_factory.mktemp("explored") / "explored.db"
    explore(path)
    return path


@pytest.fixture
def explored_client(explored: Path, shared_app: Flask) -> FlaskClient:
    return _over(shared_app, explored)


@pytest.fixture
def explored_reader(explored: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_reader(explored)) as connection:
        yield connection
