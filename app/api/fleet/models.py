"""Benchmark results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from compileboard.app.analysis.models.series import ModelSeries, read_name
from compileboard.app.analysis.models.table import DEFAULT_ORDER, ORDERS, cut_page, sort_results
from compileboard.app.api.answers import PageQuery, find_run, operation, refuse
from compileboard.app.db import get_engine, get_reader
from compileboard.app.queries.fields import SORT_HELP
from compileboard.app.queries.fleet.models import ModelFilter, list_models
from compileboard.app.queries.page import Page
from compileboard.app.queries.parameters import SuiteName, order_by
from compileboard.app.queries.run.models import list_results as read_results
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.screens.fleet.models import (
    ResultJson,
    SeriesFields,
    build_model_history,
    make_result,
)


@dataclass(frozen=True)
class ModelSeriesJson(SeriesFields):
    """Results that can be compared with each other."""

    points: Annotated[list[ResultJson], "A result a run, the oldest first."]


@dataclass(frozen=True)
class ModelHistoryJson:
    """One model over time."""

    model: Annotated[str, "Its name."]
    suites: Annotated[list[str], "The suites that have a model of this name."]
    series: Annotated[list[ModelSeriesJson], "The series that was measured last comes first."]


@dataclass(frozen=True)
class ModelSort:
    """The order of a list of results."""

    sort: Annotated[str, order_by(ORDERS), SORT_HELP] = DEFAULT_ORDER


@dataclass(frozen=True)
class SuiteQuery:
    """Which suite."""

    suite: SuiteName = None


@operation("/runs/<run_id>/results")
def list_results(detail: RunDetail, page: PageQuery) -> Page[ResultJson]:
    """List a run's benchmark results, one row a model and metric set, by suite and model."""
    return cut_page(read_results(get_reader(), detail.run.id), page.cursor, page.limit).map(make_result)


@operation("/models")
def list_newest(selection: ModelFilter, order: ModelSort, page: PageQuery) -> Page[ResultJson]:
    """List the newest benchmark result of each model and metric set, or those of one run, the worst first."""
    if selection.run:
        find_run(selection.run)
    rows = sort_results(list_models(get_engine(), selection), order.sort)
    return cut_page(rows, page.cursor, page.limit).map(make_result)


@operation("/models/<path:name>")
def get_model(name: str, query: SuiteQuery) -> ModelHistoryJson:
    """Return one model's benchmark results over time: its series, each with its points, the oldest first."""
    name = read_name(name)
    history = build_model_history(get_engine(), name, query.suite)
    if history is None:
        refuse(f"There is no model {name[:80]}; /api/v1/models lists those that were benchmarked.")
    return ModelHistoryJson(name, history.suites, [_make_series(series) for series in history.series])


def _make_series(series: ModelSeries) -> ModelSeriesJson:
    return ModelSeriesJson(**series.fields, points=[make_result(point.row) for point in series.points])
