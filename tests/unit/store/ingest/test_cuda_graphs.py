"""CUDA graphs of programs in benchmarks/cuda_graphs/programs.py, recorded on an H200."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection
from tests.tools.make_db import DATA, record_events


@pytest.fixture
def store(tmp_path: Path) -> sqlite3.Connection:
    connection = open_writer(tmp_path / "t.db")
    migrate_connection(connection)
    return connection


def record(store: sqlite3.Connection, name: str) -> list[sqlite3.Row]:
    record_events(Ingestor(store), DATA / "events" / f"torch2.11-cuda-graphs-{name}.jsonl.xz")
    return store.execute("select * from cudagraphs order by id").fetchall()


def test_a_parameter_that_was_replaced_is_named_by_type_and_shape(store: sqlite3.Connection):
    warm_up, first, again = record(store, "parameter_replaced")
    assert (warm_up["stage"], first["stage"], first["status"]) == ("warm_up", "recording", None)
    ((reason),) = json.loads(again["reasons"])
    assert (reason["graph"], reason["status"]) == (first["graph"], "StaticInputIdxMismatch")
    (moved,) = reason["inputs"]
    assert (moved["name"], moved["dtype"], moved["shape"]) == ("arg0_1", "torch.float32", [64, 64])


def test_a_recording_belongs_to_its_compile_and_its_path(store: sqlite3.Connection):
    graphs = record(store, "another_output")
    last = graphs[-1]
    assert (last["compile_id"], last["parent_graph"], last["depth"]) == ("1/0", 4, 5)
    assert last["compile_key"] is not None
    (moved,) = json.loads(last["reasons"])[0]["inputs"]
    assert "x / x.norm()" in moved["stack"][0]["code"]


def test_the_totals_of_a_run_count_them(store: sqlite3.Connection):
    record(store, "another_output")
    totals = dict(store.execute("select * from run_totals").fetchone())
    assert totals["cudagraph_recording_count"] == 10
    assert totals["cudagraph_rerecording_count"] == 4


def test_two_continuations_are_two_functions(store: sqlite3.Connection):
    graphs = record(store, "branches")
    places = [(row["compile_id"], row["parent_graph"]) for row in graphs if row["graph"] >= 0]
    assert places == [("0/0", None), ("1/0", 0), ("2/0", 0)]
