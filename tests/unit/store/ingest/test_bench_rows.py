"""Benchmark results: a row a run, a series and an experiment, whatever came when."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from compileboard.collectors.contract.events import BenchMeasured, Event
from compileboard.collectors.store.codec import unpack
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection

FIRST = BenchMeasured(
    process_id="bench",
    sequence=1,
    time_us=1_000,
    suite="builtin",
    model="mlp",
    experiment="performance",
    mode="inference",
    device="cpu",
    batch_size=8,
    values={"speedup": 1.25, "graph_breaks": 2.0, "odd column": 7.5, "abs_latency": float("nan")},
    repeats={"eager": [1.0, 1.5], "compiled": [0.8, 1.2]},
)


@pytest.fixture
def store(tmp_path: Path) -> sqlite3.Connection:
    connection = open_writer(tmp_path / "results.db")
    migrate_connection(connection)
    return connection


def rows(store: sqlite3.Connection, *events: Event) -> list[sqlite3.Row]:
    Ingestor(store).ingest("RUN", events)
    return store.execute("select * from results order by id").fetchall()


def test_a_result_keeps_known_numbers_in_columns_and_the_others_by_name(
    store: sqlite3.Connection,
) -> None:
    (row,) = rows(store, FIRST)
    assert (row["speedup"], row["graph_breaks"], row["abs_latency_ms"]) == (1.25, 2, None)
    assert [tuple(row) for row in store.execute("select name, value from result_values")] == [
        ("odd column", 7.5)
    ]
    repeats = {
        row["name"]: json.loads(unpack(row["body"]))
        for row in store.execute("select * from result_repeats")
    }
    assert repeats == FIRST.repeats


@pytest.mark.parametrize(
    ("reason", "breaks"), [("fail_to_run", [None, 2]), ("fail_accuracy", [0, 2])]
)
def test_a_model_that_did_not_run_to_its_end_has_no_count_of_0(
    store: sqlite3.Connection, reason: str, breaks: list[int | None]
) -> None:
    failed = replace(
        FIRST, status="failed", reason=reason, values={"graph_breaks": 0.0, "unique_graphs": 1.0}
    )
    broken = replace(
        failed, sequence=2, model="cnn", values={"graph_breaks": 2.0, "recompiles": 0.0}
    )
    assert [row["graph_breaks"] for row in rows(store, failed, broken)] == breaks
    mean = "select graph_breaks_per_model from run_summaries where definition = 'hud'"
    known = [count for count in breaks if count is not None]
    assert store.execute(mean).fetchone()[0] == sum(known) / len(known)


def test_a_result_given_twice_is_one(store: sqlite3.Connection) -> None:
    rows(store, FIRST)
    assert len(rows(store, FIRST)) == 1
    assert store.execute("select result_count from run_totals").fetchone()[0] == 1


def test_a_twin_from_another_file_adds_only_what_was_not_said(store: sqlite3.Connection) -> None:
    twin = replace(FIRST, process_id="json", values={"speedup": 9.0, "abs_latency": 3.5})
    (row,) = rows(store, FIRST, twin)
    assert (row["speedup"], row["abs_latency_ms"]) == (1.25, 3.5)


def test_another_batch_size_or_experiment_is_another_row_of_its_own_or_the_same_series(
    store: sqlite3.Connection,
) -> None:
    other = replace(FIRST, sequence=2, batch_size=16)
    failed = replace(
        FIRST, sequence=3, experiment="accuracy", status="failed", reason="OOM", values={}
    )
    recorded = rows(store, FIRST, other, failed)
    first, second = [
        row["id"] for row in store.execute("select id from series order by batch_size")
    ]
    assert [row["series_id"] for row in recorded] == [first, second, first]
    assert tuple(
        store.execute("select result_count, failed_result_count from run_totals").fetchone()
    ) == (3, 1)
