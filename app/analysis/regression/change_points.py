"""Change points of a series: a scan for candidates, least squares between neighbours, and a test of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from compileboard.app.analysis.regression.noise import (
    CleanSeries,
    Floats,
    Ints,
    Numbers,
    WeightedValues,
    autocorrelation,
    prepare,
)
from compileboard.collectors.contract.rank_test import mann_whitney, smallest_p

MIN_POINTS = 2  # one point is a spike
MIN_BASELINE = 3
_WINDOW_GROWTH = math.sqrt(2)
_NEWEST = 12  # points at the end that are looked at with the lower threshold
_NEWEST_SIGMAS, _SLACK_SIGMAS = 2.8, 1.4


def find_candidates(series: WeightedValues, sigma: float, alpha: float) -> list[int]:
    """Return both ends and every position that may be a step, generously: each is tested afterwards.

    The stretch of the series whose mean stands farthest from the rest's (a window of 2, 3, 4, 5, 7, … points anywhere,
    or everything from a point on) is cut out, then the same is done in every piece.
    Source: Olshen, Venkatraman, Lucito and Wigler 2004, circular binary segmentation.
    """
    count = len(series)
    sigmas = math.sqrt(2 * math.log(count / alpha)) - _SLACK_SIGMAS
    lowest = (max(sigmas, 3.0) * sigma) ** 2
    cuts: set[int] = set()
    pieces = [(0, count)]
    while pieces:
        low, high = pieces.pop()
        if high - low <= 2 * MIN_POINTS:
            continue
        start, end = _windows(high - low)
        gain, position = _best(series, low, high, start + low, end + low)
        if gain < lowest:
            continue
        inner = [cut for cut in (int(start[position]) + low, int(end[position]) + low) if low < cut < high]
        cuts.update(inner)
        bounds = [low, *inner, high]
        pieces.extend(pairwise(bounds))
    last = max(cuts, default=0)
    newest = np.arange(max(last + MIN_BASELINE, count - _NEWEST), count - MIN_POINTS + 1)
    if len(newest):
        gain, position = _best(series, last, count, np.full_like(newest, last), newest)
        if gain > (_NEWEST_SIGMAS * sigma) ** 2:
            cuts.add(int(newest[position]))
    return [0, *sorted(cuts), count]


def may_have_change(series: WeightedValues, sigma: float) -> bool:
    """Return whether any stretch up to the newest point might be a new level."""
    if len(series) < MIN_BASELINE + MIN_POINTS:
        return False
    _, gains = split_gains(series, 0, len(series))
    return float(gains.max()) > (_NEWEST_SIGMAS * sigma) ** 2


def split_gains(series: WeightedValues, low: int, high: int) -> tuple[Ints, Floats]:
    """Return every position to split a stretch, and by how much that lowers the sum of squares."""
    positions = np.arange(low + MIN_POINTS, high - MIN_POINTS + 1)
    return positions, _gains(series, low, high, np.full_like(positions, low), positions)


def refine_positions(series: WeightedValues, cuts: list[int]) -> None:
    """Move each cut, twice over, to where it fits best between its neighbours."""
    for _ in range(2):
        for j in range(1, len(cuts) - 1):
            positions, gains = split_gains(series, cuts[j - 1], cuts[j + 1])
            if len(positions):
                cuts[j] = int(positions[np.argmax(gains)])


def _best(series: WeightedValues, low: int, high: int, start: Ints, end: Ints) -> tuple[float, int]:
    gains = _gains(series, low, high, start, end)
    position = int(np.argmax(gains))
    return float(gains[position]), position


def _gains(series: WeightedValues, low: int, high: int, start: Ints, end: Ints) -> Floats:
    """Return by how much a level of its own for each window lowers the sum of squares of a stretch."""
    weight = series.weight_sums[end] - series.weight_sums[start]
    total = series.weight_sums[high] - series.weight_sums[low]
    mean = (series.sums[high] - series.sums[low]) / total
    surplus = series.sums[end] - series.sums[start] - mean * weight
    gains: Floats = surplus * surplus / (weight * (1 - weight / total))
    return gains


@lru_cache(maxsize=64)
def _windows(length: int) -> tuple[Ints, Ints]:
    """Return the starts and ends of the windows of a stretch."""
    starts, ends, width = [], [], MIN_POINTS
    while width <= length // 2:
        starts.append(np.arange(length - width + 1))
        ends.append(starts[-1] + width)
        width = max(width + 1, int(width * _WINDOW_GROWTH))
    splits = np.arange(MIN_POINTS, length - MIN_POINTS + 1)
    return np.concatenate([*starts, np.zeros_like(splits)]), np.concatenate([*ends, splits])


ALPHA = 5e-4
MIN_RELATIVE = 0.02
_RANK_ALPHA = 0.05
_TIED_RANK_ALPHA = 0.02  # counts and rounded values lie apart by chance more often
_RANK_POINTS = 40
_NOISE_FLOOR = 0.5
_RECOVERED = 1 / 3
_POSITION_LOSS = 2 * math.log(20)  # a likelihood 20 times lower


@dataclass(frozen=True)
class ChangePoint:
    """One change of level; indices are positions in the values as given.

    `low` to `high` are the positions at which the first point after may lie; `relative` is None where `before` is 0.
    `sigmas` is the size in standard errors, `p_value` is corrected for the number of positions looked at.
    `recovered_at` is the first point back at the level before, `recovers` the index of the earliest step that this
    one takes back.
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


