"""Results of a run: what several experiments said becomes one row a model and metric set."""

from __future__ import annotations

import sqlite3

from compileboard.app.benchmarks.run_queries import get_result_parts, list_results, load_measured
from tests.unit.app.benched import ACCURACY, MLP, add_results, measure


def test_accuracy_completes_the_performance_of_its_model(
    store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    add_results(store, "RUN", MLP, measure(**ACCURACY, batch_size=4))
    (row,) = list_results(reader, "RUN")
    assert (row.batch_size, row.speedup, row.accuracy, row.graph_breaks) == (8, 1.25, "pass", 0)
    assert (row.experiments, row.tasks) == (
        ("performance", "accuracy"),
        ("mlp-performance", "mlp-accuracy"),
    )
    assert (row.gpu, row.hardware, row.command) == (None, "AMD EPYC 9654", MLP.command)


def test_the_compile_time_of_an_accuracy_run_is_another_quantity(
    store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    add_results(store, "RUN", measure(**ACCURACY))
    (row,) = list_results(reader, "RUN")
    assert (row.status, row.accuracy, row.compilation_latency_s, row.calls_captured) == (
        "measured",
        "pass",
        None,
        7,
    )


def test_a_failed_performance_takes_no_speedup_from_another_experiment(
    store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    failed = measure(
        status="failed", reason="OOM", values={}, repeats={}, message="CUDA out of memory"
    )
    add_results(store, "RUN", measure(experiment="overhead"), failed, measure(**ACCURACY))
    (row,) = list_results(reader, "RUN")
    assert (row.status, row.reason, row.speedup, row.accuracy) == ("failed", "OOM", None, "pass")


def test_an_interval_comes_with_its_own_speedup(
    store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    other = measure(
        experiment="dynamic_shapes",
        values={"speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1},
    )
    add_results(store, "RUN", measure(values={"speedup": 1.25}), other)
    (row,) = list_results(reader, "RUN")
    assert (row.speedup, row.speedup_low, row.speedup_high) == (1.25, None, None)


def test_each_batch_size_that_was_performed_is_a_row(
    store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    add_results(store, "RUN", MLP, measure(batch_size=16), measure(**ACCURACY, batch_size=16))
    rows = list_results(reader, "RUN")
    assert [(row.batch_size, row.accuracy) for row in rows] == [(8, "pass"), (16, "pass")]


def test_what_was_not_said_is_none(store: sqlite3.Connection, reader: sqlite3.Connection) -> None:
    add_results(
        store, "RUN", measure(dtype=None, device="cuda", hardware=None, batch_size=None, values={})
    )
    (row,) = list_results(reader, "RUN")
    nothing = ("dtype", "hardware", "gpu", "batch_size", "speedup", "recompiles", "accuracy")
    assert [getattr(row, name) for name in nothing] == [None] * len(nothing)
    assert row.dynamic is False


def test_parts_and_events_give_back_what_came(
    store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    add_results(
        store,
        "RUN",
        measure(values={"speedup": 1.25, "pct_ops": 98.5}, facts={"noise": 0.02}, traceback="Tb"),
    )
    (row,) = list_results(reader, "RUN")
    parts = get_result_parts(reader, row.id)
    assert parts is not None
    assert (parts.values, parts.repeats, parts.facts) == (
        {"pct_ops": 98.5},
        MLP.repeats,
        {"noise": 0.02},
    )
    assert (parts.traceback, get_result_parts(reader, 999)) == ("Tb", None)
    (event,) = load_measured(reader, "RUN")
    assert (event.values, event.repeats) == ({"speedup": 1.25, "pct_ops": 98.5}, MLP.repeats)
