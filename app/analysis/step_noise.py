"""How noisy a series is, whatever steps it has: its scale, its spikes, how far a point resembles the one before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.intp]
Numbers: TypeAlias = Sequence[float] | Floats

_MEDIAN_TO_SIGMA = 1.0484  # of |x[i+1] − x[i]| of a normal distribution: 1.4826 ÷ √2
_SMALLER_TO_SIGMA = 1.0  # of the smaller of two neighbouring differences, root mean square, its largest 5 % left out
_SPIKE_SIGMAS = 4.0
_SHORTEST_FOR_MEMORY = 12


def noise_scale(values: Floats) -> float:
    """Estimate the noise's standard deviation from successive differences, of which a step spoils one alone.

    Where most neighbours are equal (counts that flicker) the median difference is 0; there the smaller of two
    neighbouring differences speaks, which a step leaves at 0 and a flicker does not.
    Shape: at least 3 finite values
    Source: Rousseeuw and Croux 1993 (MAD); von Neumann 1941 (successive differences).
    """
    away = np.abs(values[1:] - values[:-1])
    smaller = np.sort(np.minimum(away[1:], away[:-1]))
    smaller = smaller[: len(smaller) - max(1, len(smaller) // 20)]
    flicker = math.sqrt(float(smaller @ smaller) / len(smaller)) if len(smaller) else 0.0
    return max(_MEDIAN_TO_SIGMA * _median(away), _SMALLER_TO_SIGMA * flicker)


def find_spikes(values: Floats, sigma: float) -> tuple[NDArray[np.bool_], Floats]:
    """Find the points that stand far from the median of themselves and both neighbours; return them and the medians.

    Shape: at least 3 finite values
    Source: Hampel's identifier over 3 points.
    """
    padded = np.concatenate((values[2:3], values, values[-3:-2]))
    before, after = padded[:-2], padded[2:]
    medians: Floats = np.maximum(np.minimum(before, after), np.minimum(np.maximum(before, after), values))
    return np.abs(values - medians) > _SPIKE_SIGMAS * sigma, medians


def memory(residuals: Floats, level_count: int) -> float:
    """Estimate how far a point's noise repeats the one before it: the AR(1) coefficient, 0 where it may be chance.

    The bias of a short series and of the fitted levels is added back; an estimate within one standard error of 0 counts
    as 0, one beyond two counts in full.
    Source: Kendall 1954 (bias); Gao and Bruce 1997 (firm shrinkage).
    """
    count = len(residuals)
    power = float(residuals @ residuals)
    if count < _SHORTEST_FOR_MEMORY or power <= 0:
        return 0.0
    raw = float(residuals[1:] @ residuals[:-1]) / power
    raw += level_count * (1 + 3 * max(raw, 0.0)) / count
    trust = min(1.0, max(0.0, raw * math.sqrt(count) - 1))
    return min(0.9, raw * trust)


def _median(values: Floats) -> float:
    half = len(values) // 2
    if len(values) % 2:
        return float(np.partition(values, half)[half])
    parted = np.partition(values, (half - 1, half))
    return float(parted[half - 1] + parted[half]) / 2