@dataclass(frozen=True)
class _Fit:
    """The levels between cuts, and of every cut how far it stands out."""

    cuts: list[int]
    means: list[float]
    sigma: float
    sigmas: list[float]
    p_values: list[float]


def detect_change_points(
    values: Numbers,
    errors: Numbers | None = None,
    *,
    alpha: float = ALPHA,
    min_relative: float = MIN_RELATIVE,
) -> list[ChangePoint]:
    """Return the steps of a series in order, up and down, recovered ones too.

    Values come oldest first; what is not finite is missing and never filled in. Errors are standard errors: points with
    larger ones than usual count less. A level needs 2 points, the first one 3, so one point is never a step. Candidates
    come from a scan over windows of all widths; then the weakest is dropped, and the rest are located anew by least
    squares, until each passes a t test against the noise about the fitted levels (widened where neighbours resemble
    each other, corrected for the number of places), a rank test that outliers cannot pass, and the smallest size.
    A step near the newest points is corrected for those few positions alone: it is found at once, and may go again.
    Source: Olshen et al. 2004 (scan); Hawkins 1977 (test of a shift); Mann and Whitney 1947; docs/trends.md has rates.
    """
    series = prepare(values, errors)
    if series is None or len(series.series) < MIN_BASELINE + MIN_POINTS:
        return []
    cuts = find_candidates(series.series, series.sigma, alpha)
    refine_positions(series.series, cuts)
    while len(cuts) > 2:
        fit = _fit(series.series, cuts, series.sigma)
        doubts = [_drop_insignificant(fit, j, series.centre, alpha, min_relative) for j in range(1, len(cuts) - 1)]
        if not any(doubts):  # ranks last: they cost most
            doubts = [0.0 if _ranks_apart(fit, j, series.raw) else 1.0 for j in range(1, len(cuts) - 1)]
        if not any(doubts):
            return _make_change_points(series, fit)
        weakest = max(range(len(doubts)), key=lambda j: (doubts[j], -fit.sigmas[j]))
        del cuts[weakest + 1]
        refine_positions(series.series, cuts)
    return []


def _fit(series: WeightedValues, cuts: list[int], sigma: float) -> _Fit:
    """Fit a level between each two cuts and say how many standard errors each cut is, and how likely by chance."""
    positions = np.array(cuts)
    weight = np.diff(series.weight_sums[positions])
    means = np.diff(series.sums[positions]) / weight
    residuals = (series.values - np.repeat(means, np.diff(positions))) * np.sqrt(series.weights)
    freedom = max(1, len(series) - len(means))
    own = max(math.sqrt(float(residuals @ residuals) / freedom), _NOISE_FLOOR * sigma)
    repeats = autocorrelation(residuals, len(means))
    own *= math.sqrt((1 + repeats) / (1 - repeats))
    sizes = np.abs(np.diff(means)) / (own * np.sqrt(1 / weight[1:] + 1 / weight[:-1]))
    p_values = [_places(cuts, j) * t_survival(float(size), freedom) for j, size in enumerate(sizes, 1)]
    return _Fit(list(cuts), means.tolist(), own, sizes.tolist(), [min(1.0, p_value) for p_value in p_values])


