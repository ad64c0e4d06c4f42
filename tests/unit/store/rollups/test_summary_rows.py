"""Summaries kept by ingest equal those of the rows, in whatever order they came."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.store.results import COLUMNS, merge_results, read_measured
from compileboard.collectors.store.rollups import DEFINITIONS, NUMBERS, summarize
from tests.unit.app.benched import ACCURACY, MLP, RUNS, add_results, bench_suite, measure


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    migrate(tmp_path / "t.db")
    with closing(open_writer(tmp_path / "t.db")) as connection:
        yield connection


def read_kept(store: sqlite3.Connection) -> list[dict[str, object]]:
    rows = store.execute("select * from run_summaries order by run_id, suite, backend, definition")
    return [dict(row) for row in rows]


def test_the_kept_numbers_are_those_of_the_rows_by_every_definition(
    store: sqlite3.Connection,
) -> None:
    bench_suite(store)
    cursor = store.execute(f"select {COLUMNS} from results x join series s on s.id = x.series_id")
    rows = [result for result in merge_results(read_measured(cursor)) if result.run_id == RUNS[0]]
    summaries = {row["definition"]: row for row in read_kept(store) if row["run_id"] == RUNS[0]}
    for name, definition in DEFINITIONS.items():
        summary = summarize(rows, definition)
        for number in NUMBERS:
            assert summaries[name][number] == getattr(summary, number), number
    assert (summaries["hud"]["total_count"], summaries["hud"]["failed_count"]) == (11, 3)


def test_a_wrong_answer_counts_as_failed_and_not_as_measured(store: sqlite3.Connection) -> None:
    wrong = {"accuracy": "fail_accuracy", "status": "failed", "reason": "fail_accuracy"}
    add_results(store, "RUN", MLP, measure(**ACCURACY | wrong))
    assert {(row["measured_count"], row["failed_count"]) for row in read_kept(store)} == {(0, 1)}


def test_a_result_that_comes_later_is_counted_and_a_deleted_run_leaves_nothing(
    store: sqlite3.Connection,
) -> None:
    add_results(store, "RUN", MLP)
    assert [row["passed_count"] for row in read_kept(store)] == [None, None, None]
    Ingestor(store).ingest("RUN", [measure(process_id="RUN/bench", sequence=99, **ACCURACY)])
    assert [(row["definition"], row["passed_count"]) for row in read_kept(store)] == [
        ("hud", 1),
        ("runner", 1),
        ("summarize_perf", None),
    ]
    store.execute("delete from runs where id = 'RUN'")
    assert read_kept(store) == []


def test_what_is_no_headline_result_makes_no_summary(store: sqlite3.Connection) -> None:
    add_results(
        store,
        "RUN",
        measure(experiment="coverage", backend="eager", values={"pct_ops": 1.0}, repeats={}),
    )
    assert read_kept(store) == []


def test_an_exports_pass_rate_asks_for_no_speedup(store: sqlite3.Connection) -> None:
    made = {"experiment": "export", "backend": "export", "repeats": {}}
    failed = {"status": "failed", "reason": "fail_to_run", "accuracy": "fail_to_run", "values": {}}
    package = {
        "experiment": "aot_inductor",
        "backend": "aot_inductor",
        "accuracy": "pass",
        "repeats": {},
    }
    add_results(
        store,
        "RUN",
        measure(**made, accuracy="pass", values={"export_latency": 0.5, "output_error": 0.0}),
        measure(**made, **failed, model="branchy"),
        measure(**package, values={"speedup": 1.2, "package_bytes": 3e6, "load_latency": 0.02}),
        measure(
            **package,
            model="conv",
            values={"speedup": 1.1, "package_bytes": 1e6, "load_latency": 0.01},
        ),
    )
    by_backend = {row["backend"]: row for row in read_kept(store) if row["definition"] == "hud"}
    assert (by_backend["export"]["passed_count"], by_backend["export"]["total_count"]) == (1, 2)
    package_row = by_backend["aot_inductor"]
    assert (
        package_row["passed_count"],
        package_row["package_bytes"],
        package_row["load_latency_s"],
    ) == (2, 2e6, 0.015)


def test_a_second_experiment_of_inductors_completes_its_row(store: sqlite3.Connection) -> None:
    second = measure(
        experiment="caching_precompile", values={"second_process_latency": 5.1}, repeats={}
    )
    add_results(store, "RUN", MLP, second)
    cursor = store.execute(f"select {COLUMNS} from results x join series s on s.id = x.series_id")
    (row,) = merge_results(read_measured(cursor))
    assert (row.speedup, row.second_process_latency_s) == (1.25, 5.1)
    assert row.experiments == ("performance", "caching_precompile")


@settings(max_examples=20)
@given(
    order=st.permutations(
        [MLP, measure(**ACCURACY), measure(model="other"), measure(backend="eager")]
    )
)
def test_the_order_of_the_results_does_not_matter(
    store: sqlite3.Connection, order: list[BenchMeasured]
) -> None:
    store.execute("delete from runs")
    add_results(store, "RUN", *order)
    counts = {
        (row["backend"], row["definition"]): (row["total_count"], row["passed_count"])
        for row in read_kept(store)
    }
    assert counts["inductor", "hud"] == (2, 1)
    assert counts["eager", "hud"] == (1, 1)
    assert counts["inductor", "summarize_perf"] == (2, None)
