"""What one run measured: the page's results and, for reports, those that need a look first with their failures."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.app.queries.run.models import ResultParts, get_result_parts, list_measured
from compileboard.app.screens.fleet.models import ResultsScreen, build_results_screen
from compileboard.collectors.store.rollups.results import ExperimentResult, merge_results

MOST_RESULTS = 300
MOST_FAILED = 20


@dataclass(frozen=True)
class ReportedResults:
    """The results of a run, worst first, and what experiments failed of."""

    results: ResultsScreen
    failures: Sequence[tuple[ExperimentResult, ResultParts]]
    failed_count: int


def build_results(
    reader: sqlite3.Connection, run_id: str, order: str | None, cursor: str | None, limit_count: int
) -> ResultsScreen:
    """Read what a run measured, one page of it in an order.

    Raises: FilterError if the order or the cursor cannot be used.
    """
    return build_results_screen(merge_results(list_measured(reader, run_id)), order, cursor, limit_count)


def build_reported_results(reader: sqlite3.Connection, run_id: str) -> ReportedResults | None:
    """Read what a report has of a run's results, None where it measured nothing."""
    measured = list_measured(reader, run_id)
    if not measured:
        return None
    failed = [result for result in measured if result.status == "failed"]
    parts = ((result, get_result_parts(reader, result.id)) for result in failed[:MOST_FAILED])
    return ReportedResults(
        results=build_results_screen(merge_results(measured), None, None, MOST_RESULTS),
        failures=[(result, part) for result, part in parts if part is not None],
        failed_count=len(failed),
    )
