"""Find the change points of a series: candidates, least squares between them, and a test of
each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from compileboard.collectors.contract.rank_test import mann_whitney, smallest_p

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.intp]
Numbers: TypeAlias = Sequence[float] | Floats

_MEDIAN_TO_SIGMA = 1.0484  # of |x[i+1] − x[i]| of a normal distribution: 1.4826 ÷ √2
# Root mean square of the smaller of two neighbouring differences, without its largest 5%.
_SMALLER_TO_SIGMA = 1.0
_SPIKE_SIGMAS = 4.0
_MIN_FOR_MEMORY = 12


def noise_scale(values: Floats) -> float:
    """Estimate the noise's standard deviation from successive differences, of which a step affects
    only one.

    Needs at least 3 finite values. Source: Rousseeuw and Croux 1993 (MAD); von Neumann 1941
    (successive differences).
    """
    away = np.abs(values[1:] - values[:-1])
    smaller = np.sort(np.minimum(away[1:], away[:-1]))
    smaller = smaller[: len(smaller) - max(1, len(smaller) // 20)]
    flicker = math.sqrt(float(smaller @ smaller) / len(smaller)) if len(smaller) else 0.0
    return max(_MEDIAN_TO_SIGMA * float(np.median(away)), _SMALLER_TO_SIGMA * flicker)


def find_spikes(values: Floats, sigma: float) -> tuple[NDArray[np.bool_], Floats]:
    """Return which points are far from the median of the point and its two neighbours, and the
    medians.

    Needs at least 3 finite values. Source: Hampel's identifier over 3 points.
    """
    padded = np.concatenate((values[2:3], values, values[-3:-2]))
    before, after = padded[:-2], padded[2:]
    medians: Floats = np.maximum(
        np.minimum(before, after), np.minimum(np.maximum(before, after), values)
    )
    return np.abs(values - medians) > _SPIKE_SIGMAS * sigma, medians


def autocorrelation(residuals: Floats, level_count: int) -> float:
    """Estimate the AR(1) coefficient of a series' noise, 0 if it may be chance.

    Source: Kendall 1954 (bias); Gao and Bruce 1997 (firm shrinkage).
    """
    count = len(residuals)
    power = float(residuals @ residuals)
    if count < _MIN_FOR_MEMORY or power <= 0:
        return 0.0
    raw = float(residuals[1:] @ residuals[:-1]) / power
    raw += level_count * (1 + 3 * max(raw, 0.0)) / count
    trust = min(1.0, max(0.0, raw * math.sqrt(count) - 1))
    return min(0.9, raw * trust)


_FEWEST = 3
_SPIKE_WEIGHT = 0.01


@dataclass(frozen=True)
class WeightedValues:
    values: Floats
    weights: Floats
    sums: Floats
    weight_sums: Floats

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class CleanSeries:
    """A series ready for the search. Values are divided by 2 to the power of `exponent`, so that no
    square overflows.
    """

    series: WeightedValues
    raw: Floats
    positions: Ints
    centre: float
    sigma: float
    rounding: float
    exponent: int


def scale_series(values: Numbers, errors: Numbers | None = None) -> CleanSeries | None:
    """Scale a series for the search. None if fewer than 3 values are finite or all are 0."""
    given = np.asarray(values, dtype=np.float64)
    positions = np.flatnonzero(np.isfinite(given))
    raw = given[positions]
    if len(raw) < _FEWEST or not raw.any():
        return None
    exponent = math.frexp(float(np.max(np.abs(raw))))[1]
    raw = np.ldexp(raw, -exponent)
    rounding = 1e-9 * float(np.max(np.abs(raw)))
    sigma = max(noise_scale(raw), rounding)
    centre = float(raw[len(raw) // 2])
    is_spike, medians = find_spikes(raw, sigma)
    weights = np.where(is_spike, _SPIKE_WEIGHT, _weigh_points(errors, positions, sigma, exponent))
    series = _sum_up(np.where(is_spike, medians, raw) - centre, weights)
    return CleanSeries(series, raw, positions, centre, sigma, rounding, exponent)


def _sum_up(values: Floats, weights: Floats) -> WeightedValues:
    sums, weight_sums = np.zeros(len(values) + 1), np.zeros(len(values) + 1)
    np.cumsum(values * weights, out=sums[1:])
    np.cumsum(weights, out=weight_sums[1:])
    return WeightedValues(values, weights, sums, weight_sums)


def _weigh_points(errors: Numbers | None, positions: Ints, sigma: float, exponent: int) -> Floats:
    if errors is None:
        return np.ones(len(positions))
    own = np.ldexp(np.abs(np.asarray(errors, dtype=np.float64)[positions]), -exponent)
    known = np.isfinite(own)
    usual = float(np.median(own[known])) if known.any() else 0.0
    own[~known] = usual
    typical = max(sigma, usual) ** 2
    weights: Floats = typical / (max(typical - usual**2, typical / 4) + own**2)
    return weights


ALPHA = 5e-4  # The level of the t test, corrected for the number of possible steps.
MIN_POINTS = 2  # a single point is a spike
MIN_BASELINE = 3
_WINDOW_GROWTH = math.sqrt(2)
_NEWEST = 12  # newest points that are tested with the lower threshold
_NEWEST_SIGMAS, _SLACK_SIGMAS = 2.8, 1.4


def find_candidates(series: WeightedValues, sigma: float) -> list[int]:
    """Return the positions at which the series may step, with 0 and its length around them. Some
    are false: each is tested afterwards.

    The segment whose mean differs most from the mean of the rest is cut out, then the same is done
    in every piece. Source: Olshen, Venkatraman, Lucito and Wigler 2004, circular binary
    segmentation.
    """
    count = len(series)
    sigmas = math.sqrt(2 * math.log(count / ALPHA)) - _SLACK_SIGMAS
    lowest = (max(sigmas, 3.0) * sigma) ** 2
    cuts: set[int] = set()
    pieces = [(0, count)]
    while pieces:
        low, high = pieces.pop()
        if high - low <= 2 * MIN_POINTS:
            continue
        start, end = _window_bounds(high - low)
        gain, position = _best_segment(series, low, high, start + low, end + low)
        if gain < lowest:
            continue
        inner = [
            cut
            for cut in (int(start[position]) + low, int(end[position]) + low)
            if low < cut < high
        ]
        cuts.update(inner)
        bounds = [low, *inner, high]
        pieces.extend(pairwise(bounds))
    last = max(cuts, default=0)
    newest = np.arange(max(last + MIN_BASELINE, count - _NEWEST), count - MIN_POINTS + 1)
    if len(newest):
        gain, position = _best_segment(series, last, count, np.full_like(newest, last), newest)
        if gain > (_NEWEST_SIGMAS * sigma) ** 2:
            cuts.add(int(newest[position]))
    return [0, *sorted(cuts), count]


def may_have_change(series: WeightedValues, sigma: float) -> bool:
    if len(series) < MIN_BASELINE + MIN_POINTS:
        return False
    _, gains = split_gains(series, 0, len(series))
    return float(gains.max()) > (_NEWEST_SIGMAS * sigma) ** 2


def split_gains(series: WeightedValues, low: int, high: int) -> tuple[Ints, Floats]:
    positions = np.arange(low + MIN_POINTS, high - MIN_POINTS + 1)
    return positions, _segment_gains(series, low, high, np.full_like(positions, low), positions)


def refine_positions(series: WeightedValues, cuts: list[int]) -> None:
    for _ in range(2):
        for j in range(1, len(cuts) - 1):
            positions, gains = split_gains(series, cuts[j - 1], cuts[j + 1])
            if len(positions):
                cuts[j] = int(positions[np.argmax(gains)])


def _best_segment(
    series: WeightedValues, low: int, high: int, start: Ints, end: Ints
) -> tuple[float, int]:
    gains = _segment_gains(series, low, high, start, end)
    position = int(np.argmax(gains))
    return float(gains[position]), position


def _segment_gains(series: WeightedValues, low: int, high: int, start: Ints, end: Ints) -> Floats:
    weight = series.weight_sums[end] - series.weight_sums[start]
    total = series.weight_sums[high] - series.weight_sums[low]
    mean = (series.sums[high] - series.sums[low]) / total
    surplus = series.sums[end] - series.sums[start] - mean * weight
    gains: Floats = surplus * surplus / (weight * (1 - weight / total))
    return gains


@lru_cache(maxsize=64)
def _window_bounds(length: int) -> tuple[Ints, Ints]:
    starts, ends, width = [], [], MIN_POINTS
    while width <= length // 2:
        starts.append(np.arange(length - width + 1))
        ends.append(starts[-1] + width)
        width = max(width + 1, int(width * _WINDOW_GROWTH))
    splits = np.arange(MIN_POINTS, length - MIN_POINTS + 1)
    return np.concatenate([*starts, np.zeros_like(splits)]), np.concatenate([*ends, splits])


MIN_RELATIVE = 0.02
_RANK_ALPHA = 0.05
_TIED_RANK_ALPHA = 0.02  # counts and rounded values differ by chance more often
_RANK_POINTS = 40
_NOISE_FLOOR = 0.5
RECOVERED, _RECOVERED_IN_NOISE = 1 / 3, 1 / 2  # share of a step that may remain
_LEVEL_SIGMAS = 2.0  # levels that differ by fewer standard errors may be the same
_EXCURSION_LENGTHS = 8  # possible lengths per position, with autocorrelated noise
_POSITION_LOSS = 2 * math.log(20)  # a likelihood 20 times lower
_RETURN_LOSS = 2 * math.log(100)

# The tests of a step
# -------------------
#
# A fit is levels m[0], m[1], … between cuts; w are their weights (numbers of points) and s the
# noise about them, widened for points that resemble the one before. With one level more in a
# stretch the sum of squares falls by
#
#     G = d² / (1/w_inside + 1/w_outside),    d = mean inside − mean outside,
#
# so that √G / s is Student's t of two means: `sigmas`. The alternatives to "nothing happened" are
# two.
#
# 1. A step: m[j-1] before the cut, m[j] after it. t holds level j against level j-1, and its tail
# is corrected for
#    the places at which such a step could have been (`_count_positions`).
#
# 2. An excursion: m[j-1], then m[j], then m[j-1] again. Both of its cuts are one event with two
# levels, so t holds
# levels, so t holds level j against the points before *and* after it. Ten points of 5% in noise of
# 2.5%, 40 points before and 10
# after: t is 5.8 (1/10 and 1/50), where the way back alone has 4.5 (1/10 and 1/10), less than the
# 4.9 asked for.
# An excursion has a length beside its place; its tail is corrected for both, and 5.3 is asked for.
#
# Of an excursion it remains to be shown that it has both ends: against a step at one end alone,
# which has as many levels, its likelihood is exp((G_excursion − G_step) / 2s²) times higher. If the
# level stayed, the probability that it ever exceeds 100 is 1/100 where the levels are known. That
# also ends a newest step, which was corrected for fewer places than an excursion is: that something
# happened is then settled, and the question is which of both it was.
#
# A level is back at an older one when a third of the step is left at most, or half of it where two
# standard errors of the two levels are more than that third.
#
# Sources: Levin and Kline 1985, Yao 1993 (tests of an excursion, "epidemic alternatives"); Olshen
# et al. 2004 (the search for it); Ville 1939, Wald 1945 (the likelihood ratio).


@dataclass(frozen=True)
class ChangePoint:
    """One change of level; indices are positions in the given values.

    The first point after it is between `low` and `high`; `relative` is None if `before` is 0.
    `sigmas` is the size in standard errors, `p_value` is corrected for the number of tested
    positions. `recovered_at` is the first point back at the level before, `recovers` the index of
    the earliest step that this one reverses. If the newest step seems to be over, the first point
    back is between the positions `may_be_back`.
    """

    index: int
    low: int
    high: int
    before: float
    after: float
    relative: float | None
    sigmas: float
    p_value: float
    before_count: int
    after_count: int
    recovered_at: int | None = None
    recovers: int | None = None
    may_be_back: tuple[int, int] | None = None


@dataclass(frozen=True)
class _CutSignificance:
    """The significance of a cut. `loss` is the decrease of 2 log likelihood without it, if it ends
    an excursion.
    """

    sigmas: float
    p_value: float
    loss: float = math.inf


@dataclass(frozen=True)
class _Fit:
    """The levels between cuts, the noise around them, and the test of each cut."""

    cuts: list[int]
    means: list[float]
    weights: list[float]
    sigma: float
    freedom: int
    tests: list[_CutSignificance] = field(default_factory=list)

    def is_back(self, j: int, i: int) -> bool:
        """Return whether level i may be the same as the one before cut j."""
        size, left = (abs(self.means[at] - self.means[j - 1]) for at in (j, i))
        noise = (
            _LEVEL_SIGMAS * self.sigma * math.sqrt(1 / self.weights[i] + 1 / self.weights[j - 1])
        )
        return left <= max(RECOVERED * size, min(_RECOVERED_IN_NOISE * size, noise))

    def find_excursion(self, j: int) -> int | None:
        """Return the first cut of the excursion that cut j begins or ends, None if it is a lasting
        step.
        """
        if j + 1 < len(self.means) and self.is_back(j, j + 1):
            return j
        return j - 1 if j >= 2 and self.is_back(j - 1, j) else None


def detect_change_points(values: Numbers, errors: Numbers | None = None) -> list[ChangePoint]:
    """Return the steps of a series in order, up and down, including recovered ones.

    Values are oldest first; non-finite ones are missing. Errors are standard errors. A level needs
    2 points, the first one 3, so that a single point is never a step. Candidates come from a scan
    over windows of all widths; the weakest is dropped and the rest are located anew until each
    passes a t test against the noise around the fitted levels, a rank test that outliers cannot
    pass, and the minimum size. A step near the newest points is found at once, and may disappear
    again.
    Source: Olshen et al. 2004 (scan); Hawkins 1977 (test of a shift); Mann and Whitney 1947;
    docs/change-point-rates.md has rates.
    """
    series = scale_series(values, errors)
    if series is None or len(series.series) < MIN_BASELINE + MIN_POINTS:
        return []
    cuts = find_candidates(series.series, series.sigma)
    refine_positions(series.series, cuts)
    while len(cuts) > 2:
        fit = _fit_cuts(series.series, cuts, series.sigma)
        doubts = [_measure_doubt(fit, j, series.centre) for j in range(1, len(cuts) - 1)]
        if not any(doubts):  # ranks last because they are slowest
            doubts = [
                0.0 if _differs_by_rank(fit, j, series.raw) else 1.0
                for j in range(1, len(cuts) - 1)
            ]
        if not any(doubts):
            return _make_change_points(series, _end_newest_step(series.series, fit, series.sigma))
        weakest = max(range(len(doubts)), key=lambda j: (doubts[j], -fit.tests[j].sigmas))
        del cuts[weakest + 1]
        refine_positions(series.series, cuts)
    return []


def _fit_cuts(series: WeightedValues, cuts: list[int], sigma: float) -> _Fit:
    means, weight, residuals = fit_levels(series, cuts)
    freedom = max(1, len(series) - len(means))
    own = noise_around_levels(residuals, freedom, sigma)
    repeats = autocorrelation(residuals, len(means))
    own *= math.sqrt((1 + repeats) / (1 - repeats))
    fit = _Fit(list(cuts), means.tolist(), weight.tolist(), own, freedom)
    fit.tests.extend(_test_cut(series, fit, j) for j in range(1, len(means)))
    return fit


def fit_levels(series: WeightedValues, cuts: Sequence[int]) -> tuple[Floats, Floats, Floats]:
    """Return the mean and weight of each level between cuts, and the weighted residuals."""
    positions, part = np.array(cuts), slice(cuts[0], cuts[-1])
    weight = np.diff(series.weight_sums[positions])
    means = np.diff(series.sums[positions]) / weight
    fitted = np.repeat(means, np.diff(positions))
    return means, weight, (series.values[part] - fitted) * np.sqrt(series.weights[part])


def noise_around_levels(residuals: Floats, freedom: int, sigma: float) -> float:
    return max(math.sqrt(float(residuals @ residuals) / freedom), _NOISE_FLOOR * sigma)


def _test_cut(series: WeightedValues, fit: _Fit, j: int) -> _CutSignificance:
    """Test a cut as a step, or as one end of an excursion."""
    first, places, loss = fit.find_excursion(j), _count_positions(fit.cuts, j), math.inf
    if first is None:
        low, cut, high = fit.cuts[j - 1 : j + 2]
        gain = float(_segment_gains(series, low, high, np.array([low]), np.array([cut]))[0])
    else:
        low, start, end, high = fit.cuts[first - 1 : first + 3]
        gains = _segment_gains(
            series, low, high, np.array([start, low, low]), np.array([end, start, end])
        )
        gain, step_at_start, step_at_end = gains.tolist()
        loss = (gain - (step_at_end if j == first else step_at_start)) / fit.sigma**2
        places *= _EXCURSION_LENGTHS
    sigmas = math.sqrt(gain) / fit.sigma
    return _CutSignificance(sigmas, min(1.0, places * t_survival(sigmas, fit.freedom)), loss)


def _end_newest_step(series: WeightedValues, fit: _Fit, sigma: float) -> _Fit:
    """Turn the newest step into an excursion if that fits the points better. Both cuts of the
    excursion get the step's p-value.
    """
    newest = len(fit.means) - 1
    ends, gains = _return_gains(series, fit.cuts)
    if not len(ends) or fit.find_excursion(newest) is not None:
        return fit
    ended = _fit_cuts(series, [*fit.cuts[:-1], int(ends[np.argmax(gains)]), fit.cuts[-1]], sigma)
    tests = ended.tests[-2:]
    if ended.find_excursion(newest) != newest or min(test.loss for test in tests) <= _RETURN_LOSS:
        return fit
    p_value = fit.tests[-1].p_value
    return replace(
        ended, tests=[*fit.tests[:-1], *(replace(test, p_value=p_value) for test in tests)]
    )


def _return_gains(series: WeightedValues, cuts: Sequence[int]) -> tuple[Ints, Floats]:
    """Return the positions where the newest step may have ended, and for each how much better an
    excursion fits than a step.
    """
    low, start, high = cuts[-3:]
    ends = np.arange(start + MIN_POINTS, high - MIN_POINTS + 1)
    gains = _segment_gains(series, low, high, np.full_like(ends, start), ends)
    return ends, gains - _segment_gains(series, low, high, np.array([low]), np.array([start]))


def _count_positions(cuts: list[int], j: int) -> int:
    return cuts[-1] if j < len(cuts) - 2 else max(1, cuts[-1] - cuts[j] - 1)


def t_survival(size: float, freedom: int) -> float:
    """Return the two-sided tail of Student's t. Source: Wallace 1959, good to a few per cent."""
    normal = (
        math.sqrt(freedom * math.log1p(size * size / freedom))
        * (8 * freedom + 1)
        / (8 * freedom + 3)
    )
    return math.erfc(normal / math.sqrt(2))


