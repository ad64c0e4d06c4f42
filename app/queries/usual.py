"""Which runs of a suite lack models that it usually has: their means are of other models, and no best and no step."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median


def find_usual(measured_counts: Sequence[int]) -> float:
    """Return how many models a run of a suite usually measures, 0 without a run."""
    return float(median(measured_counts)) if measured_counts else 0.0


def is_incomplete(measured_count: int, failed_count: int, usual: float) -> bool:
    """Return True where models failed that are usually measured; one that always fails is in no mean."""
    return failed_count > 0 and measured_count < usual
