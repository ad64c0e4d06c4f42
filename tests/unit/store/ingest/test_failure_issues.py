"""Failures are one across runs by exception type, operation and message without values."""

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
    ReproCaptured,
    RuntimeFailed,
)
from compileboard.collectors.contract.failures import identify_failure
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.verification import list_differences

FRAME: dict[str, Any] = {"compile_id": "0/0", "frame_id": 0, "frame_compile_id": 0}
ISSUES = """
select i.error_type, i.operation, i.message, b.failure_count, b.compile_us
from run_issues as b
join failure_issues as i on i.id = b.issue_id
order by 1, 2
"""
TARGET = "call_function[target=torch.ops.aten.mul.Tensor]"
WITH_FAKES = "failed to run FX node with fake tensors: "
RAISED = Path(__file__).parents[3] / "data" / "raised"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_writer(tmp_path / "t.db")) as connection:
        migrate_connection(connection)
        yield connection


def ingest(store: sqlite3.Connection, *told: tuple[type[Event], dict[str, Any]]) -> list[Any]:
    """Ingest events one batch each, twice; return the failures across runs."""
    first: tuple[type[Event], dict[str, Any]] = (ProcessStarted, {"run_id": "R", "pid": 1})
    events = [kind("p", n, n, **values) for n, (kind, values) in enumerate([first, *told])]
    for _ in range(2):
        for event in events:
            Ingestor(store).ingest("R", [event])
    return [tuple(row) for row in store.execute(ISSUES)]


@pytest.mark.parametrize(
    ("message", "other"),
    [
        ("index 9 is out of range in /tmp/a/x.py:20", "index 1 is out of range in /srv/b.py:3"),
        ("got [3, 4] and 2x3 at 0x7f00aa", "got [17] and 256x8x1 at 0xbeef"),
        ("Eq(s0, 8) by u1", "Eq(s77, 9) by u12"),
        ("backend='a' raised:\nTypeError: no 3", "backend='b' raised:\nTypeError: no 4"),
    ],
)
def test_values_tell_no_failures_apart(message: str, other: str) -> None:
    assert identify_failure("E", message) == identify_failure("E", other)
    assert identify_failure("E", message).fingerprint != identify_failure("F", other).fingerprint
    assert identify_failure("E", message) != identify_failure("E", "another " + message)


@pytest.mark.parametrize(
    ("message", "operation"),
    [
        ("LoweringException: no\n  target: aten.atan.default\n", "aten.atan.default"),
        (f"bad\n\nWhile executing %mul : [num_users=1] = {TARGET}(args = ", "aten.mul.Tensor"),
        (f"Dynamo {WITH_FAKES}call_function <built-in function matmul>(*(", "matmul"),
        ("Failed running call_method view(*(FakeTensor", "view"),
        ("While executing nothing", None),
    ],
)
def test_the_operation_is_the_one_that_the_error_names(message: str, operation: str | None) -> None:
    assert identify_failure("E", message).operation == operation


def test_the_operation_is_the_node_of_the_graph_that_raised() -> None:
    text = (RAISED / "nested.txt").read_text()
    assert identify_failure("IndexError", "index 9", text).operation == "aten.index.Tensor"
    text = (RAISED / "inductor.txt").read_text()
    assert identify_failure("RuntimeError", "index 9", text).operation is None


def test_a_failed_compile_counts_once_with_its_time(store: sqlite3.Connection) -> None:
    failed = {"error_type": "BackendCompilerFailed", "message": "backend='b' raised:\nKeyError: 3"}
    other = FRAME | {"compile_id": "1/0", "frame_id": 1}
    issues = ingest(
        store,
        (CompileStarted, FRAME),
        (CompileFailed, FRAME | failed),
        (Compiled, FRAME | {"outcome": "failed", "duration_us": 700}),
        (CompileStarted, other),
        (CompileFailed, other | {"error_type": "Unsupported"}),
        (Compiled, other | {"outcome": "compiled", "duration_us": 9}),
    )
    assert issues == [("BackendCompilerFailed", None, "KeyError: N", 1, 700)]
    assert list(list_differences(store)) == []
    store.execute("update run_issues set failure_count = 2")
    assert ["failure_count is 2" in it for it in list_differences(store)] == [True]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_repro_belongs_to_its_failure(store: sqlite3.Connection, is_first: bool) -> None:
    manifest = {"format": 1, "kind": "runtime", "level": "aot", "error_type": "E"}
    told: list[tuple[type[Event], dict[str, Any]]] = [
        (ReproCaptured, {"manifest": manifest, "program": "def f(): 1", "failure_position": 4}),
        (RuntimeFailed, {"position": 4, "error_type": "E", "message": "no 5"}),
    ]
    issues = ingest(store, *(told if is_first else told[::-1]))
    assert issues == [("E", None, "no N", 1, 0)]
    row = store.execute("select r.issue_id, f.issue_id from repros as r, failures as f").fetchone()
    assert row[0] is not None and row[0] == row[1]
