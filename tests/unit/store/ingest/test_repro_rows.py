"""Captured graphs: one row a position, completed later, with the bytes of their inputs."""

from __future__ import annotations

import base64
import hashlib
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.contract.events import (
    CompileStarted,
    Event,
    ProcessStarted,
    ReproCaptured,
    ReproValues,
    RunEnded,
    RunStarted,
)
from compileboard.collectors.contract.repros import MAX_STORAGE_BYTES
from compileboard.collectors.store.bundles import merge_bundle, write_bundle
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.repros import (
    NoSuchRepro,
    ReproResult,
    list_repros,
    list_results,
    load_repro,
    load_storage,
    save_result,
)
from compileboard.collectors.store.trash import delete_run, prune_trash, restore_run

MANIFEST: dict[str, Any] = {
    "format": 1,
    "kind": "compile",
    "level": "aot",
    "error_type": "LoweringException",
    "message": "op 5 is odd",
    "operation": "aten.relu.default",
    "function": "f",
    "file": "m.py",
    "node_count": 9,
    "device": "cpu",
    "versions": {"torch": "2.13.0"},
    "inputs": [{"name": "x", "dtype": "float32", "shape": [8, "s0"]}],
}
FRAME: dict[str, Any] = {"compile_id": "0/0", "frame_id": 0, "frame_compile_id": 0}
RUN: list[Event] = [
    RunStarted("r", 0, 1, run_id="R", name="train.py"),
    ProcessStarted("p", 0, 1, run_id="R", pid=1),
]
END = RunEnded("r", 9, 9, run_id="R", state="killed", signal="SIGSEGV")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_writer(tmp_path / "t.db")) as connection:
        migrate_connection(connection)
        Ingestor(connection).ingest("R", RUN)
        yield connection


def captured(sequence: int = 1, program: str = "graph", **fields: Any) -> ReproCaptured:
    return ReproCaptured(
        "p", sequence, sequence, **{"manifest": MANIFEST, "program": program, **fields}
    )


def values(body: bytes, digest: str | None = None, sequence: int = 5) -> ReproValues:
    packed = base64.b64encode(zlib.compress(body)).decode()
    return ReproValues(
        "p", sequence, sequence, 0, digest or hashlib.sha256(body).hexdigest(), packed
    )


def ingest(store: sqlite3.Connection, *events: Event) -> list[str]:
    return [refused.reason for refused in Ingestor(store).ingest("R", events).refused]


def count(store: sqlite3.Connection, table: str) -> int:
    return int(store.execute(f"select count(*) from {table}").fetchone()[0])


def test_a_repro_comes_back_as_it_was_captured(store: sqlite3.Connection) -> None:
    for _ in range(2):
        assert (
            ingest(
                store,
                CompileStarted("p", 1, 1, **FRAME),
                captured(2, dynamo_program="dynamo", **FRAME),
            )
            == []
        )
    (line,) = list_repros(store, "R")
    assert (line.error_type, line.operation, line.node_count) == (
        "LoweringException",
        "aten.relu.default",
        9,
    )
    repro = load_repro(store, line.id[:6])
    assert (repro.id, repro.program, repro.dynamo_program) == (line.id, "graph", "dynamo")
    assert repro.manifest.inputs[0].shape == (8, "s0")
    assert store.execute("select compile_key from repros").fetchone()[0] == 1


def test_a_second_record_of_a_position_completes_the_first(store: sqlite3.Connection) -> None:
    ingest(store, captured(1, manifest={**MANIFEST, "operation": None}, failure_position=3))
    ingest(store, captured(2, program="", manifest={**MANIFEST, "operation": "aten.atan.default"}))
    (line,) = list_repros(store)
    assert line.operation == "aten.atan.default"
    assert load_repro(store, line.id).program == "graph"
    assert store.execute("select failure_position from repros").fetchone()[0] == 3


