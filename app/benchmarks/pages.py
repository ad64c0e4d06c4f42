"""The Models page, a model's page, and a run's Results tab."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, abort, render_template, request, url_for
from flask.blueprints import BlueprintSetupState
from werkzeug.routing import PathConverter

from compileboard.app.benchmarks.charts import chart_history, chart_scaling
from compileboard.app.benchmarks.labels import describe_experiment
from compileboard.app.benchmarks.matrix import rank_result
from compileboard.app.benchmarks.model import UnknownModelError, build_model, build_models
from compileboard.app.benchmarks.queries import (
    ACCURACIES,
    FILTERS,
    STATUSES,
    ModelFilter,
    list_bench_runs,
    list_model_choices,
    read_model_filter,
)
from compileboard.app.benchmarks.series import FIELDS, ModelSeries, read_name, write_name
from compileboard.app.core.db import get_engine, get_settings, get_store
from compileboard.app.core.format import format_plural, format_time
from compileboard.app.core.page import check_limit
from compileboard.app.core.parameters import OTHER_KEYS, check_keys
from compileboard.app.incidents import model as messages
from compileboard.app.runs.shell import find_run, render_run
from compileboard.collectors.contract.categories import label_category
from compileboard.collectors.store.results import ALONE, LEADING

blueprint = Blueprint("models", __name__)


class NameConverter(PathConverter):
    def to_python(self, value: str) -> str:
        return read_name(value)

    def to_url(self, value: str) -> str:
        return super().to_url(write_name(value))


@blueprint.record
def _add_converter(state: BlueprintSetupState) -> None:
    state.app.url_map.converters["name"] = NameConverter


EXPERIMENTS = (
    *LEADING,
    *ALONE,
    "caching_precompile",
    "tolerance",
    "coverage",
    "overhead",
    "shapes",
)
SORTS = (
    ("worst", "worst first"),
    ("model.asc", "by name"),
    ("speedup", "fastest first"),
    ("speedup.asc", "slowest first"),
    ("latency", "highest latency"),
    ("compile_time", "most compile time"),
    ("memory", "most memory"),
    ("breaks", "most graph breaks"),
    ("recompiles", "most recompiles"),
    ("ops", "most operations"),
    ("time", "measured last"),
)


def _read_page() -> tuple[str | None, str | None, int, str | None]:
    limit_count = check_limit(request.args.get("limit"), get_settings().page_size)
    return (
        request.args.get("sort"),
        request.args.get("cursor"),
        limit_count,
        request.args.get("view"),
    )


@blueprint.get("/models")
def index() -> str:
    engine = get_engine()
    selected = read_model_filter(request.args, (*OTHER_KEYS, "view"))
    if selected.run:
        find_run(selected.run)
    return render_template(
        "models/index.html",
        screen=build_models(engine, selected, *_read_page()),
        sorts=SORTS,
        given={key: request.args.get(key, "") for key in (*FILTERS, "view")},
        filtered=any(request.args.get(key) for key in FILTERS if key != "run"),
        choices=(choices := list_model_choices(engine)),
        world_sizes=[(str(size), format_plural(size, "rank")) for size in choices.world_sizes],
        experiments=[(name, describe_experiment(name)) for name in EXPERIMENTS],
        bench_runs=[
            (run.id, f"{run.name}, {format_time(run.started_us)[:16]}")
            for run in list_bench_runs(engine)
        ],
        statuses=[(status, status.replace("_", " ")) for status in STATUSES],
        answered=[(accuracy, accuracy.replace("_", " ")) for accuracy in ACCURACIES],
    )


@blueprint.get("/runs/<run_id>/results")
def show_run(run_id: str) -> str:
    detail = find_run(run_id)
    screen = build_models(get_engine(), ModelFilter(run=run_id), *_read_page())
    return render_run(detail, "models/run.html", tab="results", screen=screen)


@blueprint.get("/models/<name:model>")
def show(model: str) -> str:
    check_keys(request.args, (*FIELDS, "run"), noun="parameter")
    try:
        screen = build_model(get_store(), model, request.args, request.args.get("run"))
    except UnknownModelError as error:
        abort(404, str(error))
    # Imported here because numpy is a tenth of the server's start and no other page needs it.
    from compileboard.app.benchmarks.charts import chart_repeats

    points = screen.selected.points
    addresses = [_model_url(model, screen.selected, point.row.run_id) for point in points]
    anchors = [f"{address}#point" for address in addresses]
    worst_first = sorted(
        screen.history.series, key=lambda series: rank_result(series.newest), reverse=True
    )
    return render_template(
        "models/one.html",
        screen=screen,
        series=[(series, _model_url(model, series)) for series in worst_first],
        points=list(zip(points, addresses))[::-1],
        charts=chart_history(points, anchors) if len(points) > 1 else [],
        repeats=chart_repeats(screen.repeats),
        scaling=chart_scaling(screen.distributed),
        words=messages,
        has_charts=True,
        label_category=label_category,
    )


def _model_url(model: str, series: ModelSeries, run_id: str | None = None) -> str:
    query: dict[str, Any] = series.query | ({} if run_id is None else {"run": run_id})
    return url_for("models.show", model=model, **query)
