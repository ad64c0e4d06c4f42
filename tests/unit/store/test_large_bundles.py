"""A large run of a bundle is stored in steps: the same rows, whatever is killed, pushed or written meanwhile."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.app.follow import follow
from compileboard.collectors.store.bundles.growth import count_contents
from compileboard.collectors.store.bundles.incoming import RunIncoming, delete_left_runs, list_incoming_runs
from compileboard.collectors.store.bundles.merging import merge_bundle, write_bundle
from compileboard.collectors.store.connection import open_reader, open_writer
from compileboard.collectors.store.dashboard.trash import SHARED, CannotRestore, delete_run, restore_run
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.maintenance.leases import INCOMING, take_lease
from compileboard.collectors.store.maintenance.verification import verify
from compileboard.collectors.store.sealed import large_runs
from compileboard.collectors.store.sealed.rows import DETAIL
from tests.unit.app.explored import explore
from tests.unit.store.ingest.test_ingest import recorded_events
from tests.unit.store.sealed.sealed_board import copy_board, read_rows

RUN = "01M7Y2BWVX4023CRNA3BN3HEVH"
KILLED = """
import os, signal, sys
from compileboard.collectors.store.bundles.merging import merge_bundle
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.sealed import large_runs
large_runs.LARGE_BYTES, large_runs.ROWS_AT_ONCE = 0, 8
left = iter(range(int(sys.argv[3])))
large_runs.time.sleep = lambda _s: next(left, None) is None and os.kill(os.getpid(), signal.SIGKILL)
list(merge_bundle(open_writer(sys.argv[1]), sys.argv[2], again=True))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "explored.db"
    explore(path)
    return path


@pytest.fixture(scope="module")
def bundle(recorded: Path) -> str:
    """Make a bundle of all runs."""
    path = recorded.with_name("bundle.db")
    with closing(open_reader(recorded)) as reader:
        write_bundle(reader, list_runs(reader), str(path))
    return str(path)


@pytest.fixture
def board(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    """Open a board with one run, whose rows have ids that others of the bundle have too."""
    monkeypatch.setattr(large_runs, "LARGE_BYTES", 0)
    monkeypatch.setattr(large_runs, "ROWS_AT_ONCE", 20)
    monkeypatch.setattr(large_runs.time, "sleep", lambda _seconds: None)
    with closing(copy_board(recorded, tmp_path)) as connection:
        for run_id in list_runs(connection)[1:]:
            delete_run(connection, run_id)
        yield connection


def list_runs(connection: sqlite3.Connection) -> list[str]:
    return [row["id"] for row in connection.execute("select id from runs order by id")]


def list_problems(path: Path) -> list[str]:
    return [problem for check in verify(str(path), texts=True) for problem in check.problems]


def merge(board: sqlite3.Connection, bundle: str) -> list[str]:
    return [merged.state for merged in merge_bundle(board, bundle, again=True)]


def read_board(board: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    board.execute("update runs set pub = 0")
    return read_rows(board)


def test_the_rows_are_those_of_one_transaction(
    board: sqlite3.Connection, bundle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several runs of one file come one after the other, each with its own rows alone."""
    with closing(open_writer(tmp_path / "at_once.db")) as other:
        board.backup(other)
        assert sorted(merge(board, bundle)) == ["known", "new", "new", "new"]
        monkeypatch.setattr(large_runs, "LARGE_BYTES", 1 << 40)
        merge(other, bundle)
        assert read_board(board) == read_board(other)
    assert list_problems(tmp_path / "board.db") == []
    assert merge(board, bundle) == ["known"] * 4


@pytest.mark.parametrize("step_count", [0, 1, 4, 9])
def test_nothing_is_shown_of_what_was_killed_and_all_of_it_comes_once(
    board: sqlite3.Connection, recorded: Path, tmp_path: Path, step_count: int
) -> None:
    path, before, bundle = tmp_path / "board.db", read_board(board), str(tmp_path / "one.db")
    with closing(open_reader(recorded)) as reader:
        write_bundle(reader, [RUN], bundle)
    words = [sys.executable, "-c", KILLED, str(path), bundle, str(step_count)]
    assert subprocess.run(words, timeout=60).returncode == -9
    assert list_incoming_runs(board) == [RUN]
    killed = read_rows(board)
    changed = {name for name in before if killed[name] != before[name]}
    assert changed & {*DETAIL} and changed <= {*DETAIL, *SHARED, "payloads", "incoming_runs"}
    assert list_problems(path) == []
    if step_count % 2:
        assert follow(str(path), "", {}, lambda _seconds: True) == 0
        after = read_rows(board)
        assert {name for name in before if after[name] != before[name]} <= {"functions", "span_names", "detection"}
    assert merge(board, bundle) == ["new"] and list_incoming_runs(board) == []
    with closing(open_reader(bundle)) as reader:
        assert count_contents(board, RUN) == count_contents(reader, RUN)
    assert list_problems(path) == []


def test_nothing_else_of_the_run_is_stored_meanwhile(board: sqlite3.Connection, tmp_path: Path) -> None:
    """A box that pushes the run tries again; without a process that stores it, what is left of it goes first."""
    events, path = recorded_events(), tmp_path / "board.db"
    board.execute("insert into incoming_runs values ('R', 1)")
    board.execute("update removed_runs set run_id = 'R' where run_id = (select max(run_id) from removed_runs)")
    ingestor = Ingestor(board, str(path))
    with take_lease(path, INCOMING) or pytest.fail("it is free"):
        assert delete_left_runs(board) == []
        with pytest.raises(RunIncoming, match="Try again soon"):
            ingestor.ingest("R", events[:20])
        with pytest.raises(CannotRestore, match="is being imported"):
            restore_run(board, "R")
    board.execute("delete from removed_runs")
    assert ingestor.ingest("R", events[:20]).new_count > 0
    assert list_incoming_runs(board) == []


def test_what_fails_leaves_nothing(board: sqlite3.Connection, bundle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("compileboard.collectors.store.bundles.incoming.copy_run", fail)
    (before,) = board.execute("select count(*) from events").fetchone()
    with pytest.raises(sqlite3.OperationalError, match="full"):
        merge(board, bundle)
    assert board.execute("select count(*) from events").fetchone()[0] == before
    assert list_incoming_runs(board) == []


def test_others_write_between_the_steps(
    board: sqlite3.Connection, bundle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids of the run's rows are not given to what others add."""
    (here,) = list_runs(board)
    added = iter(range(3))

    def add_lane(_seconds: float) -> None:
        for number in added:
            with closing(open_writer(tmp_path / "board.db")) as writer:
                writer.execute("insert into lanes (run_id, process_id, thread) values (?, 'p', ?)", (here, number))

    monkeypatch.setattr(large_runs.time, "sleep", add_lane)
    assert merge(board, bundle).count("new") == 3
    assert board.execute("select count(*) from lanes where process_id = 'p'").fetchone()[0] == 3
    assert list_problems(tmp_path / "board.db") == []
