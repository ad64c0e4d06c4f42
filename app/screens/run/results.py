"""What one run measured, with what needs a look first."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compileboard.app.analysis.models.table import find_alike, list_comparable_sets
from compileboard.app.queries.run.models import ResultParts, get_result_parts, list_measured
from compileboard.collectors.store.rollups.results import ExperimentResult, ResultRow, merge_results
from compileboard.collectors.store.rollups.summaries import DEFINITIONS, SuiteSummary, summarize

MOST_RESULTS = 300
MOST_FAILED = 20


@dataclass(frozen=True)
class RunResultsScreen:
    """Results of a run: what failed first, then wrong answers, then the slowest; and the failures of experiments."""

    rows: Sequence[ResultRow]
    count: int
    summaries: Sequence[SuiteSummary]
    failures: Sequence[tuple[ExperimentResult, ResultParts]]
    failed_count: int
    same: Mapping[str, Any]

    @property
    def alike(self) -> Sequence[str]:
        """List what all results have in common."""
        return list_comparable_sets(self.same)


def build_results(reader: sqlite3.Connection, run_id: str) -> RunResultsScreen | None:
    """Read what a run measured, None where it measured nothing."""
    measured = list_measured(reader, run_id)
    if not measured:
        return None
    rows = sorted(merge_results(measured), key=_urgency)
    failed = [result for result in measured if result.status == "failed"]
    parts = ((result, get_result_parts(reader, result.id)) for result in failed[:MOST_FAILED])
    return RunResultsScreen(
        rows=rows[:MOST_RESULTS],
        count=len(rows),
        summaries=[summarize(rows, definition) for definition in DEFINITIONS.values()],
        failures=[(result, found) for result, found in parts if found is not None],
        failed_count=len(failed),
        same=find_alike(rows),
    )


def _urgency(row: ResultRow) -> tuple[object, ...]:
    is_wrong = row.accuracy is not None and not row.accuracy.startswith("pass")
    return (row.status != "failed", not is_wrong, row.status != "measured", row.speedup or 0.0, row.suite, row.model)
