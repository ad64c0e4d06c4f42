"""A change is over the models of both sides: what one side lacks moves nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.benchmarks.metrics import SUMMARY_BY_NAME
from compileboard.app.benchmarks.summaries import SummaryDelta, compare
from compileboard.collectors.store.results import ResultRow, fill
from compileboard.collectors.store.rollups import DEFINITIONS, HUD
from tests.unit.app.benchmarks.test_suite_summaries import ROW

SPEEDS = st.lists(st.floats(0.1, 9), min_size=1, max_size=40)


def find(deltas: list[SummaryDelta], name: str) -> SummaryDelta:
    return next(delta for delta in deltas if delta.metric.name == name)


def make(model: int, speedup: float | None, **changes: Any) -> ResultRow:
    values = {"model": f"m{model}", "speedup": speedup, "accuracy": "pass"}
    return fill(ResultRow, vars(ROW) | values | changes)


@given(speeds=SPEEDS, count=st.integers(1, 40), definition=st.sampled_from([*DEFINITIONS.values()]))
def test_dropping_models_from_one_side_changes_nothing(
    speeds: list[float], count: int, definition: Any
) -> None:
    base = [make(number, speed) for number, speed in enumerate(speeds)]
    delta = find(compare(base, base[:count], definition), "geomean_speedup")
    assert delta.base == delta.new
    assert delta.model_count == min(count, len(base))
    assert find(compare(base, base[:count], HUD), "pass_ratio").text == "±0.0 points"


@given(speeds=SPEEDS, factor=st.floats(0.5, 2))
def test_a_change_of_every_model_is_the_change(speeds: list[float], factor: float) -> None:
    base = [make(number, speed) for number, speed in enumerate(speeds)]
    new = [make(number, speed * factor) for number, speed in enumerate(speeds)]
    delta = find(compare(base, new[::-1], HUD), "geomean_speedup")
    assert delta.base is not None
    assert delta.new == pytest.approx(delta.base * factor)


def test_a_model_that_fails_now_lowers_the_pass_rate_and_leaves_the_geomean_alone() -> None:
    base = [make(0, 2.0), make(1, 8.0)]
    new = [make(0, 2.0), make(1, None, status="failed", reason="OOM", accuracy=None)]
    deltas = compare(base, new, HUD)
    assert (find(deltas, "pass_ratio").text, find(deltas, "pass_ratio").word) == (
        "−50.0 points",
        "worse",
    )
    assert (find(deltas, "geomean_speedup").text, find(deltas, "geomean_speedup").model_count) == (
        "±0.0%",
        1,
    )
    skipped = [make(0, 2.0), make(1, None, status="skipped", accuracy=None)]
    assert find(compare(base, skipped, HUD), "pass_ratio").model_count == 1


def test_a_speedup_knows_what_the_compiled_latency_did() -> None:
    base, new = (make(0, speed, abs_latency_ms=5.0) for speed in (2.0, 3.0))
    delta = find(compare([base], [new], HUD), "geomean_speedup")
    assert (delta.text, delta.word, delta.latency) == ("+50.0%", "better", 1.0)
    unknown = make(0, 2.0, abs_latency_ms=None)
    assert find(compare([unknown], [new], HUD), "geomean_speedup").latency is None


def test_nothing_in_common_is_said_to_be() -> None:
    delta = find(compare([make(0, 1.0)], [make(1, 1.0)], HUD), "geomean_speedup")
    assert (delta.model_count, delta.text, delta.word) == (0, "", "not comparable")


def test_counts_change_by_what_they_are_and_down_is_good() -> None:
    metric = SUMMARY_BY_NAME["graph_breaks_per_model"]
    assert (SummaryDelta(metric, 1.5, 1.25, 4).text, SummaryDelta(metric, 1.5, 1.25, 4).word) == (
        "−0.25",
        "better",
    )
    assert (SummaryDelta(metric, 0.0, 0.5, 4).text, SummaryDelta(metric, 0.0, 0.5, 4).word) == (
        "+0.5",
        "worse",
    )
    assert SummaryDelta(metric, 1.0, 1.0, 4).text == "±0"


def test_a_small_change_of_a_speed_is_said_to_be_and_one_that_rounds_to_nothing_has_no_sign() -> (
    None
):
    speed = SUMMARY_BY_NAME["geomean_speedup"]
    actual = [SummaryDelta(speed, 2.0, new, 4) for new in (2.08, 1.8, 1.9999, 2.0)]
    assert [(summary_delta.text, summary_delta.word) for summary_delta in actual] == [
        ("+4.0%", "within 5%"),
        ("−10.0%", "worse"),
        ("±0.0%", "within 5%"),
        ("±0.0%", "unchanged"),
    ]


@pytest.mark.parametrize(
    ("width", "word"), [(0.02, "worse"), (0.3, "no clear difference"), (None, "worse")]
)
def test_a_geomean_is_as_sure_as_its_models(width: float | None, word: str) -> None:
    def side(speed: float) -> list[ResultRow]:
        low, high = (None, None) if width is None else (speed * (1 - width), speed * (1 + width))
        return [make(number, speed, speedup_low=low, speedup_high=high) for number in range(2)]

    delta = find(compare(side(1.0), side(0.85), HUD), "geomean_speedup")
    assert (delta.text, delta.word) == ("−15.0%", word)


def test_the_noise_of_a_geomean_is_that_of_a_mean_of_logarithms() -> None:
    rows = [make(number, 2.0, speedup_low=1.8, speedup_high=2.2) for number in range(50)]
    draws = np.random.default_rng(1).normal(0.0, math.log(2.2 / 1.8) / 2 / 1.96, (2, 20_000, 50))
    spread = np.quantile(np.abs(draws[1].mean(axis=1) - draws[0].mean(axis=1)), 0.95)
    assert find(compare(rows, rows, HUD), "geomean_speedup").noise == pytest.approx(
        spread, rel=0.03
    )
