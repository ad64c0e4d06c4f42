"""The Mann–Whitney U test against every way to part the ranks, and against published values."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract.rank_test import mann_whitney, smallest_p

# Few values, so that ties are the rule.
FEW = st.lists(st.integers(0, 6).map(float), min_size=1, max_size=5)
# Their multiples by a power of two are exact: scaling cannot make or break a tie.
MANY = st.lists(st.integers(1, 10_000).map(float), min_size=9, max_size=40)


def count_larger(base: list[float], new: list[float]) -> float:
    return sum((b > n) + 0.5 * (b == n) for b in base for n in new)


def brute_force(base: list[float], new: list[float]) -> float:
    """Return the share of all partings whose U is at least as far from its mean."""
    both, mean = base + new, len(base) * len(new) / 2
    away = abs(count_larger(base, new) - mean)
    far = []
    for places in combinations(range(len(both)), len(base)):
        taken = [both[position] for position in places]
        rest = [value for position, value in enumerate(both) if position not in places]
        far.append(abs(count_larger(taken, rest) - mean) >= away)
    return sum(far) / len(far)


@given(FEW, FEW)
def test_small_samples_are_exact_with_ties(base: list[float], new: list[float]) -> None:
    test = mann_whitney(base, new)
    assert test.is_exact
    assert test.u == count_larger(base, new)
    assert test.p_value == pytest.approx(brute_force(base, new), abs=1e-12)


@given(MANY, MANY, st.randoms(use_true_random=False))
def test_order_and_scale_do_not_matter(base: list[float], new: list[float], chance: object) -> None:
    test = mann_whitney(base, new)
    shuffled = list(base)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert mann_whitney(shuffled, new) == test
    assert mann_whitney([8 * value for value in base], [8 * value for value in new]) == test
    other = mann_whitney(new, base)
    assert (other.u, other.p_value) == (len(base) * len(new) - test.u, pytest.approx(test.p_value))
    assert 0 <= test.p_value <= 1


def rank(places: tuple[int, ...], total: int) -> tuple[list[float], list[float]]:
    return [float(position) for position in places], [
        float(index) for index in range(1, total + 1) if index not in places
    ]


def test_published_critical_values_are_met() -> None:
    # Every textbook's table: of 10 and 10, U = 23 is the last one below 0.05.
    assert mann_whitney(*rank((1, 2, 3, 4, 5, 6, 12, 13, 14, 18), 20)).u == 23
    assert mann_whitney(*rank((1, 2, 3, 4, 5, 6, 12, 13, 14, 18), 20)).p_value < 0.05
    assert mann_whitney(*rank((1, 2, 3, 4, 5, 6, 12, 13, 14, 19), 20)).p_value > 0.05


def test_larger_samples_use_the_normal_approximation() -> None:
    apart = mann_whitney(*rank(tuple(range(1, 31)), 60))
    assert not apart.is_exact
    # z = (450 - ½) ÷ √(30 · 30 · 61 ÷ 12)
    assert apart.p_value == pytest.approx(3.02e-11, rel=0.001)
    exact = mann_whitney(*rank((*range(1, 9), 15, 16, 17, 18), 24))
    z = (144 / 2 - exact.u - 0.5) / math.sqrt(12 * 12 * 25 / 12)
    assert exact.is_exact
    assert (
        exact.p_value < math.erfc(z / math.sqrt(2)) < 1.5 * exact.p_value
    )  # it errs towards no difference


def test_nothing_differs_where_all_is_the_same() -> None:
    assert mann_whitney([3.0] * 40, [3.0] * 40).p_value == 1.0
    assert mann_whitney([3.0] * 4, [3.0] * 4).p_value == 1.0
    assert smallest_p(3, 3) == pytest.approx(0.1)
    assert mann_whitney([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]).p_value == pytest.approx(smallest_p(3, 3))


@pytest.mark.parametrize(("base", "new"), [([], [1.0]), ([1.0], []), ([math.nan], [1.0])])
def test_what_has_no_rank_is_refused(base: list[float], new: list[float]) -> None:
    with pytest.raises(ValueError, match=r"expected at least one|not a number"):
        mann_whitney(base, new)
