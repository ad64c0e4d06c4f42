"""Benchmark results: the newest of every model or those of one run, and one model over time."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from compileboard.app.benchmarks.exports import (
    EXPORTED,
    DistributedResult,
    ExportedResult,
    build_distributed,
    build_exports,
)
from compileboard.app.benchmarks.matrix import (
    DEFAULT_ORDER,
    ConfigurationResults,
    Matrix,
    build_matrices,
    group_results,
    has_several_configurations,
    list_page,
    make_brief_results,
    order_models,
    paginate,
    sort_results,
)
from compileboard.app.benchmarks.queries import (
    ModelFilter,
    list_brief_results,
    list_history,
    list_models,
    list_results_of,
    match_models,
)
from compileboard.app.benchmarks.run_queries import (
    ResultParts,
    TaskBreak,
    TaskCause,
    get_result_parts,
    list_measured,
    list_task_breaks,
    list_task_causes,
)
from compileboard.app.benchmarks.series import ModelSeries, Point, choose_series, split_series
from compileboard.app.benchmarks.trend_queries import TrendRun, list_trend_runs
from compileboard.app.core.engine import Engine
from compileboard.app.core.page import FilterError
from compileboard.app.core.store import Store, open_run_or_board
from compileboard.app.incidents.model import SeriesChange, rank_change
from compileboard.app.incidents.queries import list_series_changes
from compileboard.app.repros.queries import ReproRow, list_repros
from compileboard.collectors.store.results import (
    BriefResult,
    ExperimentResult,
    ResultRow,
    merge_results,
    merge_with_parts,
)

MAX_REPROS = 10


@dataclass(frozen=True)
class ResultsScreen:
    configurations: Sequence[ConfigurationResults]
    result_count: int
    model_count: int
    next_cursor: str | None
    order: str
    matrices: Sequence[Matrix] = ()
    has_views: bool = False  # Whether the page has a matrix and a list of numbers.

    @property
    def listed(self) -> Sequence[ConfigurationResults]:
        return [configuration for configuration in self.configurations if configuration.listed]

    @property
    def listed_count(self) -> int:
        return sum(len(configuration.listed) for configuration in self.configurations)


@dataclass(frozen=True)
class ModelHistory:
    model: str
    series: Sequence[ModelSeries]

    @property
    def suites(self) -> list[str]:
        return sorted({str(series.fields["suite"]) for series in self.series})


@dataclass(frozen=True)
class ModelScreen:
    history: ModelHistory
    selected: ModelSeries
    point: Point
    runs: Mapping[str, TrendRun]
    changes: Sequence[SeriesChange]  # the most severe first, recovered ones last
    parts: Sequence[tuple[ExperimentResult, ResultParts]]
    graph_breaks: Sequence[TaskBreak]
    causes: Sequence[TaskCause]
    repros: Sequence[ReproRow]
    exports: Sequence[ExportedResult]
    distributed: Sequence[DistributedResult]

    @property
    def repeats(self) -> Mapping[str, Sequence[float]]:
        repeats = {
            name: values for _result, parts in self.parts for name, values in parts.repeats.items()
        }
        return {
            name: values for name, values in repeats.items() if name in ("eager", "compiled")
        } or repeats


class UnknownModelError(LookupError):
    """The database has no such model, series or point."""


VIEWS = ("matrix", "numbers")


def build_models(
    engine: Engine,
    selected: ModelFilter,
    order: str | None,
    cursor: str | None,
    limit_count: int,
    view: str | None = None,
) -> ResultsScreen:
    if view and view not in VIEWS:
        raise FilterError(f"view: {view[:40]!r} is not one of {', '.join(VIEWS)}")
    if view != "numbers":
        results = list_brief_results(engine, selected)
        if view == "matrix" or has_several_configurations(results):
            return build_matrix_screen(engine, results, selected, cursor, limit_count)
    screen = build_results_screen(list_models(engine, selected), order, cursor, limit_count)
    return replace(screen, has_views=view == "numbers")


def build_matrix_screen(
    engine: Engine,
    results: Sequence[BriefResult],
    selected: ModelFilter,
    cursor: str | None,
    limit_count: int,
) -> ResultsScreen:
    models = order_models(results)
    if selected.status or selected.accuracy:
        left = match_models(results, selected)
        models = [model for model in models if model in left]
    page = paginate(models, cursor, limit_count)
    chosen = set(page.rows)
    listed = [result.id for result in results if (result.suite, result.model) in chosen]
    return ResultsScreen(
        configurations=(),
        result_count=len(results) if models else 0,
        model_count=len(models),
        next_cursor=page.next,
        order=DEFAULT_ORDER,
        matrices=build_matrices(results, list_results_of(engine, listed), page.rows),
        has_views=True,
    )


def build_results_screen(
    results: Sequence[ResultRow], order: str | None, cursor: str | None, limit_count: int
) -> ResultsScreen:
    order = order or DEFAULT_ORDER
    groups = group_results(results)
    page = paginate(
        [row for group in groups for row in sort_results(group.rows, order)], cursor, limit_count
    )
    return ResultsScreen(
        configurations=list_page(groups, page.rows),
        result_count=len(results),
        model_count=len({(result.suite, result.model) for result in results}),
        next_cursor=page.next,
        order=order,
    )


def build_model_history(engine: Engine, model: str, suite: str | None) -> ModelHistory | None:
    series = split_series(list_history(engine, model, suite))
    return ModelHistory(model, series) if series else None


def build_model(
    store: Store, model: str, query: Mapping[str, str], run_id: str | None
) -> ModelScreen:
    """Build one model's page: the series that fits the query, at the point of a run, else the
    newest.

    Raises UnknownModelError if there is no such model, series or point.
    """
    engine = store.engine
    history = build_model_history(engine, model, query.get("suite"))
    if history is None:
        raise UnknownModelError(f"There is no model {model[:80]}; its runs may have been deleted.")
    selected = choose_series(history.series, query, run_id)
    if selected is None:
        raise UnknownModelError(
            f"{model[:80]} was never measured so; take a part of the address away."
        )
    point = _choose_point(selected, run_id)
    row = point.row
    reader = open_run_or_board(store, row.run_id)
    changes = list_series_changes(store.board, "model", selected.fields["suite"] or "", [model])
    changes.sort(key=lambda change: (change.recovered_run_id is not None, *rank_change(change)))
    open_run = partial(open_run_or_board, store)
    parts = [
        (result, get_result_parts(open_run(result.run_id), result.id)) for result in point.parts
    ]
    tasks = json.dumps(list(row.tasks))
    return ModelScreen(
        history=history,
        selected=selected,
        point=point,
        runs={
            run.id: run
            for run in list_trend_runs(
                engine, [measured.row.run_id for measured in selected.points]
            )
        },
        changes=[change for change in changes if change.has_fields(selected.fields)],
        parts=[(result, part) for result, part in parts if part],
        graph_breaks=list_task_breaks(reader, row.run_id, tasks=tasks),
        causes=list_task_causes(reader, row.run_id, tasks=tasks),
        repros=list_repros(reader, run_id=row.run_id, tasks=row.tasks, limit=MAX_REPROS).rows,
        exports=build_exports(open_run, history.series, selected.fields["suite"]),
        distributed=build_distributed(open_run, history.series, selected.fields["suite"]),
    )


def _choose_point(series: ModelSeries, run_id: str | None) -> Point:
    if not run_id:
        return series.points[-1]
    for point in series.points:
        if point.row.run_id == run_id:
            return point
    raise UnknownModelError(f"The run {run_id[:80]} has no result of this model, measured so.")


MAX_RESULTS = 300
MAX_FAILED = 20


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
    parts = ((result, get_result_parts(reader, result.id)) for result in failed[:MAX_FAILED])
    results = build_results_screen(merge_results(measured), None, None, MAX_RESULTS)
    brief = make_brief_results(measured)
    if has_several_configurations(brief):
        models = order_models(brief)[:MAX_RESULTS]
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
        exports=list(islice(iterate_exports(reader, measured), MAX_RESULTS)),
        distributed=list(islice(iterate_distributed(reader, measured), MAX_RESULTS)),
    )
