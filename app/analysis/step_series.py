"""A series made ready for the search: gaps left out, lonely spikes and large errors weighed down."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from compileboard.app.analysis.step_noise import Floats, Ints, Numbers, find_spikes, noise_scale

_FEWEST = 3
_SPIKE_WEIGHT = 0.01


@dataclass(frozen=True)
class Series:
    """Hold a series without gaps and spikes, near 0, its weights, and the running sums of both."""

    values: Floats
    weights: Floats
    sums: Floats
    weight_sums: Floats

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Prepared:
    """Hold a series ready for the search: `raw` are its finite values, `kept` their places in those given.

    Everything is divided by 2 to the power of `exponent`, so that no square overflows. `series` is about `centre`,
    `sigma` its noise, and what is below `rounding` is 0.
    """

    series: Series
    raw: Floats
    kept: Ints
    centre: float
    sigma: float
    rounding: float
    exponent: int


def prepare(values: Numbers, errors: Numbers | None = None) -> Prepared | None:
    """Make a series ready, None where fewer than 3 values are finite or all of them are 0.

    Raises: ValueError if there are not as many errors as values.
    """
    if errors is not None and len(errors) != len(values):
        raise ValueError(f"expected an error for each of {len(values)} values, got {len(errors)}")
    given = np.asarray(values, dtype=np.float64)
    kept = np.flatnonzero(np.isfinite(given))
    raw = given[kept]
    if len(raw) < _FEWEST or not raw.any():
        return None
    exponent = math.frexp(float(np.max(np.abs(raw))))[1]
    raw = np.ldexp(raw, -exponent)
    rounding = 1e-9 * float(np.max(np.abs(raw)))
    sigma = max(noise_scale(raw), rounding)
    centre = float(raw[len(raw) // 2])
    is_spike, medians = find_spikes(raw, sigma)
    weights = np.where(is_spike, _SPIKE_WEIGHT, _weigh(errors, kept, sigma, exponent))
    series = _sum_up(np.where(is_spike, medians, raw) - centre, weights)
    return Prepared(series, raw, kept, centre, sigma, rounding, exponent)


def _sum_up(values: Floats, weights: Floats) -> Series:
    sums, weight_sums = np.zeros(len(values) + 1), np.zeros(len(values) + 1)
    np.cumsum(values * weights, out=sums[1:])
    np.cumsum(weights, out=weight_sums[1:])
    return Series(values, weights, sums, weight_sums)


def _weigh(errors: Numbers | None, kept: Ints, sigma: float, exponent: int) -> Floats:
    """Weigh each point by its error; one with a usual error weighs about 1."""
    if errors is None:
        return np.ones(len(kept))
    own = np.ldexp(np.abs(np.asarray(errors, dtype=np.float64)[kept]), -exponent)
    known = np.isfinite(own)
    usual = float(np.median(own[known])) if known.any() else 0.0
    own[~known] = usual
    typical = max(sigma, usual) ** 2
    weights: Floats = typical / (max(typical - usual**2, typical / 4) + own**2)
    return weights
