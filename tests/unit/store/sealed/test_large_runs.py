"""A large sealed run comes back in steps, unchanged, whatever is killed or written."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.app.clickhouse.run_files import seal_ended_runs
from compileboard.app.push.receive import WriterThread
from compileboard.collectors.store import large_runs
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.large_runs import (
    RunSealed,
    reopen_large_run,
    reopen_run_of_database,
)
from compileboard.collectors.store.leases import REOPEN, try_acquire_lease
from compileboard.collectors.store.sealed_files import (
    RunFileDamaged,
    RunFileMissing,
    get_sealed_run,
    list_run_files,
)
from compileboard.collectors.store.stream_writer import StreamWriter
from compileboard.collectors.store.trash import delete_run
from compileboard.collectors.store.verification import verify
from tests.tools.observed import wait_for
from tests.unit.app.explored import explore
from tests.unit.store.ingest.test_ingest import recorded_events
from tests.unit.store.sealed.sealed_board import (
    NOW_US,
    copy_board,
    publish_all,
    read_rows,
    seal_all,
)
from tests.unit.store.sealed.test_sealing import read_stream, send_stream

KILLED = """
import os, signal, sys
from compileboard.collectors.store import large_runs
large_runs.LARGE_BYTES, large_runs.ROWS_AT_ONCE = 0, 20
left = iter(range(int(sys.argv[3])))
large_runs.time.sleep = lambda _s: next(left, None) is None and os.kill(os.getpid(), signal.SIGKILL)
large_runs.reopen_run_of_database(sys.argv[1], sys.argv[2])
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "explored.db"
    explore(path)
    return path


@pytest.fixture
def board(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[sqlite3.Connection]:
    monkeypatch.setattr(large_runs, "LARGE_BYTES", 0)
    monkeypatch.setattr(large_runs, "ROWS_AT_ONCE", 20)
    monkeypatch.setattr(large_runs.time, "sleep", lambda _seconds: None)
    with closing(copy_board(recorded, tmp_path)) as connection:
        yield connection


def read_unnumbered(board: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    """Read all rows; a run that came back has a number of its own."""
    board.execute("update runs set pub = 0")
    return read_rows(board)


def list_problems(path: Path) -> list[str]:
    return [problem for check in verify(str(path), texts=True) for problem in check.problems]


def largest_run(board: sqlite3.Connection) -> str:
    (run_id,) = board.execute(
        "select run_id from run_totals order by compile_count desc limit 1"
    ).fetchone()
    return str(run_id)


def test_all_rows_come_back_in_steps(board: sqlite3.Connection, tmp_path: Path) -> None:
    before, run_ids = read_rows(board), seal_all(board)
    for run_id in run_ids:
        assert reopen_large_run(board, run_id)
        assert get_sealed_run(board, run_id) is None
    after = read_rows(board)
    assert {name for name in before if after[name] != before[name]} == {"runs"}, (
        "each has a new number"
    )
    assert list_problems(tmp_path / "board.db") == []


@pytest.mark.parametrize("step_count", [0, 1, 4, 9])
def test_what_was_killed_at_a_step_is_undone_or_done_again(
    board: sqlite3.Connection, tmp_path: Path, step_count: int
) -> None:
    run_id, path = largest_run(board), tmp_path / "board.db"
    before = read_unnumbered(board)
    seal_all(board, run_id)
    board.execute("delete from published_runs where run_id <> ?", (run_id,))
    sealed_rows = read_rows(board)
    words = [sys.executable, "-c", KILLED, str(path), run_id, str(step_count)]
    assert subprocess.run(words, timeout=60).returncode == -9
    sealed = get_sealed_run(board, run_id)
    assert sealed is not None and not sealed.is_emptied
    assert list_problems(path) == []
    with try_acquire_lease(path, REOPEN) or pytest.fail("it is free"):
        assert seal_ended_runs(str(path), now_us=NOW_US).is_done
        assert read_rows(board)["sealed_runs"] != sealed_rows["sealed_runs"], (
            "another process puts it back now"
        )
    if step_count % 2:
        assert seal_ended_runs(str(path), now_us=NOW_US).sealed_count == 1
        assert read_rows(board) == sealed_rows
    reopen_run_of_database(str(path), run_id)
    assert read_unnumbered(board) == before


def test_rows_of_others_that_come_meanwhile_stay(
    board: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids of the run's rows were the greatest: a row without one gets the next."""
    run_id, path = largest_run(board), tmp_path / "board.db"
    seal_all(board)
    (other,) = board.execute("select id from runs where id <> ? limit 1", (run_id,)).fetchone()
    added = iter(range(3))

    def add_compile(_seconds: float) -> None:
        for number in added:
            with closing(open_writer(path)) as writer:
                writer.execute(
                    "insert into lanes (run_id, process_id, thread) values (?, 'p', ?)",
                    (other, number),
                )

    monkeypatch.setattr(large_runs.time, "sleep", add_compile)
    assert reopen_large_run(board, run_id)
    assert board.execute("select count(*) from lanes where process_id = 'p'").fetchone()[0] == 3
    assert list_problems(path) == []


def test_what_boxes_push_of_others_does_not_wait(
    board: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A box of the run is told to try again; meanwhile a thread of its own puts the rows back."""
    events, path = recorded_events(), tmp_path / "board.db"
    send_stream(StreamWriter(board, str(path)), events[:20])
    board.execute("update runs set heartbeat_us = 1 where id = 'R'")
    seal_all(board, "R")
    rest, thread = read_stream(board, events[20:]), WriterThread(str(path), 16)
    with try_acquire_lease(path, REOPEN) or pytest.fail("it is free"):
        monkeypatch.undo()
        monkeypatch.setattr(large_runs, "LARGE_BYTES", 0)
        with pytest.raises(RunSealed, match="Try again soon"):
            thread.submit(lambda writer: writer.store(rest)).result(30)
        assert thread.submit(lambda writer: writer.connection.total_changes).result(30) == 0
    wait_for(lambda: get_sealed_run(board, "R") is None)
    assert thread.submit(lambda writer: writer.store(rest)).result(30).event_count == len(events)
    assert list_problems(path) == []


def test_a_box_is_told_why_a_run_cannot_be_put_back(
    board: sqlite3.Connection, tmp_path: Path
) -> None:
    events, path = recorded_events(), tmp_path / "board.db"
    send_stream(StreamWriter(board, str(path)), events[:20])
    board.execute("update runs set heartbeat_us = 1 where id = 'R'")
    seal_all(board, "R")
    (file,) = list_run_files(str(path), "R")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    rest, thread = read_stream(board, events[20:]), WriterThread(str(path), 16)
    refusals = []
    while not refusals or isinstance(refusals[-1], RunSealed):
        refusals.append(thread.submit(lambda writer: writer.store(rest)).exception(30))
    assert isinstance(refusals[-1], RunFileDamaged)
    file.unlink()
    assert isinstance(
        thread.submit(lambda writer: writer.store(rest)).exception(30), RunFileMissing
    )


def test_a_run_that_is_deleted_meanwhile_stays_deleted(
    board: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, path = largest_run(board), tmp_path / "board.db"
    publish_all(board)
    seal_all(board, run_id)

    def delete_it(_seconds: float) -> None:
        with closing(open_writer(path)) as writer:
            delete_run(writer, run_id)

    monkeypatch.setattr(large_runs.time, "sleep", delete_it)
    assert reopen_large_run(board, run_id)
    assert (
        board.execute("select count(*) from compiles where run_id = ?", (run_id,)).fetchone()[0]
        == 0
    )
    assert list_problems(path) == []
