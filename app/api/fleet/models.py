"""Schemas of benchmark results."""

from __future__ import annotations

from typing import Any

from flask import request

from compileboard.app.analysis import rows
from compileboard.app.analysis.models.series import ModelSeries, read_name, split_series
from compileboard.app.analysis.models.table import DEFAULT_ORDER, cut_page, sort_results
from compileboard.app.api.answers import (
    Answer,
    Operation,
    build_page_answer,
    find_run,
    read_cursor,
    read_limit,
    read_word,
    refuse,
)
from compileboard.app.api.parameters import MODELS, PAGE
from compileboard.app.api.schema import (
    Schema,
    array_of,
    count,
    decimal,
    flag,
    maybe,
    record,
    ref,
    text,
    time_us,
    whole,
    word,
)
from compileboard.app.db import get_reader
from compileboard.app.queries.fleet.models import STATUSES, list_history, list_models, read_model_filter
from compileboard.app.queries.run.models import list_results as read_results

SERIES = {
    "suite": text("The suite that the model is of."),
    "mode": maybe(text("`inference` or `training`.")),
    "dtype": maybe(text("`float32`, `float16`, `bfloat16` or `amp`.")),
    "device": maybe(text("`cpu` or `cuda`.")),
    "hardware": maybe(text("The GPU's model, or the processor's.")),
    "backend": maybe(text("The backend with its config label: `inductor`.")),
    "dynamic": flag("Whether shapes are dynamic."),
    "batch_size": maybe(whole("Batch size.")),
    "world_size": whole("Ranks that it ran on."),
}


def _number(said: str) -> Schema:
    return maybe(decimal(said))


def _count(said: str) -> Schema:
    return maybe(count(said))


RESULT = record(
    "What was measured of one model in one run. null is what was not measured, and never 0.",
    **SERIES,
    model=text("The model's name."),
    gpu=maybe(text("The GPU's model; null for what no GPU made.")),
    status=word("What became of it.", STATUSES),
    reason=maybe(text("Of a failure upstream's word for it (`OOM`, `timeout`); of `skipped` and `not_run` why.")),
    accuracy=maybe(text("Upstream's verdict: `pass`, `fail_accuracy`, …")),
    speedup=_number("Median eager latency ÷ median compiled latency, over interleaved repeats."),
    speedup_low=_number("Where its 95 % interval begins."),
    speedup_high=_number("Where its 95 % interval ends; an interval that spans 1 is no clear difference."),
    abs_latency_ms=_number("Median latency compiled. Milliseconds."),
    eager_latency_ms=_number("Median latency in eager mode. Milliseconds."),
    compilation_latency_s=_number("Compile time with cold caches, of the performance experiment. Seconds."),
    warm_compilation_latency_s=_number("Compile time with warm caches. Seconds."),
    compression_ratio=_number("Peak memory in eager mode ÷ compiled."),
    eager_peak_mem_gb=_number("Peak memory in eager mode. GB of 10^9 bytes."),
    dynamo_peak_mem_gb=_number("Peak memory compiled. GB of 10^9 bytes."),
    cache_lookup_latency_us=_number("dynamo's look-up of the compiled code, a call. Microseconds."),
    calls_captured=_count("Operations in the captured graphs."),
    unique_graphs=_count("Graphs."),
    graph_breaks=_count("Graph breaks as torch's counters have them."),
    unique_graph_breaks=_count("Distinct reasons among them."),
    recompiles=_count("Recompiles."),
    fallbacks_to_eager=_count("Frames that were left to run eagerly."),
    autograd_captures=_count("Graphs that compiled autograd captured."),
    autograd_compiles=_count("Graphs that compiled autograd compiled."),
    cudagraph_skips=_count("CUDA graphs that inductor could not use."),
    message=maybe(text("The exception's own line.")),
    command=maybe(text("The command that makes it again.")),
    experiments=array_of({"type": "string"}, "The experiments that it is made of, the leading one first."),
    tasks=array_of({"type": "string"}, "The benchmark's tasks: `task` of the processes that worked on it."),
    time_us=time_us("When it was measured."),
    run_id=text("The run that it is of."),
    id=whole("Number of the leading experiment's result in this database."),
)
MODEL = record(
    "One model over time.",
    model=text("Its name."),
    suites=array_of({"type": "string"}, "The suites that have a model of this name."),
    series=array_of(
        record(
            "Results that can be compared with each other.",
            **SERIES,
            points=array_of(ref("Result"), "A result a run, the oldest first."),
        ),
        "The series that was measured last comes first.",
    ),
)
SCHEMAS: dict[str, Schema] = {"Result": RESULT, "Model": MODEL}


def list_results(run_id: str) -> Answer:
    """List a run's results."""
    find_run(run_id)
    page = cut_page(read_results(get_reader(), run_id), read_cursor(), read_limit())
    return build_page_answer(page, rows.result_row)


def list_newest() -> Answer:
    """List the newest result of each model and metric set."""
    wanted = read_model_filter(request.args)
    if wanted.run:
        find_run(wanted.run)
    found = sort_results(list_models(get_reader(), wanted), request.args.get("sort") or DEFAULT_ORDER)
    return build_page_answer(cut_page(found, read_cursor(), read_limit()), rows.result_row)


def get_model(name: str) -> Answer:
    """Return the history of a model."""
    name = read_name(name)
    history = list_history(get_reader(), name, read_word("suite"))
    if not history:
        refuse(f"There is no model {name[:80]}; /api/v1/models lists those that were benchmarked.")
    series = [_describe(it) for it in split_series(history)]
    return Answer({"model": name, "suites": sorted({it["suite"] for it in series}), "series": series})


def _describe(it: ModelSeries) -> dict[str, Any]:
    return it.fields | {"points": [rows.result_row(point.row) for point in it.points]}


OPERATIONS = (
    Operation(
        "/runs/<run_id>/results",
        list_results,
        "Result",
        True,
        "A run's benchmark results, one row a model and metric set, by suite and model.",
        PAGE,
    ),
    Operation(
        "/models",
        list_newest,
        "Result",
        True,
        "The newest benchmark result of each model and metric set, or those of one run.",
        MODELS,
    ),
    Operation(
        "/models/<path:name>",
        get_model,
        "Model",
        False,
        "One model's benchmark results over time: its series, each with its points, the oldest first.",
        ("suite_model",),
    ),
)
