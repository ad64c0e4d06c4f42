"""Compare speedups with those of a performance CSV, as --baseline of upstream's harness does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from compileboard.collectors.bench.outcome import Outcome
from compileboard.collectors.bench.plan import Planned
from compileboard.collectors.formats.read import read_results


def read_baseline(path: str | None) -> dict[str, float]:
    """Return the speedup of each model of a file; nothing of no file.

    Raises: ValueError in words if it cannot be read or has no speedup.
    """
    if path is None:
        return {}
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"--baseline {path}: {error.strerror or error}; expected a performance CSV") from None
    found = read_results(os.path.basename(path), data).results
    speedups = {it.model: it.values["speedup"] for it in found if it.status == "measured" and it.values.get("speedup")}
    if not speedups:
        raise ValueError(f"--baseline {path}: no row has a speedup; expected a CSV with the columns name and speedup")
    return speedups


def compare_with(baseline: Mapping[str, float], planned: Planned, outcome: Outcome) -> None:
    """Add upstream's columns to a measured speedup; a model that the baseline lacks gets none, where upstream has 0."""
    before = baseline.get(planned.ref.name)
    if before and planned.experiment == "performance" and "speedup" in outcome.values:
        outcome.values |= {"baseline": before, "speedup_vs_baseline": outcome.values["speedup"] / before}
