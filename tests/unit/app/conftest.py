from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from app import create_app
from app.settings import Settings
from collectors.store.connect import open_reader, open_writer
from collectors.store.migrations import migrate


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


@pytest.fixture
def client(database: Path) -> FlaskClient:
    return create_app(Settings(db=str(database))).test_client()
