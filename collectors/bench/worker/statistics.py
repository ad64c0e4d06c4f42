"""What repeats say: medians, the interval of a speedup, noise. Standard library alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

RESAMPLES = 2000
CONFIDENCE = 0.95
SEED = 1337


@dataclass(frozen=True)
class Speedup:
    """A speedup and its 95% interval; None where there are too few repeats for one."""

    value: float
    low: float | None
    high: float | None


def speedup_of(eager: Sequence[float], compiled: Sequence[float]) -> Speedup:
    """Divide the medians; bound the ratio by a percentile bootstrap over the interleaved pairs.

    A pair is drawn whole: what slowed the machine for a moment slowed both.
    Raises: ValueError if there are no repeats, not as many of each, or one that took no time.
    Source: Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13.
    """
    if not eager or len(eager) != len(compiled):
        raise ValueError(f"expected as many compiled repeats as eager ones, got {len(eager)} and {len(compiled)}")
    if min(*eager, *compiled) <= 0:
        raise ValueError("a repeat that took no time cannot be divided by")
    value = median(eager) / median(compiled)
    if len(eager) < 5:
        return Speedup(value, None, None)
    draw, count = random.Random(SEED), len(eager)  # noqa: S311  drawn again, it must be the same
    ratios = sorted(_resampled(eager, compiled, draw, count) for _ in range(RESAMPLES))
    tail = (1 - CONFIDENCE) / 2
    return Speedup(value, ratios[int(tail * RESAMPLES)], ratios[int((1 - tail) * RESAMPLES) - 1])


def _resampled(eager: Sequence[float], compiled: Sequence[float], draw: random.Random, count: int) -> float:
    picked = draw.choices(range(count), k=count)
    return median([eager[i] for i in picked]) / median([compiled[i] for i in picked])
