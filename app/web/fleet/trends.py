"""The Trends page."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, abort, render_template, request, url_for

from compileboard.app.analysis.incidents.messages import (
    DIRECTION_LABELS,
    STATE_LABELS,
    describe_series_change,
)
from compileboard.app.analysis.metrics import Metric
from compileboard.app.analysis.models.series import label_fields
from compileboard.app.analysis.trends.lines import AXES, CHOICES, find_metric, read_choices
from compileboard.app.charts import recorded
from compileboard.app.charts.incidents import mark_incidents
from compileboard.app.charts.trends import chart_metric, list_table_rows, share_runs
from compileboard.app.db import get_clock, get_engine, get_reader, get_settings
from compileboard.app.format import format_time
from compileboard.app.queries.engine import Engine
from compileboard.app.queries.fleet.overview import (
    TopBreak,
    list_top_breaks,
    list_top_functions,
    list_trend,
)
from compileboard.app.queries.fleet.trends import (
    FILTERS,
    ModelSet,
    address_set,
    list_branches,
    list_model_names,
    read_choice,
    read_last,
    read_trend_filter,
)
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.parameters import check_keys
from compileboard.app.screens.fleet.trends import (
    TrendsFilters,
    TrendsScreen,
    UnknownCountedError,
    build_trends,
)
from compileboard.app.web.run.shell import REPORTS
from compileboard.collectors.contract.categories import CATEGORIES
from compileboard.collectors.store.rollups.summaries import DEFINITIONS

blueprint = Blueprint("trends", __name__)
MOST_MODELS, MOST_METRICS, MOST_COUNTED = 6, 8, 6
DEFAULT_METRICS = ("speedup", "compilation_latency_s", "graph_breaks", "recompiles")
_OTHERS = ("metric", "model", "function", "break", "category", "axis", "last", "definition", "zoom")
_OFFERED = 50  # functions and graph breaks


def _read_filters() -> TrendsFilters:
    args = request.args
    check_keys(args, (*FILTERS, *_OTHERS))
    last, run_count = read_last(args)
    models, metrics = (
        _read_list(key, most) for key, most in (("model", MOST_MODELS), ("metric", MOST_METRICS))
    )
    counted = {key: _read_list(key, MOST_COUNTED) for key in ("function", "break", "category")}
    return TrendsFilters(
        sets=read_trend_filter(args),
        metrics=read_choices(metrics)
        or ([] if any(counted.values()) and not models else list(DEFAULT_METRICS)),
        models=models,
        counted=counted,
        axis=read_choice(args, "axis", [name for name, _label in AXES], "date"),
        last=last,
        run_count=run_count,
        definition=read_choice(args, "definition", DEFINITIONS, "hud")
        if args.get("definition")
        else None,
    )


def _read_list(key: str, most: int) -> list[str]:
    values = list(
        dict.fromkeys(value.strip() for value in request.args.getlist(key) if value.strip())
    )
    if len(values) > most:
        raise FilterError(f"{key}: at most {most} at once, these are {len(values)}")
    return values


@blueprint.get("/trends")
def index() -> str:
    engine = get_engine()
    try:
        screen = build_trends(get_reader(), engine, _read_filters(), get_clock())
    except UnknownCountedError as error:
        abort(404, str(error))
    axis = screen.axis
    charts = []
    for number, drawing in enumerate(screen.drawings):
        chart = chart_metric(
            drawing.metric, drawing.lines, axis, chart_id=f"trend-{number}", words=number == 0
        )
        changes = [change for change in screen.changes if change.metric == drawing.metric.name]
        charts.append(mark_incidents(chart, changes, axis))
    columns, table_rows = list_table_rows(
        [(drawing.metric, drawing.lines) for drawing in screen.drawings], axis
    )
    return render_template(
        "trends/index.html",
        screen=screen,
        filters=screen.filters,
        charts=charts if axis.runs else [],
        shared=share_runs(axis),
        describe_change=describe_series_change,
        direction_labels=DIRECTION_LABELS,
        state_labels=STATE_LABELS,
        columns=columns,
        table_rows=table_rows,
        label_fields=label_fields,
        set_address=_address_set,
        reports=_list_reports(screen),
        recorded=_chart_recorded(engine, screen.filters),
        definitions=[(definition.name, definition.label) for definition in DEFINITIONS.values()],
        **_offer(engine, screen.selected),
    )


def _chart_recorded(engine: Engine, filters: TrendsFilters) -> dict[str, Any] | None:
    newest, alive_since_us = get_settings().trend_runs, get_clock().alive_since_us
    points = list_trend(engine, filters.sets.suite, newest=newest, alive_since_us=alive_since_us)
    return recorded.chart_recorded(points) if points else None


def _address_set(configuration: ModelSet) -> str:
    linked = {
        key: request.args.getlist(key)
        for key in request.args
        if key in ("metric", "axis", "last", "definition")
    }
    return url_for("trends.index", **(address_set(configuration) | linked))  # type: ignore[arg-type]


def _list_reports(screen: TrendsScreen) -> list[tuple[str, str]]:
    selected, runs = screen.selected, screen.axis.runs
    if selected is None or not screen.filters.metrics or not runs:
        return []
    times = [run.started_us for run in runs]
    query = {
        **address_set(selected),
        "branch": screen.filters.sets.branch,
        "definition": request.args.get("definition"),
    }
    days = {"since": format_time(min(times))[:10], "until": format_time(max(times))[:10]}
    given: dict[str, Any] = {name: value for name, value in query.items() if value} | days
    return [
        (label, url_for("reports.download_suite", format=key, **given)) for key, label in REPORTS
    ]


def _offer(engine: Engine, selected: ModelSet | None) -> dict[str, Any]:
    functions = list_top_functions(engine, newest=300, limit=_OFFERED)
    breaks = list_top_breaks(engine, newest=300, limit=_OFFERED)
    return {
        "models": [(model, model) for model in list_model_names(engine, selected.suite)]
        if selected
        else [],
        "metrics": [(name, metric) for name in CHOICES if (metric := _name_choice(name))],
        "branches": list_branches(engine),
        "functions": [
            (str(function.function_id), f"{function.name} · {function.file}")
            for function in functions
        ],
        "breaks": [
            (str(graph_break.distinct_id), _name_break(graph_break)) for graph_break in breaks
        ],
        "categories": [(category.name, category.label) for category in CATEGORIES],
    }


def _name_break(graph_break: TopBreak) -> str:
    where = f"{graph_break.function or ''} {graph_break.file or ''}:{graph_break.line or ''}".strip(
        " :"
    )
    kind = " ".join(
        filter(None, (graph_break.gb_id, graph_break.gb_type or graph_break.reason[:60]))
    )
    return " · ".join(filter(None, (kind, where)))


def _name_choice(name: str) -> Metric | None:
    return find_metric(name, of_suite=False) or find_metric(name, of_suite=True)
