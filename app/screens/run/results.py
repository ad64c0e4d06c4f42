"""A run's benchmark results for reports."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from compileboard.app.analysis.models.matrix import (
    build_matrices,
    has_several_configurations,
    list_brief,
    order_models,
)
from compileboard.app.analysis.models.series import ModelSeries, split_series
from compileboard.app.queries.run.models import ResultParts, get_result_parts, list_measured
from compileboard.app.screens.exports import (
    EXPORTED,
    DistributedResult,
    ExportedResult,
    build_distributed,
    build_exports,
)
from compileboard.app.screens.fleet.models import (
    ResultsScreen,
    build_results_screen,
)
from compileboard.collectors.store.rollups.results import (
    ExperimentResult,
    merge_results,
    merge_with_parts,
)

MOST_RESULTS = 300
MOST_FAILED = 20


@dataclass(frozen=True)
class ReportedResults:
    results: ResultsScreen
    failures: Sequence[tuple[ExperimentResult, ResultParts]]
    failed_count: int
    exports: Sequence[ExportedResult]
    distributed: Sequence[DistributedResult]


def iterate_exports(
    reader: sqlite3.Connection, measured: Sequence[ExperimentResult]
) -> Iterator[ExportedResult]:
    chosen = [result for result in measured if result.experiment in EXPORTED]
    for suite, series in _split_by_model(chosen):
        yield from build_exports(lambda _run_id: reader, series, suite)


def iterate_distributed(
    reader: sqlite3.Connection, measured: Sequence[ExperimentResult]
) -> Iterator[DistributedResult]:
    chosen = [result for result in measured if result.world_size > 1]
    for suite, series in _split_by_model(chosen):
        yield from build_distributed(lambda _run_id: reader, series, suite)


def _split_by_model(results: Sequence[ExperimentResult]) -> Iterator[tuple[str, list[ModelSeries]]]:
    by_model: dict[tuple[str, str], list[ExperimentResult]] = {}
    for result in results:
        by_model.setdefault((result.suite, result.model), []).append(result)
    for (suite, _model), chosen in sorted(by_model.items(), key=lambda pair: pair[0]):
        yield suite, split_series(merge_with_parts(chosen))


def build_reported_results(reader: sqlite3.Connection, run_id: str) -> ReportedResults | None:
    measured = list_measured(reader, run_id)
    if not measured:
        return None
    failed = [result for result in measured if result.status == "failed"]
    parts = ((result, get_result_parts(reader, result.id)) for result in failed[:MOST_FAILED])
    results = build_results_screen(merge_results(measured), None, None, MOST_RESULTS)
    brief = list_brief(measured)
    if has_several_configurations(brief):
        models = order_models(brief)[:MOST_RESULTS]
        # The matrix and the table of exports have the others.
        timed = [
            of
            for of in results.configurations
            if any(set(row.experiments) - set(EXPORTED) for row in of.rows)
        ]
        results = replace(
            results, matrices=build_matrices(brief, measured, models), configurations=timed
        )
    return ReportedResults(
        results=results,
        failures=[(result, part) for result, part in parts if part is not None],
        failed_count=len(failed),
        exports=list(islice(iterate_exports(reader, measured), MOST_RESULTS)),
        distributed=list(islice(iterate_distributed(reader, measured), MOST_RESULTS)),
    )
