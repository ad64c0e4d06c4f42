"""Headline numbers of a suite: each definition as its own source has it."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.store.results import ResultRow, merge_results
from compileboard.collectors.store.rollups import HUD, RUNNER, SUMMARIZE_PERF, geomean, summarize
from tests.unit.app.benchmarks.test_result_table import make_measured

ROW = merge_results([make_measured()])[0]
SPEEDS = (0.8, 1.0, 1.5, 2.0)


def rows(*changes: dict[str, Any]) -> list[ResultRow]:
    return [replace(ROW, model=str(n), **change) for n, change in enumerate(changes)]


SUITE = rows(
    *(
        {
            "accuracy": "pass",
            "speedup": speed,
            "compilation_latency_s": 10 * speed,
            "dynamo_peak_mem_gb": 1.0,
        }
        for speed in SPEEDS
    )
)


def test_the_three_definitions_differ_as_measured_in_the_sources() -> None:
    assert summarize(SUITE, HUD).geomean_speedup == pytest.approx(1.244665954, abs=1e-9)
    assert summarize(SUITE, SUMMARIZE_PERF).geomean_speedup == pytest.approx(1.244665954, abs=1e-9)
    assert summarize(SUITE, RUNNER).geomean_speedup == pytest.approx(1.316074013, abs=1e-9)


def test_hud_counts_what_passes_and_has_a_speedup_of_all() -> None:
    more = rows(
        {"accuracy": "pass", "speedup": None, "status": "failed"},
        {"accuracy": "fail_accuracy", "speedup": 9.0},
        {"accuracy": "pass_due_to_skip", "speedup": None},
        {"accuracy": "eager_variation", "speedup": 1.0},
        {"accuracy": None, "speedup": None, "status": "not_run"},
    )
    summary = summarize([*SUITE, *more], HUD)
    assert (summary.passed_count, summary.total_count, summary.speedup_count) == (6, 9, 5)
    assert summary.pass_ratio == pytest.approx(6 / 9)


def test_hud_leaves_zeros_out_of_every_mean_but_that_of_peak_memory() -> None:
    more = rows(
        {
            "accuracy": "pass",
            "speedup": 1.0,
            "compilation_latency_s": 0.0,
            "dynamo_peak_mem_gb": 0.0,
        }
    )
    summary = summarize([*SUITE, *more], HUD)
    assert summary.compilation_latency_s == pytest.approx(13.25)
    assert summary.dynamo_peak_mem_gb == pytest.approx(0.8)


def test_what_nobody_measured_is_none_and_never_zero() -> None:
    summary = summarize(rows({"accuracy": None, "speedup": 1.5}), HUD)
    assert (
        summary.passed_count,
        summary.pass_ratio,
        summary.geomean_speedup,
        summary.dynamo_peak_mem_gb,
    ) == (None,) * 4
    assert summarize([], HUD).pass_ratio is None


def test_a_run_of_accuracy_alone_has_no_pass_rate_instead_of_none_passing() -> None:
    judged = rows({"accuracy": "pass", "speedup": None, "experiments": ("accuracy",)})
    assert [summarize(judged, definition).pass_ratio for definition in (HUD, RUNNER)] == [
        None,
        None,
    ]
    failed = rows(
        {
            "accuracy": "pass",
            "speedup": None,
            "status": "failed",
            "experiments": ("performance", "accuracy"),
        }
    )
    assert summarize(failed, HUD).pass_ratio == 0.0


def test_what_was_neither_timed_nor_judged_is_no_model_of_the_headline() -> None:
    more = rows({"experiments": ("coverage",), "backend": "eager", "accuracy": None})
    assert summarize([*SUITE, *more], HUD) == summarize(SUITE, HUD)


def test_eager_always_passes_and_export_needs_no_speedup() -> None:
    assert (
        summarize(rows({"backend": "eager", "speedup": 1.0, "accuracy": None}), HUD).passed_count
        == 1
    )
    assert (
        summarize(
            rows({"backend": "export", "speedup": None, "accuracy": "pass"}), HUD
        ).passed_count
        == 1
    )


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=60))
def test_geomean_is_the_root_of_the_product(values: list[float]) -> None:
    assert geomean(values) == pytest.approx(prod(values) ** (1 / len(values)), rel=1e-9)
