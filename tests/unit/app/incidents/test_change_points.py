"""The step detector: properties of any series, a series for each verdict, rates over seeds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compileboard.app.incidents.change_points import ChangePoint, detect_change_points
from tests.unit.app.noisy import NOISE, flat, make_flat, make_stepped, share

# Multiples of 1/64, so that a power of two scales them exactly.
VALUES = st.lists(st.integers(-640, 6400).map(lambda value: value / 64), max_size=60)
LEVELS = st.lists(st.tuples(st.integers(1, 12), st.integers(-5, 90)), min_size=1, max_size=5)
TIDY = LEVELS.map(
    lambda levels: [level + NOISE[i % 97] for length, level in levels for i in range(length)]
)
ANY = st.one_of(VALUES, TIDY)


def near(step: ChangePoint, position: int) -> bool:
    return abs(step.index - position) <= 1 and step.low <= step.index <= step.high


@settings(max_examples=40)
@given(ANY, st.integers(-6, 6))
def test_scaling_values_scales_steps(values: list[float], power: int) -> None:
    scale = 2.0**power
    expected = [
        replace(change_point, before=change_point.before * scale, after=change_point.after * scale)
        for change_point in detect_change_points(values)
    ]

    assert detect_change_points([value * scale for value in values]) == expected


@settings(max_examples=40)
@given(ANY)
def test_turning_values_upside_down_mirrors_steps(values: list[float]) -> None:
    mirrored = [
        replace(
            change_point,
            before=-change_point.before,
            after=-change_point.after,
            relative=None if change_point.relative is None else -change_point.relative,
        )
        for change_point in detect_change_points(values)
    ]

    assert detect_change_points([-value for value in values]) == mirrored


@settings(max_examples=40)
@given(st.floats(allow_nan=False), st.integers(0, 80))
def test_a_constant_series_has_no_steps(value: float, count: int) -> None:
    assert detect_change_points([value] * count) == []


@settings(max_examples=40)
@given(ANY, st.data())
def test_missing_points_invent_nothing_and_hide_nothing(
    values: list[float], data: st.DataObject
) -> None:
    gaps = data.draw(st.lists(st.integers(0, 3), min_size=len(values), max_size=len(values)))
    holed = [nan for value, gap in zip(values, gaps) for nan in [math.nan] * gap + [value]]
    places = [position for position, value in enumerate(holed) if not math.isnan(value)]

    steps, plain = detect_change_points(holed), detect_change_points(values)

    assert [step.index for step in steps] == [places[change_point.index] for change_point in plain]
    assert [(step.before, step.after, step.p_value) for step in steps] == [
        (change_point.before, change_point.after, change_point.p_value) for change_point in plain
    ]


@settings(max_examples=40)
@given(ANY)
def test_what_is_said_of_a_step_holds(values: list[float]) -> None:
    for step in detect_change_points(values):
        assert 3 <= step.index < len(values) - 1
        assert step.low <= step.index <= step.high
        assert (
            min(values)
            <= min(step.before, step.after)
            < max(step.before, step.after)
            <= max(values)
        )
        assert step.p_value <= 5e-4 and step.after_count >= 2
        assert step.recovered_at is None or step.recovered_at > step.index


@settings(max_examples=40)
@given(ANY)
def test_equal_errors_change_nothing_of_where(values: list[float]) -> None:
    assert [
        change_point.index for change_point in detect_change_points(values, [0.0] * len(values))
    ] == [change_point.index for change_point in detect_change_points(values)]


@pytest.mark.parametrize("direction", [1, -1])
def test_a_step_up_or_down_is_found_with_its_levels(direction: int) -> None:
    values = flat(24, 100.0) + flat(16, 100.0 + direction * 10)

    (step,) = detect_change_points(values)

    assert near(step, 24) and step.after_count == len(values) - step.index
    assert (step.before, step.after) == pytest.approx((100, 100 + direction * 10), abs=0.5)
    assert step.relative == pytest.approx(direction * 0.1, abs=0.01)
    assert step.recovered_at is None and step.recovers is None


def test_a_recovered_step_is_listed_with_its_end() -> None:
    up, down = detect_change_points(flat(20, 100.0) + flat(10, 115.0) + flat(20, 100.0))

    assert near(up, 20) and up.recovered_at == down.index
    assert near(down, 30) and down.recovers == up.index and down.recovered_at is None


def test_a_step_that_comes_again_after_it_was_taken_back_is_one_of_its_own() -> None:
    up, down, again = detect_change_points(
        flat(15, 100.0) + flat(15, 120.0) + flat(15, 100.0) + flat(15, 120.0)
    )

    assert up.recovered_at == down.index and down.recovered_at is None
    assert again.recovers is None and again.recovered_at is None


def test_a_staircase_that_falls_at_once_takes_back_every_step() -> None:
    first, second, back = detect_change_points(
        flat(15, 100.0) + flat(15, 110.0) + flat(15, 125.0) + flat(15, 100.0)
    )

    assert first.recovered_at == back.index and back.recovers == first.index
    assert second.recovered_at == back.index  # it came from 110, and the series went beyond, to 100


@pytest.mark.parametrize("position", [0, 1, 17, 38, 39])
def test_a_spike_of_one_point_is_no_step(position: int) -> None:
    values = flat(40, 100.0)
    values[position] *= 3

    assert detect_change_points(values) == []


def test_counts_that_repeat_need_two_points() -> None:
    assert [
        (change_point.index, change_point.before, change_point.after, change_point.relative)
        for change_point in detect_change_points([0, 0, 0, 1, 1])
    ] == [(3, 0, 1, None)]
    assert detect_change_points([0, 0, 0, 0, 1]) == []
    assert detect_change_points([0, 1, 0, 1, 1, 0, 0, 1, 0, 0, 1, 1]) == []


@pytest.mark.parametrize(
    "values", [[], [1.0], [1.0, 2.0], [1.0, 1.0, 2.0, 2.0], [1.0, 1.1, 0.9, 2.0, 2.1], [0.0] * 9]
)
def test_a_tiny_series_has_no_steps(values: list[float]) -> None:
    assert detect_change_points(values) == []


def test_a_step_below_the_smallest_size_is_none() -> None:
    values = [100.0] * 20 + [101.0] * 20

    assert detect_change_points(values) == []
    assert len(detect_change_points([100.0] * 20 + [103.0] * 20)) == 1


def test_a_gap_widens_the_place() -> None:
    (step,) = detect_change_points(
        [*flat(20, 100.0), math.nan, math.nan, math.inf, *flat(10, 120.0)]
    )

    assert (step.low, step.index, step.high) == (20, 23, 23)


def test_points_with_large_errors_count_less() -> None:
    values = flat(20, 100.0) + flat(3, 104.0)

    assert len(detect_change_points(values, [0.3] * 23)) == 1
    assert detect_change_points(values, [0.3] * 20 + [9.0] * 3) == []


def test_order_matters() -> None:
    values = flat(20, 100.0) + flat(20, 110.0)

    assert [change_point.index for change_point in detect_change_points(values)] == [20]
    assert detect_change_points(values[::2] + values[1::2])[0].index == 10
    assert (
        detect_change_points([value for pair in zip(values[:20], values[20:]) for value in pair])
        == []
    )


def test_flat_series_are_seldom_flagged() -> None:
    assert share(make_flat(noise=0.03), 300) <= 0.01


@pytest.mark.parametrize(("noise", "after", "reach"), [(0.01, 4, 0.95), (0.03, 6, 0.80)])
def test_a_step_is_found_with_few_points_after(noise: float, after: int, reach: float) -> None:
    assert share(make_stepped(noise=noise, after=after), 150, position=40 - after) >= reach


def make_dip(noise: float, seed: int) -> list[float]:
    level = np.array([1.0] * 40 + [0.95] * 10 + [1.0] * 10)
    return np.round(
        level * (1 + noise * np.random.default_rng(seed).standard_normal(60)), 3
    ).tolist()


@pytest.mark.parametrize("seed", [3, 6, 10])
def test_a_small_step_and_its_way_back_are_found_together(seed: int) -> None:
    """Neither is by itself: 5% in noise of 2.4%, ten points long."""
    down, up = detect_change_points(make_dip(0.024, seed))

    assert down.low - 2 <= 40 <= down.high + 2 and down.after < down.before
    assert down.recovered_at == up.index and up.recovers == down.index


def test_a_step_whose_end_noise_hides_says_between_which_points_it_may_lie() -> None:
    (step,) = detect_change_points(make_dip(0.027, seed=56))

    assert step.index == 40 and step.recovered_at is None
    assert step.may_be_back is not None and step.may_be_back[0] <= 50 <= step.may_be_back[1]
    (lasting,) = detect_change_points(flat(24, 100.0) + flat(16, 90.0))
    assert lasting.may_be_back is None
