"""API of benchmark results: those of a run, the newest ones, matrices, and one model over time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from compileboard.app.benchmarks.exports import (
    DistributedResult,
    ExportedResult,
    build_distributed,
    build_exports,
)
from compileboard.app.benchmarks.matrix import (
    DEFAULT_ORDER,
    ORDERS,
    Matrix,
    paginate,
    sort_results,
)
from compileboard.app.benchmarks.model import (
    build_model_history,
    build_models,
)
from compileboard.app.benchmarks.queries import ModelFilter, list_models
from compileboard.app.benchmarks.run_queries import list_results as read_results
from compileboard.app.benchmarks.series import SeriesFields, read_name
from compileboard.app.core.api import PageQuery, find_run, operation, refuse
from compileboard.app.core.db import get_engine, get_run_reader, get_store
from compileboard.app.core.fields import SORT_HELP
from compileboard.app.core.page import Page
from compileboard.app.core.parameters import SuiteName, order_by
from compileboard.app.core.store import open_run_or_board
from compileboard.app.runs.run_queries import RunDetail
from compileboard.collectors.store.results import ResultRow


@dataclass(frozen=True)
class ModelSeriesJson(SeriesFields):
    """Results that can be compared with each other."""

    points: Annotated[list[ResultRow], "A result a run, the oldest first."]


@dataclass(frozen=True)
class ModelHistoryJson:
    """A model's results over time, by series, with its newest exports and distributed results."""

    model: Annotated[str, "Name of the model."]
    suites: Annotated[list[str], "The suites that have a model of this name."]
    series: Annotated[list[ModelSeriesJson], "The series that was measured last comes first."]
    exports: Annotated[list[ExportedResult], "The newest of each way to export or precompile it."]
    distributed: Annotated[
        list[DistributedResult], "The newest on several ranks, by way and ranks."
    ]


@dataclass(frozen=True)
class ModelSort:
    sort: Annotated[str, order_by(ORDERS), SORT_HELP] = DEFAULT_ORDER


@dataclass(frozen=True)
class SuiteQuery:
    suite: SuiteName = None


@operation("/runs/<run_id>/results")
def list_results(detail: RunDetail, page: PageQuery) -> Page[ResultRow]:
    """List a run's benchmark results, one row per model and metric set, by suite and model."""
    return paginate(
        read_results(get_run_reader(detail.run.id), detail.run.id), page.cursor, page.limit
    )


@operation("/models")
def list_newest(selection: ModelFilter, order: ModelSort, page: PageQuery) -> Page[ResultRow]:
    """List the newest benchmark result of each model and metric set, or the results of one run, the
    worst first.
    """
    if selection.run:
        find_run(selection.run)
    rows = sort_results(list_models(get_engine(), selection), order.sort)
    return paginate(rows, page.cursor, page.limit)


@operation("/matrix")
def list_matrices(selection: ModelFilter, page: PageQuery) -> Page[Matrix]:
    """List the state of each experiment of each configuration, one matrix per suite; pages are of
    models.
    """
    if selection.run:
        find_run(selection.run)
    screen = build_models(get_engine(), selection, None, page.cursor, page.limit, "matrix")
    return Page(tuple(screen.matrices), screen.next_cursor)


@operation("/models/<path:name>")
def get_model(name: str, query: SuiteQuery) -> ModelHistoryJson:
    """Return one model's benchmark results over time: its series, each with its points, the oldest
    first.
    """
    name = read_name(name)
    history = build_model_history(get_engine(), name, query.suite)
    if history is None:
        refuse(f"There is no model {name[:80]}; /api/v1/models lists those that were benchmarked.")
    open_run, every = partial(open_run_or_board, get_store()), history.series
    return ModelHistoryJson(
        model=name,
        suites=history.suites,
        series=[
            ModelSeriesJson(**series.fields, points=[point.row for point in series.points])
            for series in every
        ],
        exports=[
            export for suite in history.suites for export in build_exports(open_run, every, suite)
        ],
        distributed=[
            several
            for suite in history.suites
            for several in build_distributed(open_run, every, suite)
        ],
    )
