from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

from compileboard.app import create_app
from compileboard.app.core import store as stores
from compileboard.app.core.engine import SqliteEngine
from compileboard.app.core.settings import Settings
from compileboard.collectors.store.connection import BOARD, open_reader, open_writer
from compileboard.collectors.store.migrations import migrate
from tests.tools.make_db import main as make_db
from tests.unit.app.clickhouse.published import (
    BOTH_ENGINES,
    PAGES_ON_BOTH_ENGINES,
    OpenClient,
    OpenEngine,
    PublishedBoards,
)
from tests.unit.app.core.broad_board import make_broad_board
from tests.unit.app.explored import explore


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Make an empty database once; each test gets its own copy."""
    path = tmp_path_factory.mktemp("store") / "empty.db"
    migrate(path)
    return path.read_bytes()


@pytest.fixture
def database(tmp_path: Path, empty_database: bytes) -> Path:
    path = tmp_path / BOARD
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
def published_boards(chdb_folder: Path) -> PublishedBoards:
    """Make databases of ClickHouse once; each test publishes its own board in one."""
    return PublishedBoards(chdb_folder)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what is marked, and what opens an engine, over a file and again over ClickHouse.

    Pages over ClickHouse come at night: test_both_stores compares every address by day.
    """
    if "engine_name" not in metafunc.fixturenames:
        return
    chosen = metafunc.definition.iter_markers("parametrize")
    if any("engine_name" in mark.args[0] for mark in chosen):
        return
    if "open_engine" in metafunc.fixturenames:
        metafunc.parametrize("engine_name", BOTH_ENGINES)
    elif metafunc.definition.get_closest_marker("both_engines"):
        metafunc.parametrize("engine_name", PAGES_ON_BOTH_ENGINES)


@pytest.fixture
def engine_name() -> str:
    """Name the engine that a test's pages ask across runs."""
    return "sqlite"


@pytest.fixture
def open_engine(engine_name: str, request: pytest.FixtureRequest) -> OpenEngine:
    """Open the tables across runs of a board, as it is at that moment, on the test's engine."""
    if engine_name == "sqlite":
        return SqliteEngine
    published: PublishedBoards = request.getfixturevalue("published_boards")
    return published.open_engine


@pytest.fixture
def address_of(
    engine_name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Path], str]:
    """Return what `--db` is for a board: its file, or its folder, with what it has at that moment
    in ClickHouse.
    """
    if engine_name == "sqlite":
        return str
    published: PublishedBoards = request.getfixturevalue("published_boards")
    monkeypatch.setattr(
        stores, "_share_clients", lambda address, _process_id: published.lend(Path(address.path))
    )
    return lambda board: f"clickhouse://{board.parent}"


@pytest.fixture
def db(database: Path, address_of: Callable[[Path], str]) -> str:
    """Return what `--db` is for the test's own board."""
    return address_of(database)


@pytest.fixture(scope="session")
def shared_app() -> Flask:
    """Make the application once: compiling its templates takes longer than most tests."""
    return create_app(Settings())


@pytest.fixture
def open_client(address_of: Callable[[Path], str], shared_app: Flask) -> OpenClient:
    """Open pages over a board."""

    def open_over(board: Path) -> FlaskClient:
        shared_app.config["COMPILEBOARD"] = Settings(db=address_of(board))
        return shared_app.test_client()

    return open_over


@pytest.fixture
def client(database: Path, open_client: OpenClient) -> FlaskClient:
    return open_client(database)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record torch's own logs once; tests only read it."""
    path = tmp_path_factory.mktemp("recorded") / BOARD
    assert make_db([str(path)]) == 0
    return path


@pytest.fixture(scope="session")
def broad(tmp_path_factory: pytest.TempPathFactory, recorded: Path) -> Path:
    """Make a board with all that statements across runs can meet once; tests only read it."""
    path = tmp_path_factory.mktemp("broad") / BOARD
    make_broad_board(path, recorded)
    return path


@pytest.fixture
def recorded_client(recorded: Path, open_client: OpenClient) -> FlaskClient:
    return open_client(recorded)


@pytest.fixture
def recorded_reader(recorded: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_reader(recorded)) as connection:
        yield connection


@pytest.fixture(scope="session")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Import whole trace logs once, with graphs, code, guards and phases; tests only read it."""
    path = tmp_path_factory.mktemp("explored") / BOARD
    explore(path)
    return path


@pytest.fixture
def explored_client(explored: Path, open_client: OpenClient) -> FlaskClient:
    return open_client(explored)


@pytest.fixture
def explored_reader(explored: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_reader(explored)) as connection:
        yield connection
