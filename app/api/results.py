"""Benchmark results: of a run, of every model, of one model over time."""

from __future__ import annotations

from typing import Any

from flask import request

from compileboard.app.analysis import rows
from compileboard.app.analysis.model_history import ModelSeries, split_series
from compileboard.app.analysis.model_table import DEFAULT_ORDER, cut_page, sort_results
from compileboard.app.analysis.name_paths import read_name
from compileboard.app.api.answer import Answer, find_run, give_page, read_cursor, read_limit, read_word, refuse
from compileboard.app.api.operation import Operation
from compileboard.app.api.parameters import MODELS, PAGE
from compileboard.app.db import get_reader
from compileboard.app.queries.models import list_history, list_models, read_model_filter
from compileboard.app.queries.results import list_results as read_results


def list_results(run_id: str) -> Answer:
    """List a run's results."""
    find_run(run_id)
    page = cut_page(read_results(get_reader(), run_id), read_cursor(), read_limit())
    return give_page(page, rows.result_row)


def list_newest() -> Answer:
    """List the newest result of each model and metric set."""
    wanted = read_model_filter(request.args)
    if wanted.run:
        find_run(wanted.run)
    found = sort_results(list_models(get_reader(), wanted), request.args.get("sort") or DEFAULT_ORDER)
    return give_page(cut_page(found, read_cursor(), read_limit()), rows.result_row)


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
