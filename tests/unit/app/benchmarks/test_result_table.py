"""What several experiments said becomes one row a model and metric set; and the words for it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from compileboard.app.benchmarks.labels import (
    describe_accuracy,
    describe_missing,
    describe_speedup,
    describe_status,
)
from compileboard.app.benchmarks.matrix import ORDERS, paginate, sort_results
from compileboard.app.core.page import FilterError
from compileboard.collectors.store.results import ExperimentResult, ResultRow, merge_results

_NOTHING: dict[str, Any] = {field.name: None for field in fields(ExperimentResult)}


def make_measured(**changes: Any) -> ExperimentResult:
    """Make what one experiment said of a model, with some of it changed."""
    known = {
        "id": 1,
        "run_id": "RUN",
        "suite": "builtin",
        "model": "mlp",
        "dynamic": False,
        "world_size": 1,
    }
    more = {"status": "measured", "experiment": "performance", "time_us": 1, "batch_size": 8}
    return ExperimentResult(**(_NOTHING | known | more | changes))


def test_the_leading_experiment_gives_the_batch_size_and_the_status() -> None:
    performed = make_measured(status="failed", reason="OOM", batch_size=64)
    judged = make_measured(
        id=2, experiment="accuracy", accuracy="pass", batch_size=4, graph_breaks=3
    )
    (row,) = merge_results([judged, performed])
    assert (row.id, row.batch_size, row.status, row.reason) == (1, 64, "failed", "OOM")
    assert (row.accuracy, row.graph_breaks, row.experiments) == (
        "pass",
        3,
        ("performance", "accuracy"),
    )


def test_a_wrong_answer_fails_the_row_and_keeps_its_numbers() -> None:
    timed = make_measured(speedup=2.0, command="performance")
    wrong = make_measured(
        id=2,
        experiment="accuracy",
        status="failed",
        reason="fail_accuracy",
        accuracy="fail_accuracy",
    )
    (row,) = merge_results([timed, replace(wrong, command="accuracy", message="RMSE 0.5")])
    assert (row.status, row.reason, row.speedup) == ("failed", "fail_accuracy", 2.0)
    assert (row.command, row.message) == ("accuracy", "RMSE 0.5")
    (oom,) = merge_results([replace(timed, status="failed", reason="OOM"), wrong])
    assert (oom.reason, oom.command) == ("OOM", "performance")


def test_a_count_of_zero_is_a_count() -> None:
    (row,) = merge_results(
        [make_measured(graph_breaks=0), make_measured(id=2, experiment="accuracy", graph_breaks=5)]
    )
    assert row.graph_breaks == 0


def test_experiments_without_performance_make_the_row_themselves() -> None:
    (row,) = merge_results(
        [
            make_measured(experiment="coverage", calls_captured=4),
            make_measured(id=2, experiment="accuracy"),
        ]
    )
    assert (row.id, row.experiments, row.calls_captured) == (2, ("accuracy", "coverage"), 4)


def test_other_hardware_or_another_backend_is_another_model() -> None:
    measured = [
        make_measured(),
        make_measured(id=2, hardware="H200"),
        make_measured(id=3, backend="eager"),
        make_measured(id=4, dynamic=True),
    ]
    assert len(merge_results(measured)) == 4


@pytest.mark.parametrize(
    ("changes", "word", "kind"),
    [
        ({}, "measured", "good"),
        ({"status": "failed", "reason": "OOM"}, "failed: out of memory", "bad"),
        ({"status": "failed", "reason": "eager_9th_run_fail"}, "failed: eager_9th_run_fail", "bad"),
        ({"status": "failed"}, "failed", "bad"),
        ({"status": "skipped", "reason": "needs timm"}, "skipped: needs timm", "quiet"),
        ({"status": "not_run"}, "not run", "warn"),
    ],
)
def test_each_status_has_its_words(changes: dict[str, Any], word: str, kind: str) -> None:
    assert describe_status(row(**changes))[:2] == (word, kind)


def row(**changes: Any) -> ResultRow:
    (merged,) = merge_results([make_measured()])
    return replace(merged, **changes)


def test_a_speedup_whose_interval_spans_one_is_no_clear_difference() -> None:
    def verdict(low: float | None, high: float | None) -> str | None:
        word = describe_speedup(row(speedup=1.0, speedup_low=low, speedup_high=high))
        return word.word if word else None

    assert [verdict(0.98, 1.02), verdict(1.0, 1.1)] == ["no clear difference"] * 2
    assert [verdict(1.01, 1.1), verdict(0.5, 0.9), verdict(None, None)] == [
        "faster",
        "slower",
        None,
    ]


def test_a_cell_without_a_number_says_why() -> None:
    statuses = ("measured", "failed", "skipped", "not_run")
    assert [describe_missing(row(status=status)) for status in statuses] == [
        "not measured",
        "failed",
        "skipped",
        "not run",
    ]
    assert [
        describe_accuracy(accuracy).kind
        for accuracy in ("pass", "fail_accuracy", None, "pass_new", "odd")
    ] == [
        *("good", "bad", "quiet"),
        *("quiet", "bad"),
    ]


@pytest.mark.parametrize("order", ORDERS)
def test_what_has_no_value_comes_last_in_either_direction(order: str) -> None:
    names = (
        "speedup",
        "abs_latency_ms",
        "compilation_latency_s",
        "dynamo_peak_mem_gb",
        "compression_ratio",
    )
    numbers: dict[str, Any] = dict.fromkeys(names, 1.0) | {"accuracy": "pass"}
    counts = dict.fromkeys(("graph_breaks", "recompiles", "calls_captured"), 0)
    rows = [
        row(model="a"),
        row(model="b", **numbers, **counts),
        row(model="c", **numbers, **counts),
    ]
    for end in ("", ".asc"):
        actual = [result.model for result in sort_results(rows, order + end)]
        assert sorted(actual) == ["a", "b", "c"]
        if order not in ("worst", "model", "status", "time"):
            assert actual == ["b", "c", "a"]


def test_a_page_is_cut_and_a_bad_order_refused() -> None:
    first = paginate([1, 2, 3], None, 2)
    assert (first.rows, paginate([1, 2, 3], first.next, 2)) == ((1, 2), paginate([3], None, 2))
    with pytest.raises(FilterError, match="sort: 'nope'"):
        sort_results([], "nope")


def test_failed_models_come_first_then_what_is_slower_beyond_noise() -> None:
    rows = [
        row(model="fast", speedup=1.5, speedup_low=1.4, speedup_high=1.6),
        row(model="unclear", speedup=0.9, speedup_low=0.7, speedup_high=1.1),
        row(model="slow", speedup=0.93, speedup_low=0.9, speedup_high=0.95),
        row(model="slowest", speedup=0.5),
        row(model="left", status="not_run"),
        row(model="out", status="skipped"),
        row(model="failed", status="failed"),
    ]
    ordered = [result.model for result in sort_results(rows, "worst")]
    assert ordered == ["failed", "slowest", "slow", "left", "unclear", "fast", "out"]
