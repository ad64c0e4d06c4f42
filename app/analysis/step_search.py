"""Where a piecewise-constant line through a series may change: a scan, and least squares between neighbours."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np

from compileboard.app.analysis.step_noise import Floats, Ints
from compileboard.app.analysis.step_series import Series

MIN_POINTS = 2  # one point is a spike
MIN_BASELINE = 3
_WINDOW_GROWTH = math.sqrt(2)
_NEWEST = 12  # points at the end that are looked at with the lower threshold
_NEWEST_SIGMAS, _SLACK_SIGMAS = 2.8, 1.4


def find_candidates(series: Series, sigma: float, alpha: float) -> list[int]:
    """Return both ends and every place that may be a step, generously: each is tested afterwards.

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
        gain, place = _best(series, low, high, start + low, end + low)
        if gain < lowest:
            continue
        inner = [it for it in (int(start[place]) + low, int(end[place]) + low) if low < it < high]
        cuts.update(inner)
        bounds = [low, *inner, high]
        pieces.extend(pairwise(bounds))
    last = max(cuts, default=0)
    newest = np.arange(max(last + MIN_BASELINE, count - _NEWEST), count - MIN_POINTS + 1)
    if len(newest):
        gain, place = _best(series, last, count, np.full_like(newest, last), newest)
        if gain > (_NEWEST_SIGMAS * sigma) ** 2:
            cuts.add(int(newest[place]))
    return [0, *sorted(cuts), count]


def stands_out(series: Series, sigma: float) -> bool:
    """Say whether any stretch up to the newest point might be a new level."""
    if len(series) < MIN_BASELINE + MIN_POINTS:
        return False
    _, gains = split_gains(series, 0, len(series))
    return float(gains.max()) > (_NEWEST_SIGMAS * sigma) ** 2


def split_gains(series: Series, low: int, high: int) -> tuple[Ints, Floats]:
    """Return every place to split a stretch, and by how much that lowers the sum of squares."""
    places = np.arange(low + MIN_POINTS, high - MIN_POINTS + 1)
    return places, _gains(series, low, high, np.full_like(places, low), places)


def relocate(series: Series, cuts: list[int]) -> None:
    """Move each cut, twice over, to where it fits best between its neighbours."""
    for _ in range(2):
        for j in range(1, len(cuts) - 1):
            places, gains = split_gains(series, cuts[j - 1], cuts[j + 1])
            if len(places):
                cuts[j] = int(places[np.argmax(gains)])


def _best(series: Series, low: int, high: int, start: Ints, end: Ints) -> tuple[float, int]:
    gains = _gains(series, low, high, start, end)
    place = int(np.argmax(gains))
    return float(gains[place]), place


def _gains(series: Series, low: int, high: int, start: Ints, end: Ints) -> Floats:
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
