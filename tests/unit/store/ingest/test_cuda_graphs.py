"""CUDA graphs of programs in benchmarks/cuda_graphs/programs.py, recorded on an H200."""

from __future__ import annotations

import json
import lzma
import sqlite3
from pathlib import Path

import pytest

from compileboard.collectors.store.connection import open_writer, write_transaction
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.pruning import PruneRule, prune_runs
from compileboard.collectors.store.reopening import reopen_run
from compileboard.collectors.store.verification import list_differences
from tests.tools.make_db import DATA, record_events
from tests.unit.store.sealed.sealed_board import seal_all


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


RERECORDINGS = """
select r.status, r.inputs, r.source_line, f.name, b.rerecording_count, b.duration_us
from run_rerecordings as b
join rerecording_reasons as r on r.id = b.reason_id
left join functions as f on f.id = r.function_id
"""
MOVED = (
    "CudagraphManagedIdxMismatch",
    "arg0_1 float32[8, 64]",
    'norm = torch.compile(lambda x: x / x.norm(), mode="reduce-overhead")',
    *("another_output.<locals>.<lambda>", 4, 6366),
)


def test_reasons_are_counted_by_function_and_their_time_is_that_of_recording(
    store: sqlite3.Connection,
):
    record(store, "another_output")
    assert [tuple(row) for row in store.execute(RERECORDINGS)] == [MOVED]
    assert list(list_differences(store)) == []
    store.execute("update run_rerecordings set rerecording_count = 9, duration_us = 1")
    (difference,) = list_differences(store)
    assert "rerecording_count is 9, its rows come to 4; duration_us is 1, its rows" in difference


def test_reasons_outlast_the_rows_they_were_counted_from(store: sqlite3.Connection):
    record(store, "another_output")
    assert len(list(prune_runs(store, PruneRule(2**60), 2**60))) == 1
    assert store.execute("select count(*) from cudagraphs").fetchone()[0] == 0
    assert [tuple(row) for row in store.execute(RERECORDINGS)] == [MOVED]


def test_reasons_come_back_from_a_sealed_run(store: sqlite3.Connection):
    record(store, "another_output")
    (run_id,) = seal_all(store)
    assert store.execute(RERECORDINGS).fetchall() == []
    with write_transaction(store):
        assert reopen_run(store, run_id)
    assert [tuple(row) for row in store.execute(RERECORDINGS)] == [MOVED]


def test_a_graph_is_warmed_up_or_recorded_first_for_no_reason(store: sqlite3.Connection):
    rows = record(store, "parameter_replaced")
    assert [row["reason_id"] is None for row in rows] == [row["status"] is None for row in rows]


def test_a_name_in_the_graph_is_a_position_and_no_part_of_a_reason(
    store: sqlite3.Connection, tmp_path: Path
):
    record(store, "parameter_replaced")
    path = DATA / "events/torch2.11-cuda-graphs-parameter_replaced.jsonl.xz"
    text = lzma.decompress(path.read_bytes()).decode().replace('"arg0_1"', '"arg1_1"')
    for row in store.execute("select id from runs union select id from processes").fetchall():
        text = text.replace(row["id"], f"{row['id'][:-1]}X")
    shifted = tmp_path / "shifted.jsonl.xz"
    shifted.write_bytes(lzma.compress(text.encode()))
    record_events(Ingestor(store), shifted)
    assert store.execute("select count(*) from run_rerecordings").fetchone()[0] == 2
    assert [*store.execute("select inputs from rerecording_reasons").fetchone()] == [
        "arg0_1 float32[64, 64]"
    ]
    assert store.execute("select count(*) from rerecording_reasons").fetchone()[0] == 1
