"""What one run measured, for reports: its results, and those that need a look first with their failures."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace

from compileboard.app.analysis.models.matrix import build_matrices, has_several_configurations, list_brief, order_models
from compileboard.app.queries.run.models import ResultParts, get_result_parts, list_measured
from compileboard.app.screens.fleet.models import (
    ResultsScreen,
    build_results_screen,
)
from compileboard.collectors.store.rollups.results import ExperimentResult, merge_results

MOST_RESULTS = 300
MOST_FAILED = 20


@dataclass(frozen=True)
class ReportedResults:
    """The results of a run, worst first, and what experiments failed of."""

    results: ResultsScreen
    failures: Sequence[tuple[ExperimentResult, ResultParts]]
    failed_count: int


def build_reported_results(reader: sqlite3.Connection, run_id: str) -> ReportedResults | None:
    """Read what a report has of a run's results, None where it measured nothing."""
    measured = list_measured(reader, run_id)
    if not measured:
        return None
    failed = [result for result in measured if result.status == "failed"]
    parts = ((result, get_result_parts(reader, result.id)) for result in failed[:MOST_FAILED])
    results = build_results_screen(merge_results(measured), None, None, MOST_RESULTS)
    brief = list_brief(measured)
    if has_several_configurations(brief):
        models = order_models(brief)[:MOST_RESULTS]
        results = replace(results, matrices=build_matrices(brief, measured, models))
    return ReportedResults(
        results=results,
        failures=[(result, part) for result, part in parts if part is not None],
        failed_count=len(failed),
    )
