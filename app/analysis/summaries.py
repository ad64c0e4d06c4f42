"""The headline numbers of a suite by each definition in use: ingest keeps them too, so their home is the store."""

from __future__ import annotations

from compileboard.collectors.store.summaries import (
    DEFINITIONS,
    HUD,
    RUNNER,
    SUMMARIZE_PERF,
    Definition,
    Number,
    SuiteSummary,
    count_passed,
    geomean,
    is_passing,
    keep_models,
    summarize,
)

__all__ = [
    "DEFINITIONS",
    "HUD",
    "RUNNER",
    "SUMMARIZE_PERF",
    "Definition",
    "Number",
    "SuiteSummary",
    "count_passed",
    "geomean",
    "is_passing",
    "keep_models",
    "summarize",
]
