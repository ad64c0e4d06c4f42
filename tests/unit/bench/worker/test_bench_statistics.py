"""What repeats say: a speedup, its interval, noise."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.bench.worker.statistics import speedup_of
from compileboard.collectors.contract.verdicts import noise_of

TIMES = st.floats(min_value=1e-3, max_value=1e3)
PAIRS = st.lists(st.tuples(TIMES, TIMES), min_size=5, max_size=40)


def test_a_speedup_is_the_ratio_of_the_medians() -> None:
    speedup = speedup_of([4.0, 2.0, 3.0], [1.0, 2.0, 1.5])
    assert speedup.value == 2.0
    assert (speedup.low, speedup.high) == (None, None), "three repeats tell no interval"


@pytest.mark.parametrize(("count", "is_told"), [(4, False), (5, True)])
def test_an_interval_is_told_from_five_repeats_on(count: int, is_told: bool) -> None:
    speedup = speedup_of([2.0] * count, [1.0] * count)
    told = (2.0, 2.0) if is_told else (None, None)
    assert (speedup.low, speedup.high) == told


@given(PAIRS)
def test_the_interval_holds_the_smallest_and_largest_ratio_at_most(
    pairs: list[tuple[float, float]],
) -> None:
    eager, compiled = zip(*pairs, strict=True)
    speedup = speedup_of(eager, compiled)
    assert speedup.low is not None and speedup.high is not None
    assert min(eager) / max(compiled) <= speedup.low <= speedup.high <= max(eager) / min(compiled)


@given(PAIRS, st.floats(min_value=0.01, max_value=100))
def test_the_unit_of_time_changes_nothing(pairs: list[tuple[float, float]], unit: float) -> None:
    eager, compiled = zip(*pairs, strict=True)
    scaled = speedup_of([sample * unit for sample in eager], [sample * unit for sample in compiled])
    assert scaled.value == pytest.approx(speedup_of(eager, compiled).value)


def test_ninety_five_of_a_hundred_intervals_hold_the_true_speedup() -> None:
    draw, held = random.Random(7), 0
    for _ in range(100):
        eager = [draw.gauss(2.0, 0.06) for _ in range(30)]
        compiled = [draw.gauss(1.0, 0.03) for _ in range(30)]
        speedup = speedup_of(eager, compiled)
        assert speedup.low is not None and speedup.high is not None
        held += speedup.low <= 2.0 <= speedup.high
    assert held >= 90


def test_a_speedup_whose_interval_spans_one_is_not_clear() -> None:
    eager = [1.0, 1.2, 0.9, 1.1, 1.0, 0.95]
    same, thrice = speedup_of(eager, eager[::-1]), speedup_of([value * 3 for value in eager], eager)
    assert same.low is not None and same.high is not None and same.low <= 1 <= same.high
    assert thrice.low is not None and thrice.low > 1


@pytest.mark.parametrize(("eager", "compiled"), [([], []), ([1.0], []), ([1.0], [0.0])])
def test_what_cannot_be_divided_is_refused(eager: list[float], compiled: list[float]) -> None:
    with pytest.raises(ValueError, match=r"expected as many|took no time"):
        speedup_of(eager, compiled)


def test_noise_is_the_spread_around_the_median_and_one_spike_is_none() -> None:
    assert noise_of([1.0, 1.0, 1.0, 50.0]) == 0.0
    assert noise_of([0.9, 1.0, 1.1]) == pytest.approx(0.148, abs=1e-3)
    assert noise_of([1.0, 2.0]) is None
    assert noise_of([0.0, 0.0, 1.0]) is None
