"""What repeats say: a speedup, its interval, noise."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.bench.worker.statistics import compute_speedup
from compileboard.collectors.contract.verdicts import measure_noise

TIMES = st.floats(min_value=1e-3, max_value=1e3)
PAIRS = st.lists(st.tuples(TIMES, TIMES), min_size=5, max_size=40)


def test_a_speedup_is_the_ratio_of_the_medians() -> None:
    assert compute_speedup([4.0, 2.0, 3.0], [1.0, 2.0, 1.5]) == {"speedup": 2.0}


def test_an_interval_is_told_from_five_repeats_on() -> None:
    interval = {"speedup_low": 2.0, "speedup_high": 2.0}
    assert compute_speedup([2.0] * 4, [1.0] * 4) == {"speedup": 2.0}
    assert compute_speedup([2.0] * 5, [1.0] * 5) == {"speedup": 2.0, **interval}


@given(PAIRS)
def test_the_interval_holds_the_smallest_and_largest_ratio_at_most(
    pairs: list[tuple[float, float]],
) -> None:
    eager, compiled = zip(*pairs, strict=True)
    speedup = compute_speedup(eager, compiled)
    low, high = speedup["speedup_low"], speedup["speedup_high"]
    assert min(eager) / max(compiled) <= low <= high <= max(eager) / min(compiled)


@given(PAIRS, st.floats(min_value=0.01, max_value=100))
def test_the_unit_of_time_changes_nothing(pairs: list[tuple[float, float]], unit: float) -> None:
    eager, compiled = zip(*pairs, strict=True)
    scaled = compute_speedup(
        [sample * unit for sample in eager], [sample * unit for sample in compiled]
    )
    assert scaled["speedup"] == pytest.approx(compute_speedup(eager, compiled)["speedup"])


def test_ninety_five_of_a_hundred_intervals_hold_the_true_speedup() -> None:
    draw, held = random.Random(7), 0
    for _ in range(100):
        eager = [draw.gauss(2.0, 0.06) for _ in range(30)]
        compiled = [draw.gauss(1.0, 0.03) for _ in range(30)]
        speedup = compute_speedup(eager, compiled)
        held += speedup["speedup_low"] <= 2.0 <= speedup["speedup_high"]
    assert held >= 90


def test_a_speedup_whose_interval_spans_one_is_not_clear() -> None:
    eager = [1.0, 1.2, 0.9, 1.1, 1.0, 0.95]
    same, thrice = (
        compute_speedup(eager, eager[::-1]),
        compute_speedup([value * 3 for value in eager], eager),
    )
    assert same["speedup_low"] <= 1 <= same["speedup_high"]
    assert thrice["speedup_low"] > 1


@pytest.mark.parametrize(("eager", "compiled"), [([], []), ([1.0], []), ([1.0], [0.0])])
def test_what_cannot_be_divided_is_refused(eager: list[float], compiled: list[float]) -> None:
    with pytest.raises(ValueError, match=r"expected as many|took no time"):
        compute_speedup(eager, compiled)


def test_noise_is_the_spread_around_the_median_and_one_spike_is_none() -> None:
    assert measure_noise([1.0, 1.0, 1.0, 50.0]) == 0.0
    assert measure_noise([0.9, 1.0, 1.1]) == pytest.approx(0.148, abs=1e-3)
    assert measure_noise([1.0, 2.0]) is None
    assert measure_noise([0.0, 0.0, 1.0]) is None
