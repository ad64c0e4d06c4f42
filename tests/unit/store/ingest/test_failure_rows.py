"""What compiled code raises is one row a failure, with the compile that its code came from."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.contract.events import (
    Compiled,
    CompileFailed,
    CompileStarted,
    Event,
    ProcessStarted,
    RuntimeFailed,
)
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.verification import list_differences

FRAME: dict[str, Any] = {"compile_id": "0/0", "frame_id": 0, "frame_compile_id": 0}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_writer(tmp_path / "t.db")) as connection:
        migrate_connection(connection)
        yield connection


def ingest(
    store: sqlite3.Connection, *told: tuple[type[Event], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Ingest events a microsecond apart, each twice; return the failures' rows."""
    first: tuple[type[Event], dict[str, Any]] = (ProcessStarted, {"run_id": "R", "pid": 1})
    events = [kind("p", n, n, **values) for n, (kind, values) in enumerate([first, *told])]
    for _ in range(2):
        Ingestor(store).ingest("R", events)
    return [dict(row) for row in store.execute("select * from failures order by id")]


def count(store: sqlite3.Connection) -> tuple[int, int]:
    return tuple(
        store.execute("select failure_count, skipped_frame_count from run_totals").fetchone()
    )


def test_a_failure_is_one_row_with_its_largest_count(store: sqlite3.Connection) -> None:
    whole = FRAME | {
        "position": 0,
        "phase": "backward",
        "error_type": "E",
        "function": "f",
        "file": "m.py",
        "line": 3,
    }
    later = FRAME | {"position": 0, "phase": "backward"}
    rows = ingest(
        store,
        (CompileStarted, FRAME),
        (RuntimeFailed, whole | {"compiled_us": 2}),
        (RuntimeFailed, later | {"occurrence_count": 10_000}),
        (RuntimeFailed, later | {"occurrence_count": 64, "ended_program": True}),
        (RuntimeFailed, whole | {"position": 1, "compiled_us": 2}),
    )
    assert [(row["phase"], row["occurrence_count"], row["ended_program"]) for row in rows] == [
        ("backward", 10_000, 1),
        ("backward", 1, 0),
    ]
    assert (rows[0]["line"], rows[0]["error_type"], rows[0]["compile_key"]) == (3, "E", 1)
    assert count(store) == (2, 0)


def test_a_failure_belongs_to_the_compile_that_had_its_id_then(store: sqlite3.Connection) -> None:
    started = [
        (CompileStarted, FRAME | {"function": name}) for name in ("old", "new")
    ]  # at 1 and 2: a reset between
    rows = ingest(
        store,
        *started,
        (RuntimeFailed, FRAME | {"position": 0, "compiled_us": 1}),
        (RuntimeFailed, FRAME | {"position": 1, "compiled_us": 2}),
        (RuntimeFailed, FRAME | {"position": 2, "compiled_us": 0}),
        (RuntimeFailed, {"position": 3, "phase": "program", "compiled_us": 0}),
    )
    assert [row["compile_key"] for row in rows] == [1, 2, None, None]


def test_a_compiles_own_failure_is_told_that_it_ended_the_program(
    store: sqlite3.Connection,
) -> None:
    rows = ingest(
        store,
        (CompileStarted, FRAME),
        (CompileFailed, FRAME | {"error_type": "BackendCompilerFailed"}),
        (Compiled, FRAME | {"outcome": "failed"}),
        (RuntimeFailed, FRAME | {"phase": "compile", "ended_program": True}),
    )
    assert [(row["phase"], row["ended_program"]) for row in rows] == [("compile", 1)]
    assert count(store) == (1, 0)


def test_what_compiled_code_raises_fails_no_compile(store: sqlite3.Connection) -> None:
    """A frame that dynamo skips and that has a failure of running code is skipped, not failed as by
    fullgraph=True.
    """
    ingest(
        store,
        (CompileStarted, FRAME),
        (RuntimeFailed, FRAME | {"position": 0, "compiled_us": 2}),
        (Compiled, FRAME | {"outcome": "skipped"}),
    )
    assert store.execute("select outcome from compiles").fetchone()[0] == "skipped"
    assert count(store) == (1, 1)


@pytest.mark.parametrize(
    ("later", "outcome", "counted"),
    [
        ([], "failed", (1, 0)),  # a log that ends there
        ([(Compiled, FRAME | {"outcome": "failed"})], "failed", (1, 0)),
        ([(CompileStarted, FRAME | {"attempt": 1})], "started", (0, 0)),
        ([(Compiled, FRAME | {"outcome": "compiled"})], "compiled", (0, 0)),
    ],
)
def test_a_compile_that_raised_is_counted_until_its_record_says_more(
    store: sqlite3.Connection, later: Any, outcome: str, counted: tuple[int, int]
) -> None:
    ingest(store, (CompileStarted, FRAME), (CompileFailed, FRAME | {"error_type": "E"}), *later)
    assert store.execute("select outcome from compiles").fetchone()[0] == outcome
    assert count(store) == counted
    assert not list(list_differences(store))


def test_a_failed_record_is_a_failure_without_its_exception_and_without_a_compile(
    store: sqlite3.Connection,
) -> None:
    failed = {"outcome": "failed", "metrics": {"fail_type": "KeyboardInterrupt"}}
    raised = {"outcome": "skipped", "metrics": {"fail_type": "Unsupported", "fail_reason": "why"}}
    rows = ingest(
        store,
        (CompileStarted, FRAME),
        (Compiled, FRAME | failed),
        (Compiled, raised),  # by `aot_compile`: no frame is skipped
    )
    values = [(row["compile_key"], row["error_type"], row["message"]) for row in rows]
    assert values == [(1, "KeyboardInterrupt", None), (None, "Unsupported", "why")]
    assert count(store) == (2, 0)
    assert not list(list_differences(store))


def test_an_exception_and_the_record_of_no_compile_are_one_failure(
    store: sqlite3.Connection,
) -> None:
    failed = {"outcome": "failed", "metrics": {"fail_type": "Unsupported", "fail_reason": "why"}}
    rows = ingest(
        store,
        (CompileFailed, {"error_type": "E", "message": "first"}),
        (Compiled, failed),
        (Compiled, failed),  # whose exception was not seen
        (CompileFailed, {"error_type": "E", "message": "third"}),
        (Compiled, failed),
    )
    assert [row["message"] for row in rows] == ["first", "why", "third"]
    assert count(store) == (3, 0)
    assert not list(list_differences(store))
