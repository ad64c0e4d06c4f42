"""Merge the ranks' results: the slowest rank's times, the largest memory. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compileboard.collectors.bench.plan.settings import BenchSettings
from compileboard.collectors.bench.worker.outcome import COLD, WARM, ExperimentOutcome, add_samples
from compileboard.collectors.bench.worker.statistics import summarize

OF_RANK = "rank"  # facts of one rank's outcome


def merge_ranks(
    settings: BenchSettings, outcomes: Sequence[ExperimentOutcome], failed_rank: int | None
) -> ExperimentOutcome:
    """Merge the outcomes in rank order, or return only that of the failed rank."""
    described = _describe(settings, outcomes)
    ranks = [_sum_up(rank, of_rank) for rank, of_rank in enumerate(outcomes)]
    if failed_rank is not None:
        outcome = outcomes[failed_rank]
        outcome.message = (
            f"rank {failed_rank}: {outcome.message or outcome.reason or outcome.status}"
        )
        described["failed_rank"] = failed_rank
    else:
        outcome = _merge(outcomes)
    alone_ms, slowest_ms = (
        described.get("one_process_latency_ms"),
        outcome.values.get("abs_latency"),
    )
    if alone_ms and slowest_ms:
        outcome.values["scaling_efficiency"] = (
            alone_ms / slowest_ms
        )  # as many samples a rank in either
    outcome.facts = {name: value for name, value in outcome.facts.items() if name != OF_RANK}
    outcome.facts["distributed"] = described
    outcome.facts["ranks"] = ranks
    return outcome


def _describe(settings: BenchSettings, outcomes: Sequence[ExperimentOutcome]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "kind": "ddp" if settings.ddp else "fsdp2",
        "mode": settings.optimize_ddp_mode if settings.ddp else None,
        "world_size": settings.world_size,
    }
    for outcome in outcomes:
        for name, value in outcome.facts.get("distributed", {}).items():
            known = described.get(name)
            described[name] = max(known, value) if isinstance(known, (int, float)) else value
    return described


def _merge(outcomes: Sequence[ExperimentOutcome]) -> ExperimentOutcome:
    merged = outcomes[0]
    names = {name for outcome in outcomes for name in outcome.values}
    values = {
        name: max(outcome.values[name] for outcome in outcomes if name in outcome.values)
        for name in names
    }
    repeats = {
        name: slowest([outcome.repeats.get(name, []) for outcome in outcomes])
        for name in {name for outcome in outcomes for name in outcome.repeats}
    }
    if repeats.get("eager") and repeats.get("compiled"):
        timed = summarize(values, repeats)
        merged.values, merged.repeats = timed.values, timed.repeats
        add_samples(merged, COLD, repeats.get(COLD.samples, ()))
        add_samples(merged, WARM, repeats.get(WARM.samples, ()))
        if merged.values.get("dynamo_peak_mem") and "eager_peak_mem" in values:
            merged.values["compression_ratio"] = (
                values["eager_peak_mem"] / values["dynamo_peak_mem"]
            )
    else:
        merged.values, merged.repeats = values, repeats
    return merged


def slowest(samples_by_rank: Sequence[Sequence[float]]) -> list[float]:
    count = max(map(len, samples_by_rank), default=0)
    return [
        max(samples)
        for samples in zip(*(samples for samples in samples_by_rank if len(samples) == count))
    ]


def _sum_up(rank: int, outcome: ExperimentOutcome) -> dict[str, Any]:
    names = {
        "latency_ms": "abs_latency",
        "eager_latency_ms": "eager_latency",
        "peak_gb": "dynamo_peak_mem",
        "graphs": "unique_graphs",
        "graph_breaks": "graph_breaks",
    }
    summed = {"rank": rank, **{name: outcome.values.get(value) for name, value in names.items()}}
    return {**summed, "splits": None, "collectives": None, **outcome.facts.get(OF_RANK, {})}
