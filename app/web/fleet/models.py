"""The Models page, a model's own page, and the Results tab of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flask import Blueprint, abort, render_template, request, url_for
from flask.blueprints import BlueprintSetupState
from werkzeug.routing import PathConverter

from compileboard.app.analysis.compiles import label_category
from compileboard.app.analysis.incidents import messages
from compileboard.app.analysis.models.labels import (
    describe_accuracy,
    describe_missing,
    describe_page_faults,
    describe_speedup,
    describe_status,
    describe_verdict,
)
from compileboard.app.analysis.models.series import (
    FIELDS,
    ModelSeries,
    Point,
    choose_series,
    read_name,
    split_series,
    write_name,
)
from compileboard.app.analysis.models.table import (
    DEFAULT_ORDER,
    SummedSet,
    count_answers,
    count_verdicts,
    cut_page,
    find_alike,
    list_comparable_sets,
    part_sets,
    sort_results,
)
from compileboard.app.charts.models import chart_history, chart_repeats
from compileboard.app.db import get_reader, get_settings
from compileboard.app.format import format_time
from compileboard.app.queries.fleet import models
from compileboard.app.queries.fleet.incidents import SeriesChange, list_series_findings
from compileboard.app.queries.fleet.models import STATUSES
from compileboard.app.queries.page import FilterError, check_limit
from compileboard.app.queries.run.models import get_result_parts, list_results, list_task_breaks, list_task_causes
from compileboard.app.web.run.shell import find_run, render_run
from compileboard.collectors.store.rollups.results import ResultRow
from compileboard.collectors.store.rollups.summaries import DEFINITIONS, HUD, SUMMARIZE_PERF, summarize

blueprint = Blueprint("models", __name__)


class NameConverter(PathConverter):
    """Take a model's name, whatever it is, out of an address."""

    def to_python(self, value: str) -> str:
        """Read the name."""
        return read_name(value)

    def to_url(self, value: str) -> str:
        """Write the name."""
        return super().to_url(write_name(value))


@blueprint.record
def _add_converter(state: BlueprintSetupState) -> None:
    state.app.url_map.converters["name"] = NameConverter


SORTS = (
    ("model.asc", "by name"),
    ("speedup", "fastest first"),
    ("speedup.asc", "slowest first"),
    ("latency", "highest latency"),
    ("compile_time", "most compile time"),
    ("memory", "most memory"),
    ("breaks", "most graph breaks"),
    ("recompiles", "most recompiles"),
    ("ops", "most operations"),
    ("status", "failures first"),
    ("time", "measured last"),
)
_SET_FILTERS = ("suite", "mode", "dtype", "device", "backend")
_WORDS = {
    "describe_status": describe_status,
    "describe_accuracy": describe_accuracy,
    "describe_missing": describe_missing,
    "describe_speedup": describe_speedup,
    "describe_verdict": describe_verdict,
    "describe_page_faults": describe_page_faults,
}


def lay_out(rows: Sequence[ResultRow]) -> dict[str, Any]:
    """Sum up results, and cut the table of them to what one page shows."""
    sort = request.args.get("sort") or DEFAULT_ORDER
    limit = check_limit(request.args.get("limit"), get_settings().page_size)
    page = cut_page(sort_results(rows, sort), request.args.get("cursor"), limit)
    same = find_alike(rows)
    sets = part_sets(rows)
    summed = sets[0].rows if sets else rows
    summary = summarize(summed)
    return {
        "listing": page,
        "sort": sort,
        "sorts": SORTS,
        "count": len(rows),
        "model_count": len({(it.suite, it.model) for it in rows}),
        "same": same,
        "alike": list_comparable_sets(same),
        "sets": sets,
        "addresses": [_address_set(it) for it in sets],
        "summary": summary,
        "shown": summary if summary.geomean_speedup is not None else summarize(summed, SUMMARIZE_PERF),
        "summaries": [summarize(summed, it) for it in DEFINITIONS.values()],
        "hud": HUD,
        "by_status": [(status, sum(it.status == status for it in rows)) for status in STATUSES],
        "answers": count_answers(summed),
        "verdicts": count_verdicts(summed),
        **_WORDS,
    }