def _places(cuts: list[int], j: int) -> int:
    """Count the positions at which such a step could have been: after the newest step, only those of later points."""
    return cuts[-1] if j < len(cuts) - 2 else max(1, cuts[-1] - cuts[j] - 1)


def t_survival(size: float, freedom: int) -> float:
    """Return the two-sided tail of Student's t. Source: Wallace 1959, good to a few per cent."""
    normal = math.sqrt(freedom * math.log1p(size * size / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)
    return math.erfc(normal / math.sqrt(2))


def _drop_insignificant(fit: _Fit, j: int, centre: float, alpha: float, min_relative: float) -> float:
    """Return 0 for a cut that is large, significant and has a baseline, else how little it is so."""
    before, after = fit.means[j - 1], fit.means[j]
    if abs(after - before) < min_relative * abs(before + centre):
        return 2.0
    if fit.p_values[j - 1] > alpha:
        return fit.p_values[j - 1]
    return 1.0 if j == 1 and fit.cuts[1] < MIN_BASELINE else 0.0


def _ranks_apart(fit: _Fit, j: int, raw: Floats) -> bool:
    """Return whether a cut's sides differ by rank too; values that repeat to the last digit need no such proof.

    A level that was left and come back to is one side, so that a short stretch is held against all of it.
    """
    cuts, means = fit.cuts, fit.means
    old = raw[max(cuts[j - 1], cuts[j] - _RANK_POINTS) : cuts[j]]
    new = raw[cuts[j] : min(cuts[j + 1], cuts[j] + _RANK_POINTS)]
    near = _RECOVERED * abs(means[j] - means[j - 1])
    if j + 1 < len(means) and abs(means[j + 1] - means[j - 1]) <= near:
        old = np.concatenate((old, raw[cuts[j + 1] : min(cuts[j + 2], cuts[j + 1] + _RANK_POINTS)]))
    elif j >= 2 and abs(means[j] - means[j - 2]) <= near:
        new = np.concatenate((raw[max(cuts[j - 2], cuts[j - 1] - _RANK_POINTS) : cuts[j - 1]], new))
    if len(old) >= MIN_BASELINE and np.all(old == old[0]) and np.all(new == new[0]):
        return True
    if old.max() < new.min() or new.max() < old.min():
        p_value = smallest_p(len(old), len(new))
    else:
        p_value = mann_whitney(old.tolist(), new.tolist()).p_value
    both = np.concatenate((old, new))
    alpha = _RANK_ALPHA if len(np.unique(both)) == len(both) else _TIED_RANK_ALPHA
    return p_value * _places(cuts, j) <= alpha


def _make_change_points(series: CleanSeries, fit: _Fit) -> list[ChangePoint]:
    means, cuts, positions, steps = fit.means, fit.cuts, series.positions, []
    recovered = _find_recovered(means)
    undoing = _find_recovered(means, beyond=False)
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
                sigmas=fit.sigmas[j - 1],
                p_value=fit.p_values[j - 1],
                before_count=cuts[j] - cuts[j - 1],
                after_count=cuts[j + 1] - cuts[j],
                recovered_at=int(positions[cuts[recovered[j]]]) if j in recovered else None,
                recovers=None if undone is None else int(positions[cuts[undone]]),
            )
        )
    return steps


def _find_recovered(means: Sequence[float], *, beyond: bool = True) -> dict[int, int]:
    """Return for each step that was taken back the level that did: the one before, to within a third of the step.

    With `beyond`, a level on the far side of the one before did so too. What takes a step back is taken back by
    nothing: a change that comes again after it is a step of its own.
    """
    recovered: dict[int, int] = {}
    undoing: set[int] = set()
    for j in range(1, len(means)):
        if j in undoing:
            continue
        size = means[j] - means[j - 1]
        for i in range(j + 1, len(means)):
            left = (means[i] - means[j - 1]) / size  # 1: all of the step; 0: back
            if abs(left) <= _RECOVERED or (beyond and left < 0):
                recovered[j] = i
                undoing |= {i} if abs(left) <= _RECOVERED else set()
                break
    return recovered
