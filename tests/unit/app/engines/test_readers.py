"""Connections that requests leave to later ones: they show what is there now."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.app.engines.readers import IdleReaders
from compileboard.collectors.store.connection import DATABASE_VERSION, open_writer
from compileboard.collectors.store.errors import StoreMissing, StoreTooNew
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate
from tests.unit.store.ingest.test_ingest import start

COUNT = "select count(*) from runs"


@pytest.fixture
def board(tmp_path: Path) -> str:
    migrate(str(tmp_path / "b.db"))
    return str(tmp_path / "b.db")


def test_a_released_connection_shows_what_was_written_since(board: str) -> None:
    idle = IdleReaders(1)
    reader = idle.open(board)
    reader.execute("begin")
    assert reader.execute(COUNT).fetchone()[0] == 0
    idle.release(reader)
    with closing(open_writer(board)) as writer:
        Ingestor(writer).ingest("R", [start()])
    assert idle.open(board) is reader
    assert reader.execute(COUNT).fetchone()[0] == 1
    reader.close()


def test_a_file_that_was_replaced_gets_a_connection_of_its_own(board: str, tmp_path: Path) -> None:
    idle = IdleReaders(1)
    reader = idle.open(board)
    idle.release(reader)
    migrate(str(tmp_path / "other.db"))
    with closing(open_writer(tmp_path / "other.db")) as writer:
        Ingestor(writer).ingest("R", [start()])
    (tmp_path / "other.db").replace(board)
    with closing(idle.open(board)) as newer:
        assert newer.execute(COUNT).fetchone()[0] == 1
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        reader.execute(COUNT)


def test_what_became_of_the_file_is_said_as_without_idle_connections(board: str) -> None:
    idle = IdleReaders(1)
    idle.release(idle.open(board))
    with closing(open_writer(board)) as writer:
        writer.execute(f"pragma user_version = {DATABASE_VERSION + 1}")
    with pytest.raises(StoreTooNew):
        idle.open(board)
    Path(board).unlink()
    with pytest.raises(StoreMissing):
        idle.open(board)


def test_more_connections_than_may_wait_are_closed(board: str) -> None:
    idle = IdleReaders(1)
    first, second = idle.open(board), idle.open(board)
    idle.release(first)
    idle.release(second)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        second.execute(COUNT)
    assert idle.open(board) is first
    first.close()
