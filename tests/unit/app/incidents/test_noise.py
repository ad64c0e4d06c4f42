"""The weights of points by their errors, and from which length noise may remember."""

from __future__ import annotations

import math

import numpy as np
import pytest

from compileboard.app.incidents.change_points import autocorrelation, scale_series
from tests.unit.app.noisy import flat


def weigh(errors: list[float]) -> list[float]:
    series = scale_series(flat(len(errors), 100.0), errors)
    assert series is not None
    return series.series.weights.tolist()


def test_a_point_without_an_error_weighs_as_one_with_the_usual_error() -> None:
    weights = weigh([0.1, 0.2, math.nan, 0.3, 0.2])

    assert weights[2] == weights[1] == weights[4]
    assert weights[0] > weights[2] > weights[3]


def test_without_any_error_all_points_weigh_one() -> None:
    assert weigh([math.nan] * 5) == [1.0] * 5
    assert weigh([0.2] * 5) == pytest.approx([1.0] * 5)


def test_twelve_points_are_enough_to_remember() -> None:
    rising = np.linspace(-1, 1, 12)

    assert autocorrelation(rising, 1) > 0
    assert autocorrelation(rising[:11] - rising[:11].mean(), 1) == 0
    assert autocorrelation(np.zeros(12), 1) == 0
