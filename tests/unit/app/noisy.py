"""Series with noise for the tests of steps and drift: the same at every run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compileboard.app.incidents.change_points import detect_change_points

Make = Callable[[np.random.Generator], list[float]]
# Normal noise of 1, rounded to 1/64 so that scaling by a power of two is exact.
NOISE = [
    float(value) / 64 for value in np.round(np.random.default_rng(97).standard_normal(97) * 64)
]


def flat(count: int, level: float, noise: float = 0.5) -> list[float]:
    """Return so many points about a level."""
    return [level + noise * NOISE[(i * 7 + int(level)) % 97] for i in range(count)]


def make_flat(noise: float) -> Make:
    """Return a maker of 40 points about 1."""
    return lambda rng: (1 + noise * rng.standard_normal(40)).tolist()


def make_stepped(noise: float, after: int) -> Make:
    """Return a maker of 40 points, the last of them 10% higher."""
    level = np.where(np.arange(40) < 40 - after, 1.0, 1.1)
    return lambda rng: (level * (1 + noise * rng.standard_normal(40))).tolist()


def share(make: Make, count: int, position: int | None = None) -> float:
    """Return the share of seeded series with a step, at a place ± 1 if one is given."""
    rng = np.random.default_rng(11)
    steps_by_series = [detect_change_points(make(rng)) for _ in range(count)]
    return (
        sum(
            any(position is None or abs(step.index - position) <= 1 for step in steps)
            for steps in steps_by_series
        )
        / count
    )
