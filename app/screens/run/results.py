"""What one run measured: the page's results and, for reports, those that need a look first with their failures."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.app.analysis.models.labels import is_wrong
from compileboard.app.queries.run.models import ResultParts, get_result_parts, list_measured
from compileboard.app.screens.fleet.models import ResultList, ResultsScreen, build_result_list, sum_up_results
from compileboard.collectors.store.rollups.results import ExperimentResult, ResultRow, merge_results

MOST_RESULTS = 300
MOST_FAILED = 20


@dataclass(frozen=True)
class ReportedResults:
    """The results of a run, what failed first, then wrong answers, then the slowest; and what experiments failed of."""

    results: ResultsScreen
    failures: Sequence[tuple[ExperimentResult, ResultParts]]
    failed_count: int


def build_results(
    reader: sqlite3.Connection, run_id: str, order: str | None, cursor: str | None, limit_count: int
) -> ResultsScreen:
    """Read what a run measured, one page of it in an order.

    Raises: FilterError if the order or the cursor cannot be used.
    """
    rows = merge_results(list_measured(reader, run_id))
    return sum_up_results(rows, build_result_list(rows, order, cursor, limit_count))


def build_reported_results(reader: sqlite3.Connection, run_id: str) -> ReportedResults | None:
    """Read what a report has of a run's results, None where it measured nothing."""
    measured = list_measured(reader, run_id)
    if not measured:
        return None
    rows = merge_results(measured)
    failed = [result for result in measured if result.status == "failed"]
    parts = ((result, get_result_parts(reader, result.id)) for result in failed[:MOST_FAILED])
    return ReportedResults(
        results=sum_up_results(rows, ResultList(sorted(rows, key=_urgency)[:MOST_RESULTS], None, "urgency")),
        failures=[(result, part) for result, part in parts if part is not None],
        failed_count=len(failed),
    )


def _urgency(row: ResultRow) -> tuple[object, ...]:
    return (
        row.status != "failed",
        not is_wrong(row),
        row.status != "measured",
        row.speedup or 0.0,
        row.suite,
        row.model,
    )
