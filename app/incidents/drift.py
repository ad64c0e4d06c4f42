"""Detect slow drift, which crosses no threshold on any day, and series that stopped. Pure functions
of values and times.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from compileboard.app.incidents.change_points import (
    ALPHA,
    RECOVERED,
    ChangePoint,
    CleanSeries,
    Floats,
    Ints,
    Numbers,
    WeightedValues,
    autocorrelation,
    detect_change_points,
    fit_levels,
    noise_around_levels,
    scale_series,
    split_gains,
    t_survival,
)

MIN_RELATIVE = 0.03
_MIN_POINTS = 10
_SHORTEST = 6  # points from the old level to the new one; fewer are a step
_KNOTS = 20
_LINE_TERMS, _STEP_TERMS = 4, 2
_MARGIN = 4.0  # required advantage of the line's information criterion over the staircase's


@dataclass(frozen=True)
class Drift:
    """A slow change: level until `start`, linear from there to `end`, then level.

    Indices are positions in the given values; `relative` is None if `before` is 0; `replaces` are
    the indices of the steps that the drift explains better; `recovered_at` is the first point of
    the step that reversed it.
    """

    start: int
    end: int
    before: float
    after: float
    relative: float | None
    sigmas: float
    p_value: float
    replaces: tuple[int, ...] = ()
    recovered_at: int | None = None


@dataclass(frozen=True)
class SeriesChanges:
    steps: list[ChangePoint]
    drift: Drift | None


@dataclass(frozen=True)
class _TrendFit:
    start: int
    end: int
    size: float
    level: float
    sigmas: float
    p_value: float
    criterion: float


def detect_drift(
    values: Numbers,
    errors: Numbers | None = None,
    *,
    steps: Sequence[ChangePoint] | None = None,
) -> Drift | None:
    """Return the clearest slow drift of a series, None if there is none or steps explain it better.

    Level, slope and level are fitted by least squares between steps. The fit has to pass a t test,
    corrected as steps are, and to beat the steps by the Bayesian information criterion.
    Source: Schwarz 1978 (criterion); Bai and Perron 1998 (broken lines); docs/change-point-rates.md
    has the measured rates.
    """
    series = scale_series(values, errors)
    if series is None or len(series.raw) < _MIN_POINTS:
        return None
    change_points = detect_change_points(values, errors) if steps is None else steps
    cuts = [int(np.searchsorted(series.positions, step.index)) for step in change_points]
    best: tuple[_TrendFit, tuple[int, ...], int] | None = None
    for low, high, inner in _list_segments(
        cuts, [step.after > step.before for step in change_points], len(series.raw)
    ):
        line = _fit_line(series.series, low, high, series.sigma)
        if line is None or (best is not None and line.sigmas <= best[0].sigmas):
            continue
        is_large = abs(line.size) >= MIN_RELATIVE * abs(line.level + series.centre)
        if is_large and _fits_better(line, series.series, low, high, inner, series.sigma):
            best = line, inner, low
    return None if best is None else _make_drift(series, *best)


def find_changes(values: Numbers, errors: Numbers | None = None) -> SeriesChanges:
    steps = detect_change_points(values, errors)
    drift = detect_drift(values, errors, steps=steps)
    if drift is None:
        return SeriesChanges(steps, None)
    replaced = set(drift.replaces)
    left = []
    for step in steps:
        if step.index in replaced:
            continue
        if step.recovered_at in replaced:
            step = replace(step, recovered_at=drift.end)
        if step.recovers in replaced:
            step = replace(step, recovers=None)
        share = (step.after - drift.before) / (
            drift.after - drift.before
        )  # 1: all of the drift; 0: back
        if step.index > drift.end and share <= RECOVERED and drift.recovered_at is None:
            drift = replace(drift, recovered_at=step.index)
            step = replace(step, recovers=drift.end if share >= -RECOVERED else None)
        left.append(step)
    return SeriesChanges(left, drift)


@dataclass(frozen=True)
class StopLimits:
    """Limits beyond which a series has stopped. `times_longest` is relative to the longest gap of
    the series so far, in runs.
    """

    least_points: int = 3
    least_missed: int = 3
    times_longest: int = 1


OF_MODEL = StopLimits()
# Suites that were measured only now and then, or for a few days, are not reported.
OF_SUITE = StopLimits(least_points=10, least_missed=10, times_longest=2)


def is_stopped(
    times: Sequence[float], suite_times: Sequence[float], limits: StopLimits = OF_MODEL
) -> bool:
    """Return whether a series stopped while its suite went on for more runs than its longest
    gap.
    """
    if len(times) < limits.least_points:
        return False
    positions = [bisect_right(suite_times, time) for time in times]
    longest = max(after - before for before, after in pairwise(positions))
    return len(suite_times) - positions[-1] >= max(
        limits.least_missed, limits.times_longest * longest
    )


def _list_segments(
    cuts: Sequence[int], is_up: Sequence[bool], count: int
) -> list[tuple[int, int, tuple[int, ...]]]:
    bounds = [0, *cuts, count]
    segments: list[tuple[int, int, tuple[int, ...]]] = [
        (low, high, ()) for low, high in pairwise(bounds)
    ]
    for i in range(len(cuts)):
        for j in range(i, len(cuts)):
            if is_up[j] != is_up[i]:
                break
            segments.append((bounds[i], bounds[j + 2], tuple(cuts[i : j + 1])))
    return [stretch for stretch in segments if stretch[1] - stretch[0] >= _MIN_POINTS]


def _fit_line(series: WeightedValues, low: int, high: int, sigma: float) -> _TrendFit | None:
    values, weights = series.values[low:high], series.weights[low:high]
    starts, ends, shapes, squares = _trend_shapes(high - low)
    total = float(weights.sum())
    level = float(values @ weights) / total
    lean = shapes @ weights
    spread = squares @ weights - lean * lean / total
    sums = shapes @ ((values - level) * weights)
    best = int(np.argmax(sums * sums / spread))
    size = float(sums[best] / spread[best])
    level -= size * float(lean[best]) / total
    residuals = (values - level - size * shapes[best]) * np.sqrt(weights)
    freedom = max(1, len(values) - _LINE_TERMS)
    own = noise_around_levels(residuals, freedom, sigma)
    repeats = autocorrelation(residuals, 2)
    sigmas = abs(size) * math.sqrt(float(spread[best]) * (1 - repeats) / (1 + repeats)) / own
    p_value = min(1.0, len(series) * t_survival(sigmas, freedom))
    if p_value > ALPHA:
        return None
    criterion = _information_criterion(residuals, _LINE_TERMS, sigma)
    return _TrendFit(int(starts[best]), int(ends[best]), size, level, sigmas, p_value, criterion)


def _fits_better(
    line: _TrendFit, series: WeightedValues, low: int, high: int, inner: Sequence[int], sigma: float
) -> bool:
    positions, gains = split_gains(series, low, high)
    stairs = inner, (int(positions[np.argmax(gains)]),)
    return all(
        line.criterion + _MARGIN
        < _information_criterion(
            fit_levels(series, [low, *cuts, high])[2], 1 + _STEP_TERMS * len(cuts), sigma
        )
        for cuts in stairs
    )


def _information_criterion(residuals: Floats, terms: int, sigma: float) -> float:
    count = len(residuals)
    return count * math.log(
        float(residuals @ residuals) / count + (sigma / 4) ** 2
    ) + terms * math.log(count)


def _make_drift(series: CleanSeries, line: _TrendFit, inner: Sequence[int], low: int) -> Drift:
    before = line.level + series.centre
    return Drift(
        start=int(series.positions[low + line.start]),
        end=int(series.positions[low + line.end]),
        before=math.ldexp(before, series.exponent),
        after=math.ldexp(before + line.size, series.exponent),
        relative=None if abs(before) <= series.rounding else line.size / abs(before),
        sigmas=line.sigmas,
        p_value=line.p_value,
        replaces=tuple(int(series.positions[cut]) for cut in inner),
    )


@lru_cache(maxsize=16)
def _trend_shapes(count: int) -> tuple[Ints, Ints, Floats, Floats]:
    knots = np.unique(np.linspace(0, count - 1, min(count, _KNOTS + 1)).round().astype(np.intp))
    pairs = np.array([(low, high) for low in knots for high in knots if high - low >= _SHORTEST])
    starts, ends = pairs[:, 0], pairs[:, 1]
    lines = np.clip((np.arange(count) - starts[:, None]) / (ends - starts)[:, None], 0.0, 1.0)
    return starts, ends, lines, lines * lines
