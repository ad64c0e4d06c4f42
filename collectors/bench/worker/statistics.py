"""Statistics of repeats (medians, the interval of a speedup, noise), and dynamo's counts."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch._dynamo
import torch._dynamo.utils
from torch._dynamo.utils import counters

from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.contract.verdicts import measure_noise

RESAMPLES = 2000
CONFIDENCE = 0.95
SEED = 1337


def compute_speedup(eager: Sequence[float], compiled: Sequence[float]) -> dict[str, float]:
    """Return the ratio of the medians as `speedup`, and from five pairs on `speedup_low` and
    `speedup_high`, its bounds by a percentile bootstrap over the interleaved pairs.

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
        return {"speedup": value}
    draw, count = random.Random(SEED), len(eager)  # noqa: S311  drawn again, it must be the same
    ratios = sorted(_resample_ratio(eager, compiled, draw, count) for _ in range(RESAMPLES))
    tail = (1 - CONFIDENCE) / 2
    return {
        "speedup": value,
        "speedup_low": ratios[int(tail * RESAMPLES)],
        "speedup_high": ratios[int((1 - tail) * RESAMPLES) - 1],
    }


def _resample_ratio(
    eager: Sequence[float], compiled: Sequence[float], draw: random.Random, count: int
) -> float:
    picked = draw.choices(range(count), k=count)
    return median([eager[i] for i in picked]) / median([compiled[i] for i in picked])


def add_speedup(outcome: ExperimentOutcome, repeats: dict[str, list[float]]) -> None:
    """Add repeats in milliseconds, their speedup with its interval, and their noise."""
    outcome.repeats = repeats
    outcome.values |= {
        **compute_speedup(repeats["eager"], repeats["compiled"]),
        "abs_latency": median(repeats["compiled"]),
        "eager_latency": median(repeats["eager"]),
    }
    for side in ("eager", "compiled"):
        if (noise := measure_noise(repeats[side])) is not None:
            outcome.values[f"{side}_noise"] = noise


def dynamo_counts() -> Counter[str]:
    """Return the counters so far. Subtract an earlier value for a part of the run.

    Source: get_dynamo_stats of upstream's benchmarks/dynamo/common.py.
    """
    frames = counters["frames"]
    return Counter(
        {
            "calls_captured": counters["stats"]["calls_captured"],
            "unique_graphs": counters["stats"]["unique_graphs"],
            "fallbacks_to_eager": frames["total"] - frames["ok"],
            "graph_breaks": sum(counters["graph_break"].values()),
            "unique_graph_breaks": len(+counters["graph_break"]),
            "autograd_captures": counters["compiled_autograd"]["captures"],
            "autograd_compiles": counters["compiled_autograd"]["compiles"],
            "cudagraph_skips": counters["inductor"]["cudagraph_skips"],
        }
    )


def count_since(start: Counter[str]) -> dict[str, float]:
    now = dynamo_counts()
    now.subtract(start)
    return {name: float(value) for name, value in now.items()}


MANY = 100_000  # metrics to keep: torch keeps 64 and drops the rest
NO_LIMIT = 1000  # recompiles per function: torch's limit would hide later ones


@dataclass(frozen=True)
class RecompileCounts:
    compiles: int
    recompiles: int
    guard_failures: tuple[str, ...]


class RecompileWatch:
    def __init__(self) -> None:
        set_limit = getattr(torch._dynamo.utils, "set_compilation_metrics_limit", None)
        if set_limit is not None:
            set_limit(MANY)
        self._compiles, self._failures = 0, dict[Any, int]()
        self.count_new()

    def count_new(self) -> RecompileCounts:
        """Return the compiles since the last call. torch's own lists are not cleared, because the
        hooks read them too.
        """
        ids = [str(metric.compile_id) for metric in torch._dynamo.utils.get_compilation_metrics()]
        failures = {
            code: list(map(str, reasons))
            for code, reasons in torch._dynamo.utils.guard_failures.items()
        }
        new = {id_ for id_ in ids[self._compiles :] if id_.rpartition("/")[2].isdigit()}
        again = [
            compile_id for compile_id in new if int(compile_id.rpartition("/")[2]) > 0
        ]  # "0/2" is the third compile of frame 0
        failed = [
            reason
            for code, reasons in failures.items()
            for reason in reasons[self._failures.get(code, 0) :]
        ]
        self._compiles = len(ids)
        self._failures = {code: len(reasons) for code, reasons in failures.items()}
        return RecompileCounts(len(new), len(again), tuple(failed))


def without_limit() -> contextlib.AbstractContextManager[Any]:
    config: Any = torch._dynamo.config
    name = (
        "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    )  # the name up to torch 2.5
    patch: contextlib.AbstractContextManager[Any] = config.patch({name: NO_LIMIT})
    return patch
