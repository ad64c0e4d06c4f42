"""The list of metrics: what each is called, its unit, and which way is better."""

from __future__ import annotations

from dataclasses import fields

import pytest

from compileboard.app.benchmarks.metrics import BY_NAME, METRICS, SUMMARY_BY_NAME, format_value
from compileboard.app.comparison.model import COMPARED as compared_by_app
from compileboard.collectors.contract.verdicts import COMPARED, find_direction
from compileboard.collectors.store.ingest.rows import NUMBERS
from compileboard.collectors.store.results import ResultRow


def test_every_number_of_a_result_is_a_metric_or_an_end_of_an_interval() -> None:
    ends = {end for metric in METRICS for end in (metric.low, metric.high) if end}
    assert set(NUMBERS) == {metric.name for metric in METRICS} | ends
    assert set(NUMBERS) <= {field.name for field in fields(ResultRow)}


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        (BY_NAME["speedup"], 1.23456, "1.235×"),
        (BY_NAME["abs_latency_ms"], 12.3456, "12.35 ms"),
        (BY_NAME["abs_latency_ms"], 12345.6, "12,346 ms"),
        (BY_NAME["abs_latency_ms"], -0.5, "−0.5 ms"),
        (BY_NAME["graph_breaks"], 0, "0"),
        (BY_NAME["graph_breaks"], None, "not recorded"),
        (SUMMARY_BY_NAME["pass_ratio"], 0.4545, "45.5%"),
        (SUMMARY_BY_NAME["graph_breaks_per_model"], 0.25, "0.25"),
    ],
)
def test_a_value_is_written_with_its_unit(metric: object, value: float | None, text: str) -> None:
    assert format_value(metric, value) == text  # type: ignore[arg-type]


def test_better_is_up_for_a_speedup_down_for_a_latency_and_neither_for_graphs() -> None:
    answers = [
        find_direction(BY_NAME[name], 1.0, 2.0)
        for name in ("speedup", "abs_latency_ms", "unique_graphs")
    ]
    assert answers == ["better", "worse", "changed"]
    assert find_direction(BY_NAME["speedup"], 1.0, 1.0) == "changed"


def test_terminal_and_dashboard_compare_metrics_of_the_same_names_and_directions() -> None:
    assert [compared_metric.name for compared_metric in COMPARED] == [
        metric.name for metric in compared_by_app
    ]
    for ours in COMPARED:
        theirs = BY_NAME[ours.name]
        assert (ours.label, ours.direction, ours.kind) == (
            theirs.label,
            theirs.direction,
            theirs.kind,
        )