def _measure_doubt(fit: _Fit, j: int, centre: float) -> float:
    before, after = fit.means[j - 1], fit.means[j]
    if abs(after - before) < MIN_RELATIVE * abs(before + centre):
        return 2.0
    test = fit.tests[j - 1]
    if test.p_value > ALPHA:
        return test.p_value
    if test.loss <= _RETURN_LOSS:
        return min(1.0, math.exp(-test.loss / 2))
    return 1.0 if j == 1 and fit.cuts[1] < MIN_BASELINE else 0.0


def _differs_by_rank(fit: _Fit, j: int, raw: Floats) -> bool:
    """Return whether a cut's sides also differ by rank. This is always true for levels that repeat
    one value exactly.
    """
    cuts, first = fit.cuts, fit.find_excursion(j)
    old = raw[max(cuts[j - 1], cuts[j] - _RANK_POINTS) : cuts[j]]
    new = raw[cuts[j] : min(cuts[j + 1], cuts[j] + _RANK_POINTS)]
    if first == j:
        old = np.concatenate((old, raw[cuts[j + 1] : min(cuts[j + 2], cuts[j + 1] + _RANK_POINTS)]))
    elif first is not None:
        new = np.concatenate((raw[max(cuts[j - 2], cuts[j - 1] - _RANK_POINTS) : cuts[j - 1]], new))
    if len(old) >= MIN_BASELINE and np.all(old == old[0]) and np.all(new == new[0]):
        return True
    if old.max() < new.min() or new.max() < old.min():
        p_value = smallest_p(len(old), len(new))
    else:
        p_value = mann_whitney(old.tolist(), new.tolist()).p_value
    both = np.concatenate((old, new))
    alpha = _RANK_ALPHA if len(np.unique(both)) == len(both) else _TIED_RANK_ALPHA
    return p_value * _count_positions(cuts, j) <= alpha


