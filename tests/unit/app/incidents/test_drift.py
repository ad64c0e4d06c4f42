"""Slow drift, nothing twice, and series that stopped."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compileboard.app.incidents.drift import detect_drift, find_changes, is_stopped
from tests.unit.app.incidents.test_change_points import ANY
from tests.unit.app.noisy import NOISE, flat, make_flat, make_stepped


def falling(points_each: int, noise: float = 0.3) -> list[float]:
    """Return 20 level points, ten steps of −1% and 10 level points."""
    levels = (
        [100.0] * 20
        + [100 * 0.99**i for i in range(1, 11) for _ in range(points_each)]
        + [100 * 0.99**10] * 10
    )
    return [level + wave for level, wave in zip(levels, flat(len(levels), 0.0, noise))]


@pytest.mark.parametrize("points_each", [1, 3, 10])
def test_ten_steps_of_one_percent_are_a_drift_and_nothing_else(points_each: int) -> None:
    values = falling(points_each)

    changes = find_changes(values)

    assert changes.drift is not None and changes.steps == []
    assert changes.drift.relative == pytest.approx(-0.096, abs=0.015)
    knots = max(8, len(values) // 10)  # where it begins and ends is known to a tenth of the series
    assert (
        abs(changes.drift.start - 20) <= knots
        and abs(changes.drift.end - (len(values) - 10)) <= knots
    )


def test_a_step_before_the_drift_stays_a_step() -> None:
    changes = find_changes(flat(20, 130.0, 0.3) + falling(3))

    assert changes.drift is not None and changes.drift.start >= 25
    assert [step.index for step in changes.steps] == [20]


@pytest.mark.parametrize("size", [0.8, 0.9, 1.05, 1.5])
def test_a_step_is_no_drift(size: float) -> None:
    values = flat(30, 100.0) + flat(20, 100.0 * size)

    assert detect_drift(values) is None
    assert len(find_changes(values).steps) == 1


@settings(max_examples=40)
@given(ANY, st.integers(-6, 6))
def test_scaling_values_scales_drift(values: list[float], power: int) -> None:
    drift, scale = detect_drift(values), 2.0**power
    expected = drift and replace(drift, before=drift.before * scale, after=drift.after * scale)

    assert detect_drift([value * scale for value in values]) == expected


@settings(max_examples=40)
@given(ANY)
def test_nothing_is_reported_twice(values: list[float]) -> None:
    changes = find_changes(values)
    replaced = changes.drift.replaces if changes.drift else ()

    assert not {step.index for step in changes.steps} & set(replaced)
    assert all(
        step.recovered_at not in replaced and step.recovers not in replaced
        for step in changes.steps
    )


def test_missing_points_move_the_drift_and_invent_none() -> None:
    values = falling(3)
    holed = [point for value in values for point in (value, math.nan)]

    drift, moved = detect_drift(values), detect_drift(holed)

    assert drift is not None and moved is not None
    assert (moved.start, moved.end, moved.p_value) == (
        2 * drift.start,
        2 * drift.end,
        drift.p_value,
    )


@pytest.mark.parametrize(
    "values", [[], [1.0] * 5, [1.0] * 50, [0.0] * 50, flat(60, 100.0), [1.0, 2.0, 3.0, 4.0]]
)
def test_what_stays_has_no_drift(values: list[float]) -> None:
    assert detect_drift(values) is None


def test_flat_and_stepped_series_are_seldom_called_drifting() -> None:
    rng = np.random.default_rng(3)
    makers = [make_flat(0.03), make_stepped(0.01, 4), make_stepped(0.03, 6)]

    assert sum(detect_drift(make(rng)) is not None for make in makers for _ in range(60)) <= 1


@pytest.mark.parametrize(
    ("times", "suite_runs", "vanished"),
    [
        (range(30), 30, False),  # it ran in the newest
        (range(30), 32, False),  # two may be chance
        (range(30), 33, True),
        (range(0, 30, 5), 30, False),  # one run in five is its habit
        (range(0, 30, 5), 31, True),
        ([3], 30, False),  # no habit to break
        ([], 30, False),
    ],
)
def test_a_series_that_stopped_while_its_suite_went_on(
    times: list[int], suite_runs: int, vanished: bool
) -> None:
    assert is_stopped(list(times), list(range(suite_runs))) is vanished


def test_a_drift_ends_with_the_step_that_takes_it_back() -> None:
    slope = [1 - 0.15 * share / 11 for share in range(12)]
    level = [1.0] * 30 + slope + [0.85] * 10 + [1.0] * 15
    changes = find_changes([value + noise / 200 for value, noise in zip(level, NOISE)])

    assert changes.drift is not None and changes.drift.recovered_at == 52
    assert [step.recovers for step in changes.steps] == [changes.drift.end]