def test_values_come_back_to_the_bit(store: sqlite3.Connection) -> None:
    body = bytes(range(256)) * 40
    for _ in range(2):
        assert ingest(store, captured(), values(body)) == []
    repro = load_repro(store, list_repros(store)[0].id)
    assert repro.storage_bytes == {hashlib.sha256(body).hexdigest(): len(body)}
    assert load_storage(store, repro.id, next(iter(repro.storage_bytes))) == body
    assert load_storage(store, repro.id, "0" * 64) is None


def test_a_bad_record_costs_itself_alone(store: sqlite3.Connection) -> None:
    odd: list[Event] = [
        captured(2, "", position=1),
        captured(3, position=2, manifest={"kind": "other"}),
        values(b"right", digest="0" * 64),
        values(b"0" * (MAX_STORAGE_BYTES + 1), sequence=6),
        ReproValues("p", 7, 7, 0, "0" * 64, "not base64!"),
        ReproValues("p", 8, 8, 0, "0" * 64, base64.b64encode(b"not zlib").decode()),
        ReproValues(
            "p",
            9,
            9,
            5,
            hashlib.sha256(b"").hexdigest(),
            base64.b64encode(zlib.compress(b"")).decode(),
        ),
    ]
    assert len(ingest(store, captured(1), *odd)) == len(odd)
    assert (count(store, "repros"), count(store, "repro_storages")) == (1, 0)


@pytest.fixture
def whole(store: sqlite3.Connection) -> sqlite3.Connection:
    """A run with a repro that has values and results."""
    ingest(store, captured(dynamo_program="dynamo"), values(b"1234"), END)
    result = ReproResult(
        "minify", "minimal", 1.5, 10, 20, "aten.relu.default", 1, detail={"a": [1]}, program="small"
    )
    save_result(store, list_repros(store)[0].id, result)
    return store


def test_results_are_saved_and_publish_their_run(whole: sqlite3.Connection) -> None:
    (line,) = list_repros(whole)
    before = whole.execute("select pub from runs").fetchone()[0]
    save_result(whole, line.id, ReproResult("run", "reproduced", 0.5, 30, 40))
    newest, oldest = list_results(whole, line.id)
    assert (newest.command, newest.program, newest.detail) == ("run", None, {})
    assert (oldest.program, oldest.detail, oldest.node_count) == ("small", {"a": [1]}, 1)
    assert whole.execute("select pub from runs").fetchone()[0] > before
    with pytest.raises(ValueError, match="is not a command"):
        save_result(whole, line.id, ReproResult("erase", "", 0, 0, 0))


def test_an_id_of_no_repro_says_so(whole: sqlite3.Connection) -> None:
    for odd, words in (
        ("0" * 16, "no repro of this database"),
        ("x.py", "is not the id of a repro"),
        ("", "no repro|several"),
    ):
        with pytest.raises(NoSuchRepro, match=words):
            load_repro(whole, odd or "7f")


def test_a_repro_goes_and_comes_back_with_its_run(whole: sqlite3.Connection) -> None:
    (line,) = list_repros(whole)
    before = [load_repro(whole, line.id), list_results(whole, line.id)]
    assert delete_run(whole, "R")
    assert list_repros(whole) == [] and count(whole, "repro_storages") == 0
    prune_trash(whole)
    assert restore_run(whole, "R")
    assert [load_repro(whole, line.id), list_results(whole, line.id)] == before
    assert delete_run(whole, "R")
    prune_trash(whole, age_us=0)
    assert count(whole, "payloads") == 0


def test_a_bundle_takes_repros_along(whole: sqlite3.Connection, tmp_path: Path) -> None:
    (line,) = list_repros(whole)
    write_bundle(whole, ["R"], str(tmp_path / "bundle.db"))
    with closing(open_writer(tmp_path / "other.db")) as other:
        migrate_connection(other)
        assert [run.state for run in merge_bundle(other, str(tmp_path / "bundle.db"))] == ["new"]
        assert load_repro(other, line.id) == load_repro(whole, line.id)
        assert list_results(other, line.id) == list_results(whole, line.id)
