"""Pass rate, geomean speedup and the other headline numbers of a suite, by three definitions that are in use.

They differ, so every number is shown with the name of its definition. What upstream's files have as 0 (failed, or
never measured) is None here; where a definition treats 0 as a measurement, None is that 0.
Source: test-infra torchci/lib/benchmark/compilerUtils.ts; pytorch benchmarks/dynamo/runner.py, summarize_perf.py
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from collectors.store.result_rows import LEADING, ResultRow

HUD_PASSING = frozenset({"pass", "pass_due_to_skip", "eager_variation"})
RUNNER_PASSING = frozenset({"pass", "pass_due_to_skip"})
_HEADLINE = frozenset(LEADING)
_EAGER = frozenset({"eager", "inductor_eager"})
_EXPORT = frozenset({"export", "inductor_export"})


class Definition(NamedTuple):
    """Name a way to sum up a suite, and say how it counts."""

    name: str
    label: str
    pass_rate: str
    geomean: str
    has_pass_rate: bool = True


HUD = Definition(
    "hud",
    "PyTorch HUD",
    "models whose accuracy passes and that have a speedup, or that pass because a rule skips them, of all",
    "over the models whose accuracy passes",
)
RUNNER = Definition(
    "runner",
    "runner.py",
    "models whose accuracy passes and that have a speedup, of all",
    "over those models, each slowdown counted as 1",
)
SUMMARIZE_PERF = Definition(
    "summarize_perf",
    "summarize_perf.py",
    "it has none",
    "over every model that has a speedup, wrong or right",
    has_pass_rate=False,
)
DEFINITIONS = {it.name: it for it in (HUD, RUNNER, SUMMARIZE_PERF)}


@dataclass(frozen=True)
class SuiteSummary:
    """Hold a suite's headline numbers by one definition; None where nothing of it was measured.

    Graph breaks and recompiles are means over the models that were counted: no definition has them.
    """

    definition: Definition
    total_count: int
    passed_count: int | None
    speedup_count: int
    geomean_speedup: float | None
    compilation_latency_s: float | None
    abs_latency_ms: float | None
    compression_ratio: float | None
    dynamo_peak_mem_gb: float | None
    measured_count: int
    failed_count: int
    graph_breaks_per_model: float | None
    recompiles_per_model: float | None

    @property
    def pass_ratio(self) -> float | None:
        """Return the share of models that passed, None where that is not defined."""
        return None if self.passed_count is None or not self.total_count else self.passed_count / self.total_count


def summarize(rows: Sequence[ResultRow], definition: Definition = HUD) -> SuiteSummary:
    """Sum up one row a model and metric set.

    The definitions know performance and accuracy alone: a row of coverage, say, that has its own backend is no model.
    """
    rows = [it for it in rows if not _HEADLINE.isdisjoint(it.experiments)]
    if definition is RUNNER:
        return _summarize_runner(rows)
    return _summarize_perf(rows) if definition is SUMMARIZE_PERF else _summarize_hud(rows)


def is_passing(row: ResultRow) -> bool:
    """Say whether HUD takes a model's accuracy as passed."""
    return row.backend in _EAGER or row.accuracy in HUD_PASSING


def _timed(rows: Sequence[ResultRow]) -> bool:
    """Say whether anything was to be timed: both definitions ask for a speedup, which an accuracy run has none of."""
    return any("performance" in it.experiments or it.speedup or it.backend in _EXPORT for it in rows)


def _summarize_hud(rows: Sequence[ResultRow]) -> SuiteSummary:
    passing = [it for it in rows if is_passing(it)]
    passed = sum(
        it.accuracy == "pass_due_to_skip" or (is_passing(it) and (bool(it.speedup) or it.backend in _EXPORT))
        for it in rows
    )
    speedups = _without_zero(it.speedup for it in passing)
    peaks = [it.dynamo_peak_mem_gb for it in passing]
    return SuiteSummary(
        HUD,
        total_count=len(rows),
        passed_count=passed if any(it.accuracy or it.backend in _EAGER for it in rows) and _timed(rows) else None,
        speedup_count=len(speedups),
        geomean_speedup=geomean(speedups),
        compilation_latency_s=_mean(_without_zero(it.compilation_latency_s for it in passing)),
        abs_latency_ms=_mean(_without_zero(it.abs_latency_ms for it in passing)),
        compression_ratio=_mean(_without_zero(it.compression_ratio for it in passing)),
        # HUD leaves a 0 in this mean alone.
        dynamo_peak_mem_gb=_mean([it or 0.0 for it in peaks]) if any(it is not None for it in peaks) else None,
        **_count(rows),
    )


def _summarize_runner(rows: Sequence[ResultRow]) -> SuiteSummary:
    passing = [it for it in rows if it.accuracy in RUNNER_PASSING]
    speedups = _positive(it.speedup for it in passing)
    return SuiteSummary(
        RUNNER,
        total_count=len(rows),
        passed_count=len(speedups) if any(it.accuracy for it in rows) and _timed(rows) else None,
        speedup_count=len(speedups),
        geomean_speedup=geomean([max(it, 1.0) for it in speedups]),
        compilation_latency_s=_mean(_positive(it.compilation_latency_s for it in passing)),
        abs_latency_ms=_mean(_positive(it.abs_latency_ms for it in passing)),
        compression_ratio=_mean(_positive(it.compression_ratio for it in passing)),
        dynamo_peak_mem_gb=None,
        **_count(rows),
    )


def _summarize_perf(rows: Sequence[ResultRow]) -> SuiteSummary:
    sped = [it for it in rows if it.speedup]
    speedups = _without_zero(it.speedup for it in sped)
    return SuiteSummary(
        SUMMARIZE_PERF,
        total_count=len(rows),
        passed_count=None,
        speedup_count=len(speedups),
        geomean_speedup=geomean(speedups),
        compilation_latency_s=_mean(_known(it.compilation_latency_s for it in sped)),
        abs_latency_ms=None,
        compression_ratio=geomean(_known(it.compression_ratio for it in sped)),
        dynamo_peak_mem_gb=None,
        **_count(rows),
    )


def _count(rows: Sequence[ResultRow]) -> dict[str, Any]:
    """Return what is counted alike by every definition."""
    return {
        "measured_count": sum(it.status == "measured" for it in rows),
        "failed_count": sum(it.status == "failed" for it in rows),
        "graph_breaks_per_model": _mean(_known(it.graph_breaks for it in rows)),
        "recompiles_per_model": _mean(_known(it.recompiles for it in rows)),
    }


def geomean(values: Sequence[float]) -> float | None:
    """Return the geometric mean, 0 where one of them is 0, None of nothing; by logarithms, which cannot overflow."""
    if not values or any(it < 0 for it in values):
        return None
    return 0.0 if 0 in values else math.exp(math.fsum(map(math.log, values)) / len(values))


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [it for it in values if it is not None]


def _without_zero(values: Iterable[float | None]) -> list[float]:
    return [it for it in values if it]


def _positive(values: Iterable[float | None]) -> list[float]:
    return [it for it in values if it is not None and it > 0]
