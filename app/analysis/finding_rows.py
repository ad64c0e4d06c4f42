"""Findings as plain dicts, for the API: what the store has of them, with the words of the pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from compileboard.app.analysis.finding_words import (
    describe_confidence,
    describe_finding,
    describe_range,
    describe_series,
)
from compileboard.app.queries.findings import Finding, FindingWord

# What of the evidence is given, and what stands where detection could say nothing.
_EVIDENCE: dict[str, Any] = {
    "before": None,
    "after": None,
    "environment": [],
    "commits": None,
    "causes": [],
    "points": None,
}


def finding_row(it: Finding) -> dict[str, Any]:
    """Return one finding with what it comes to in words."""
    row = dict(vars(it))
    evidence = row.pop("evidence")
    said = {
        "sentence": describe_finding(it),
        "measured_as": describe_series(it),
        "range": describe_range(it),
        "confidence": describe_confidence(it),
        "recovered": it.recovered_run_id is not None,
    }
    return row | said | {name: evidence.get(name) or none for name, none in _EVIDENCE.items()}


def finding_detail_row(it: Finding, said: Iterable[FindingWord]) -> dict[str, Any]:
    """Return one finding with what people said of it, the oldest first."""
    kept = ("action", "who", "text", "time_us")
    return finding_row(it) | {"words": [{name: getattr(word, name) for name in kept} for word in said]}
