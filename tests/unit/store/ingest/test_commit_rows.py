"""Commits are kept once, and learn of their parents when somebody knows better."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.contract.events import CommitsSeen, RunStarted
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.trash import delete_run, prune_trash

SHALLOW = CommitsSeen("p", -1, 5, [["c", 3, "Ann", "three"], ["b", 2, None, None]], None)
DEEPER = CommitsSeen("q", -1, 6, [["b", 2, "Ann", "two"], ["a", 1, "Ann", "one"]], "z")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_writer(tmp_path / "t.db")) as connection:
        migrate_connection(connection)
        yield connection


def list_chain(store: sqlite3.Connection) -> list[tuple[str, str | None]]:
    return [
        (row[0], row[1])
        for row in store.execute("select hash, parent_hash from commits order by time_us desc")
    ]


def test_commits_are_kept_once_and_a_deeper_clone_says_what_came_before(
    store: sqlite3.Connection,
) -> None:
    ingestor = Ingestor(store)
    for event in (SHALLOW, SHALLOW, CommitsSeen("p", -1, 5)):
        ingestor.ingest("R", [event])
    assert list_chain(store) == [("c", "b"), ("b", None)]
    ingestor.ingest("R", [DEEPER, SHALLOW])
    assert list_chain(store) == [("c", "b"), ("b", "a"), ("a", "z")]


def test_history_stays_while_any_run_has_a_commit(store: sqlite3.Connection) -> None:
    ingestor = Ingestor(store)
    for run_id in "RS":
        started = RunStarted(run_id, 0, 1, run_id, "nightly", git={"commit": "c"})
        ingestor.ingest(run_id, [started, SHALLOW])
    delete_run(store, "R")
    assert len(list_chain(store)) == 2
    delete_run(store, "S")
    assert len(list_chain(store)) == 2, "it may come back"
    prune_trash(store, age_us=0)
    assert list_chain(store) == []
