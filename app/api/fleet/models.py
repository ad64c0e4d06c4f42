"""Benchmark results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from compileboard.app.analysis.models.series import ModelSeries, read_name
from compileboard.app.analysis.models.table import DEFAULT_ORDER, ORDERS, cut_page
from compileboard.app.analysis.rows import result_row
from compileboard.app.api.answers import PageQuery, find_run, operation, refuse
from compileboard.app.db import get_engine, get_reader
from compileboard.app.queries.fields import SORT_HELP, Count, TimeUs
from compileboard.app.queries.fleet.models import STATUSES, ModelFilter, list_models
from compileboard.app.queries.page import Page
from compileboard.app.queries.parameters import SuiteName, order_by
from compileboard.app.queries.run.models import list_results as read_results
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.schema import one_of
from compileboard.app.screens.fleet.models import build_model_history, build_result_list
from compileboard.collectors.store.rollups.results import ResultRow, fill


@dataclass(frozen=True)
class SetFields:
    """What models were measured as."""

    suite: Annotated[str, "The suite that the model is of."]
    mode: Annotated[str | None, "`inference` or `training`."]
    dtype: Annotated[str | None, "`float32`, `float16`, `bfloat16` or `amp`."]
    device: Annotated[str | None, "`cpu` or `cuda`."]
    hardware: Annotated[str | None, "The GPU's model, or the processor's."]
    backend: Annotated[str | None, "The backend with its config label: `inductor`."]
    dynamic: Annotated[bool, "Whether shapes are dynamic."]
    world_size: Annotated[int, "Ranks that it ran on."]


@dataclass(frozen=True)
class SeriesFields(SetFields):
    """What a model was measured as."""

    batch_size: Annotated[int | None, "Batch size."]


@dataclass(frozen=True)
class ResultJson(SeriesFields):
    """What was measured of one model in one run. null is what was not measured, and never 0."""

    model: Annotated[str, "The model's name."]
    gpu: Annotated[str | None, "The GPU's model; null for what no GPU made."]
    status: Annotated[str, one_of(STATUSES), "What became of it."]
    reason: Annotated[
        str | None, "Of a failure upstream's word for it (`OOM`, `timeout`); of `skipped` and `not_run` why."
    ]
    accuracy: Annotated[str | None, "Upstream's verdict: `pass`, `fail_accuracy`, …"]
    speedup: Annotated[float | None, "Median eager latency ÷ median compiled latency, over interleaved repeats."]
    speedup_low: Annotated[float | None, "Where its 95 % interval begins."]
    speedup_high: Annotated[
        float | None, "Where its 95 % interval ends; an interval that spans 1 is no clear difference."
    ]
    abs_latency_ms: Annotated[float | None, "Median latency compiled. Milliseconds."]
    eager_latency_ms: Annotated[float | None, "Median latency in eager mode. Milliseconds."]
    compilation_latency_s: Annotated[
        float | None, "Compile time with cold caches, of the performance experiment. Seconds."
    ]
    warm_compilation_latency_s: Annotated[float | None, "Compile time with warm caches. Seconds."]
    compression_ratio: Annotated[float | None, "Peak memory in eager mode ÷ compiled."]
    eager_peak_mem_gb: Annotated[float | None, "Peak memory in eager mode. GB of 10^9 bytes."]
    dynamo_peak_mem_gb: Annotated[float | None, "Peak memory compiled. GB of 10^9 bytes."]
    cache_lookup_latency_us: Annotated[float | None, "dynamo's look-up of the compiled code, a call. Microseconds."]
    calls_captured: Annotated[Count | None, "Operations in the captured graphs."]
    unique_graphs: Annotated[Count | None, "Graphs."]
    graph_breaks: Annotated[Count | None, "Graph breaks as torch's counters have them."]
    unique_graph_breaks: Annotated[Count | None, "Distinct reasons among them."]
    recompiles: Annotated[Count | None, "Recompiles."]
    fallbacks_to_eager: Annotated[Count | None, "Frames that were left to run eagerly."]
    autograd_captures: Annotated[Count | None, "Graphs that compiled autograd captured."]
    autograd_compiles: Annotated[Count | None, "Graphs that compiled autograd compiled."]
    cudagraph_skips: Annotated[Count | None, "CUDA graphs that inductor could not use."]
    message: Annotated[str | None, "The exception's own line."]
    command: Annotated[str | None, "The command that makes it again."]
    experiments: Annotated[list[str], "The experiments that it is made of, the leading one first."]
    tasks: Annotated[list[str], "The benchmark's tasks: `task` of the processes that worked on it."]
    time_us: Annotated[TimeUs, "When it was measured."]
    run_id: Annotated[str, "The run that it is of."]
    id: Annotated[int, "Number of the leading experiment's result in this database."]


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
    return cut_page(read_results(get_reader(), detail.run.id), page.cursor, page.limit).map(_make_result)


@operation("/models")
def list_newest(wanted: ModelFilter, order: ModelSort, page: PageQuery) -> Page[ResultJson]:
    """List the newest benchmark result of each model and metric set, or those of one run."""
    if wanted.run:
        find_run(wanted.run)
    listed = build_result_list(list_models(get_engine(), wanted), order.sort, page.cursor, page.limit)
    return Page(tuple(_make_result(result) for result in listed.results), listed.next_cursor)


@operation("/models/<path:name>")
def get_model(name: str, wanted: SuiteQuery) -> ModelHistoryJson:
    """Return one model's benchmark results over time: its series, each with its points, the oldest first."""
    name = read_name(name)
    history = build_model_history(get_engine(), name, wanted.suite)
    if history is None:
        refuse(f"There is no model {name[:80]}; /api/v1/models lists those that were benchmarked.")
    return ModelHistoryJson(name, history.suites, [_make_series(series) for series in history.series])


def _make_result(row: ResultRow) -> ResultJson:
    return fill(ResultJson, result_row(row))


def _make_series(series: ModelSeries) -> ModelSeriesJson:
    return ModelSeriesJson(**series.fields, points=[_make_result(point.row) for point in series.points])