def _make_change_points(series: CleanSeries, fit: _Fit) -> list[ChangePoint]:
    means, cuts, positions, steps = fit.means, fit.cuts, series.positions, []
    recovered = _find_recovered(fit)
    undoing = _find_recovered(fit, beyond=False)
    ends, gains = _return_gains(series.series, cuts)
    is_over = len(ends) > 0 and gains.max() > 0
    over = positions[ends[gains >= gains.max() - _POSITION_LOSS * fit.sigma**2]] if is_over else []
    for j in range(1, len(means)):
        splits, gains = split_gains(series.series, cuts[j - 1], cuts[j + 1])
        likely = splits[gains >= gains.max() - _POSITION_LOSS * fit.sigma**2]
        before, after = means[j - 1] + series.centre, means[j] + series.centre
        undone = min((i for i, back in undoing.items() if back == j), default=None)
        steps.append(
            ChangePoint(
                index=int(positions[cuts[j]]),
                low=int(positions[likely[0] - 1]) + 1,
                high=int(positions[likely[-1]]),
                before=math.ldexp(before, series.exponent),
                after=math.ldexp(after, series.exponent),
                relative=None if abs(before) <= series.rounding else (after - before) / abs(before),
                sigmas=fit.tests[j - 1].sigmas,
                p_value=fit.tests[j - 1].p_value,
                before_count=cuts[j] - cuts[j - 1],
                after_count=cuts[j + 1] - cuts[j],
                recovered_at=int(positions[cuts[recovered[j]]]) if j in recovered else None,
                recovers=None if undone is None else int(positions[cuts[undone]]),
                may_be_back=(int(over[0]), int(over[-1]))
                if is_over and j == len(means) - 1
                else None,
            )
        )
    return steps


def _find_recovered(fit: _Fit, *, beyond: bool = True) -> dict[int, int]:
    """Return, for each step that was reversed, the level that reversed it.

    With `beyond`, a level on the far side of the one before counts too. A level that reverses a
    step is not itself reversed: a later change is a step of its own.
    """
    recovered: dict[int, int] = {}
    undoing: set[int] = set()
    means = fit.means
    for j in range(1, len(means)):
        if j in undoing:
            continue
        for i in range(j + 1, len(means)):
            is_back = fit.is_back(j, i)
            if is_back or (beyond and (means[i] - means[j - 1]) * (means[j] - means[j - 1]) < 0):
                recovered[j] = i
                undoing |= {i} if is_back else set()
                break
    return recovered