def _address_set(it: SummedSet) -> str:
    """Return the address of the models of one configuration, in the run that is shown."""
    named: dict[str, Any] = {key: it.fields[key] for key in _SET_FILTERS if it.fields[key]}
    named["run"] = (request.view_args or {}).get("run_id") or request.args.get("run") or None
    return url_for("models.index", **named)


@blueprint.get("/models")
def index() -> str:
    """List models with their newest results, or with one run's."""
    reader = get_reader()
    wanted = models.read_model_filter(request.args)
    if wanted.run:
        find_run(wanted.run)
    return render_template(
        "models/index.html",
        **lay_out(models.list_models(reader, wanted)),
        given={key: request.args.get(key, "") for key in models.FILTERS},
        filtered=any(request.args.get(key) for key in models.FILTERS if key != "run"),
        choices=models.list_model_choices(reader),
        bench_runs=[(it.id, f"{it.name}, {format_time(it.started_us)[:16]}") for it in models.list_bench_runs(reader)],
        statuses=[(it, it.replace("_", " ")) for it in STATUSES],
        answered=[(it, it.replace("_", " ")) for it in models.ACCURACIES],
    )


@blueprint.get("/runs/<run_id>/results")
def show_run(run_id: str) -> str:
    """Show what one run measured."""
    detail = find_run(run_id)
    rows = list_results(get_reader(), run_id)
    return render_run(detail, "models/run.html", tab="results", **lay_out(rows))


@blueprint.get("/models/<name:model>")
def show(model: str) -> str:
    """Show one model: its history, and everything of one of its points."""
    for key in request.args:
        if key not in (*FIELDS, "run"):
            raise FilterError(f"{key[:40]}: there is no such parameter; known are {', '.join((*FIELDS, 'run'))}")
    reader = get_reader()
    series = split_series(models.list_history(reader, model, request.args.get("suite")))
    if not series:
        abort(404, f"There is no model {model[:80]}; its runs may have been deleted.")
    chosen = choose_series(series, request.args)
    if chosen is None:
        abort(404, f"{model[:80]} was never measured so; take a part of the address away.")
    point = _choose_point(chosen)
    found = list_series_findings(reader, "model", chosen.fields["suite"] or "", [model])
    runs = models.list_point_runs(reader, [it.row.run_id for it in chosen.points])
    addresses = [_address(model, chosen, it.row.run_id) for it in chosen.points]
    return render_template(
        "models/one.html",
        model=model,
        series=[(it, _address(model, it)) for it in series],
        chosen=chosen,
        row=point.row,
        points=list(zip(chosen.points, addresses))[::-1],
        runs=runs,
        charts=chart_history(chosen.points, [f"{it}#point" for it in addresses]) if len(chosen.points) > 1 else [],
        found=[it for it in found if _is_of(it, chosen)],
        words=messages,
        cells=messages,
        has_charts=True,
        label_category=label_category,
        **_read_point(point),
        **_WORDS,
    )


def _is_of(it: SeriesChange, chosen: ModelSeries) -> bool:
    """Say whether something was found in a series; what was not said is '' or 0 there."""
    return all(getattr(it, name) == (value or type(getattr(it, name))()) for name, value in chosen.fields.items())


def _choose_point(chosen: ModelSeries) -> Point:
    run_id = request.args.get("run")
    if not run_id:
        return chosen.points[-1]
    found = [it for it in chosen.points if it.row.run_id == run_id]
    return found[0] if found else abort(404, f"The run {run_id[:80]} has no result of this model, measured so.")


def _address(model: str, series: ModelSeries, run_id: str | None = None) -> str:
    query: dict[str, Any] = series.query | ({} if run_id is None else {"run": run_id})
    return url_for("models.show", model=model, **query)


def _read_point(point: Point) -> dict[str, Any]:
    reader, row = get_reader(), point.row
    parts = [(it, found) for it in point.parts if (found := get_result_parts(reader, it.id))]
    repeats = {name: values for _it, found in parts for name, values in found.repeats.items()}
    timed = {name: values for name, values in repeats.items() if name in ("eager", "compiled")}
    return {
        "parts": parts,
        "repeats": chart_repeats(timed or repeats),
        "breaks": list_task_breaks(reader, row.run_id, row.tasks),
        "causes": list_task_causes(reader, row.run_id, row.tasks),
    }
