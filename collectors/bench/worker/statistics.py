"""Statistics of repeats: medians, the interval of a speedup, noise. No torch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.contract.verdicts import noise_of

RESAMPLES = 2000
CONFIDENCE = 0.95
SEED = 1337


@dataclass(frozen=True)
class Speedup:
    value: float
    low: float | None
    high: float | None


def speedup_of(eager: Sequence[float], compiled: Sequence[float]) -> Speedup:
    """Divide the medians; bound the ratio by a percentile bootstrap over the interleaved pairs.

    Pairs are drawn together, because a slow moment affects both. Raises ValueError if there are no
    repeats, unequal numbers, or a zero time. Source: Efron and Tibshirani, An Introduction to the
    Bootstrap, chapter 13.
    """
    if not eager or len(eager) != len(compiled):
        raise ValueError(
            f"expected as many compiled repeats as eager ones, got {len(eager)} and {len(compiled)}"
        )
    if min(*eager, *compiled) <= 0:
        raise ValueError("a repeat that took no time cannot be divided by")
    value = median(eager) / median(compiled)
    if len(eager) < 5:
        return Speedup(value, None, None)
    draw, count = random.Random(SEED), len(eager)  # noqa: S311  drawn again, it must be the same
    ratios = sorted(_resampled(eager, compiled, draw, count) for _ in range(RESAMPLES))
    tail = (1 - CONFIDENCE) / 2
    return Speedup(value, ratios[int(tail * RESAMPLES)], ratios[int((1 - tail) * RESAMPLES) - 1])


def _resampled(
    eager: Sequence[float], compiled: Sequence[float], draw: random.Random, count: int
) -> float:
    picked = draw.choices(range(count), k=count)
    return median([eager[i] for i in picked]) / median([compiled[i] for i in picked])


def summarize(values: dict[str, float], repeats: dict[str, list[float]]) -> ExperimentOutcome:
    speedup = speedup_of(repeats["eager"], repeats["compiled"])
    values = {
        **values,
        "speedup": speedup.value,
        "abs_latency": median(repeats["compiled"]),
        "eager_latency": median(repeats["eager"]),
    }
    if speedup.low is not None and speedup.high is not None:
        values |= {"speedup_low": speedup.low, "speedup_high": speedup.high}
    for name in ("eager", "compiled"):
        noise = noise_of(repeats[name])
        if noise is not None:
            values[f"{name}_noise"] = noise
    return ExperimentOutcome(values=values, repeats=repeats)
