"""The noise of a series, whatever steps it has: its scale, its spikes, its autocorrelation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.intp]
Numbers: TypeAlias = Sequence[float] | Floats

_MEDIAN_TO_SIGMA = 1.0484  # of |x[i+1] − x[i]| of a normal distribution: 1.4826 ÷ √2
_SMALLER_TO_SIGMA = (
    1.0  # of the smaller of two neighbouring differences, root mean square, its largest 5% left out
)
_SPIKE_SIGMAS = 4.0
_SHORTEST_FOR_MEMORY = 12


def noise_scale(values: Floats) -> float:
    """Estimate the noise's standard deviation from successive differences; a step affects only one.

    Shape: at least 3 finite values
    Source: Rousseeuw and Croux 1993 (MAD); von Neumann 1941 (successive differences).
    """
    away = np.abs(values[1:] - values[:-1])
    smaller = np.sort(np.minimum(away[1:], away[:-1]))
    smaller = smaller[: len(smaller) - max(1, len(smaller) // 20)]
    flicker = math.sqrt(float(smaller @ smaller) / len(smaller)) if len(smaller) else 0.0
    return max(_MEDIAN_TO_SIGMA * _median(away), _SMALLER_TO_SIGMA * flicker)


def find_spikes(values: Floats, sigma: float) -> tuple[NDArray[np.bool_], Floats]:
    """Return which points are far from the median of themselves and both neighbours, and the
    medians.

    Shape: at least 3 finite values
    Source: Hampel's identifier over 3 points.
    """
    padded = np.concatenate((values[2:3], values, values[-3:-2]))
    before, after = padded[:-2], padded[2:]
    medians: Floats = np.maximum(
        np.minimum(before, after), np.minimum(np.maximum(before, after), values)
    )
    return np.abs(values - medians) > _SPIKE_SIGMAS * sigma, medians


def autocorrelation(residuals: Floats, level_count: int) -> float:
    """Estimate the AR(1) coefficient of a series' noise, 0 where it may be chance.

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
    """A series ready for the search. All values are divided by 2 to the power of `exponent`, so
    that no square overflows.
    """

    series: WeightedValues
    raw: Floats
    positions: Ints
    centre: float
    sigma: float
    rounding: float
    exponent: int


def prepare(values: Numbers, errors: Numbers | None = None) -> CleanSeries | None:
    """Return None if fewer than 3 values are finite or all are 0. Raises ValueError for a wrong
    number of errors.
    """
    if errors is not None and len(errors) != len(values):
        raise ValueError(f"expected an error for each of {len(values)} values, got {len(errors)}")
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
    weights = np.where(is_spike, _SPIKE_WEIGHT, _weigh(errors, positions, sigma, exponent))
    series = _sum_up(np.where(is_spike, medians, raw) - centre, weights)
    return CleanSeries(series, raw, positions, centre, sigma, rounding, exponent)


def _sum_up(values: Floats, weights: Floats) -> WeightedValues:
    sums, weight_sums = np.zeros(len(values) + 1), np.zeros(len(values) + 1)
    np.cumsum(values * weights, out=sums[1:])
    np.cumsum(weights, out=weight_sums[1:])
    return WeightedValues(values, weights, sums, weight_sums)


def _weigh(errors: Numbers | None, positions: Ints, sigma: float, exponent: int) -> Floats:
    if errors is None:
        return np.ones(len(positions))
    own = np.ldexp(np.abs(np.asarray(errors, dtype=np.float64)[positions]), -exponent)
    known = np.isfinite(own)
    usual = float(np.median(own[known])) if known.any() else 0.0
    own[~known] = usual
    typical = max(sigma, usual) ** 2
    weights: Floats = typical / (max(typical - usual**2, typical / 4) + own**2)
    return weights
