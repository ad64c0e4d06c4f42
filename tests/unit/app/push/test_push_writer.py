"""The thread that stores what boxes push: what waits together is one transaction, and each is
answered for itself.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from compileboard.app.push import receive as writing
from compileboard.collectors.contract.events import Event, ProcessStarted, RunStarted
from compileboard.collectors.store.connection import (
    StoreError,
    StoreRefused,
    open_reader,
    write_transaction,
)
from compileboard.collectors.store.stream_lines import read_lines
from compileboard.collectors.store.stream_rows import Stream, StreamMoved
from compileboard.collectors.store.stream_writer import StreamWriter
from compileboard.collectors.wire.lines import dump_line
from tests.unit.app.clickhouse.published import on_both_engines

pytestmark = on_both_engines

Job = Callable[[StreamWriter], Any]


@pytest.fixture
def reader(database: Path, store: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    with closing(open_reader(database)) as connection:
        yield connection


def run_together(database: Path, *jobs: Job) -> list[Any]:
    """Let jobs wait for the thread, then run them; return what came of each."""
    thread, release = writing.WriterThread(str(database), 16), threading.Event()
    first = thread.submit(lambda _writer: release.wait(30))
    futures = [thread.submit(job) for job in jobs]
    release.set()
    first.exception()  # its end
    return [error if (error := future.exception()) else future.result() for future in futures]


def append(reader: sqlite3.Connection, number: int, *, stored_bytes: int = 0) -> Job:
    """Return what stores a stream of two events and a line that is none."""
    start: list[Event] = [
        RunStarted(f"r{number}", 0, 5, f"R{number}", "run"),
        ProcessStarted(f"p{number}", 0, 6, "", 1),
    ]
    plain = b"".join(dump_line(event, lambda digest, text: None) for event in start) + b"no event\n"
    lines = read_lines(reader, Stream(f"R{number}", "s", stored_bytes=stored_bytes), plain)
    return lambda writer: writer.store(lines).run_id


def fail(writer: StreamWriter) -> None:
    with write_transaction(writer.connection) as connection:
        connection.execute("delete from streams")
        connection.execute("no statement")


def count(reader: sqlite3.Connection) -> list[int]:
    queries = (
        "count(*) from events",
        "count(*) from streams",
        "total(reject_count) from run_rejects",
    )
    return [reader.execute(f"select {query}").fetchone()[0] for query in queries]


def test_what_waits_together_is_one_transaction(database: Path, reader: sqlite3.Connection) -> None:
    seen: list[list[int]] = []
    jobs = [append(reader, 1), lambda _writer: seen.append(count(reader)), append(reader, 2)]
    assert run_together(database, *jobs) == ["R1", None, "R2"]
    assert (seen, count(reader)) == ([[0, 0, 0]], [4, 2, 2])


def test_one_that_fails_takes_nothing_from_the_others(
    database: Path, reader: sqlite3.Connection
) -> None:
    moved, failed = append(reader, 1, stored_bytes=7), fail
    outcomes = run_together(
        database, append(reader, 1), moved, failed, append(reader, 2), append(reader, 1)
    )
    assert [type(outcome) for outcome in outcomes] == [
        str,
        StreamMoved,
        StoreRefused,
        str,
        StreamMoved,
    ]
    assert count(reader) == [4, 2, 2]


def test_a_commit_that_fails_is_told_to_each(database: Path, reader: sqlite3.Connection) -> None:
    def break_commit(writer: StreamWriter) -> None:
        writer.connection.execute("pragma defer_foreign_keys = on")
        writer.connection.execute(
            "insert into run_tags (run_id, key, value) values ('no run', 'a', 'b')"
        )

    outcomes = run_together(database, append(reader, 1), break_commit, append(reader, 2))
    assert all(isinstance(outcome, StoreError) for outcome in outcomes)
    assert (count(reader), run_together(database, append(reader, 1))) == ([0, 0, 0], ["R1"])


def test_a_turn_ends(
    database: Path, reader: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "TURN_S", 0)
    seen: list[list[int]] = []
    run_together(
        database, append(reader, 1), lambda _writer: seen.append(count(reader)), append(reader, 2)
    )
    assert (seen, count(reader)) == ([[2, 1, 1]], [4, 2, 2])
