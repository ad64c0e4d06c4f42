"""The Trends page, and the API of trends and summaries."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Annotated, Any

from flask import Blueprint, abort, render_template, request, url_for

from compileboard.app.benchmarks import recorded_charts as recorded
from compileboard.app.benchmarks.metrics import Metric, TrendMetric
from compileboard.app.benchmarks.series import SetFields, label_fields
from compileboard.app.benchmarks.summaries import summarize_runs
from compileboard.app.benchmarks.trend_charts import chart_metric, list_table_rows, share_runs
from compileboard.app.benchmarks.trend_lines import (
    AXES,
    CHOICES,
    ENVIRONMENT,
    TrendPoint,
    find_metric,
    read_choices,
)
from compileboard.app.benchmarks.trend_queries import (
    FILTERS,
    ModelSet,
    PointRun,
    TrendFilter,
    TrendRun,
    list_branches,
    list_model_names,
    list_trend_runs,
    model_set_parameters,
    parse_run_count,
    read_choice,
    read_trend_filter,
)
from compileboard.app.benchmarks.trends import (
    TrendScreen,
    TrendSeries,
    TrendsFilters,
    TrendsScreen,
    UnknownCountedError,
    build_trend,
    build_trends,
)
from compileboard.app.core.api import find_run, operation, refuse
from compileboard.app.core.db import get_clock, get_engine, get_reader, get_settings
from compileboard.app.core.engine import Engine
from compileboard.app.core.filters import url_with
from compileboard.app.core.format import format_time
from compileboard.app.core.page import FilterError
from compileboard.app.core.parameters import Parameter, check_keys
from compileboard.app.core.schema import Keywords, one_of
from compileboard.app.incidents.charts import mark_incidents
from compileboard.app.incidents.model import DIRECTION_LABELS, STATE_LABELS
from compileboard.app.runs.overview_queries import (
    TopBreak,
    TopFunction,
    list_top,
    list_trend,
)
from compileboard.app.runs.shell import REPORTS
from compileboard.collectors.contract.categories import BY_NAME, CATEGORIES
from compileboard.collectors.store.results import fill
from compileboard.collectors.store.rollups import DEFINITIONS, SuiteNumbers

blueprint = Blueprint("trends", __name__)
MAX_MODELS, MAX_METRICS, MAX_COUNTED = 6, 8, 6
DEFAULT_METRICS = ("speedup", "compilation_latency_s", "graph_breaks", "recompiles")
_OTHERS = (
    *("metric", "model", "function", "break", "category"),
    *("axis", "last", "definition", "zoom", "program"),
)
_OFFERED = 50  # functions and graph breaks


def _read_filters() -> TrendsFilters:
    args = request.args
    check_keys(args, (*FILTERS, *_OTHERS))
    last, run_count = parse_run_count(args)
    models, metrics = (
        _read_list(key, most) for key, most in (("model", MAX_MODELS), ("metric", MAX_METRICS))
    )
    counted = {key: _read_list(key, MAX_COUNTED) for key in ("function", "break", "category")}
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


def _read_list(key: str, max_count: int) -> list[str]:
    values = list(
        dict.fromkeys(value.strip() for value in request.args.getlist(key) if value.strip())
    )
    if len(values) > max_count:
        raise FilterError(f"{key}: at most {max_count} at once, got {len(values)}")
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
            drawing.metric,
            drawing.lines,
            axis,
            chart_id=f"trend-{number}",
            names_changes=number == 0,
        )
        changes = [change for change in screen.changes if change.metric == drawing.metric.name]
        charts.append(mark_incidents(chart, changes, axis))
    columns, table_rows = list_table_rows(screen.drawings, axis)
    return render_template(
        "trends/index.html",
        screen=screen,
        filters=screen.filters,
        charts=charts if axis.runs else [],
        shared=share_runs(axis),
        direction_labels=DIRECTION_LABELS,
        state_labels=STATE_LABELS,
        columns=columns,
        table_rows=table_rows,
        label_fields=label_fields,
        set_address=_make_set_url,
        reports=_list_reports(screen),
        recorded=_chart_recorded(engine, screen),
        definitions=[(definition.name, definition.label) for definition in DEFINITIONS.values()],
        **_list_choices(engine, screen.selected),
    )


def _chart_recorded(engine: Engine, screen: TrendsScreen) -> dict[str, Any] | None:
    newest, alive_since_us = get_settings().trend_runs, get_clock().alive_since_us
    suite = screen.filters.sets.suite
    points = list_trend(engine, suite, run_count=newest, alive_since_us=alive_since_us)
    if not points:
        return None
    programs = recorded.list_programs(points)
    asked = request.args.get("program") or (screen.selected and screen.selected.suite)
    program = asked if asked in programs else programs[0]
    options = [(name, url_with(program=name) + "#recorded", name == program) for name in programs]
    return recorded.chart_recorded(points, program) | {"program": program, "options": options}


def _make_set_url(configuration: ModelSet) -> str:
    linked = {
        key: request.args.getlist(key)
        for key in request.args
        if key in ("metric", "axis", "last", "definition")
    }
    return url_for("trends.index", **(model_set_parameters(configuration) | linked))  # type: ignore[arg-type]


def _list_reports(screen: TrendsScreen) -> list[tuple[str, str]]:
    selected, runs = screen.selected, screen.axis.runs
    if selected is None or not screen.filters.metrics or not runs:
        return []
    times = [run.started_us for run in runs]
    query = {
        **model_set_parameters(selected),
        "branch": screen.filters.sets.branch,
        "definition": request.args.get("definition"),
    }
    days = {"since": format_time(min(times))[:10], "until": format_time(max(times))[:10]}
    given: dict[str, Any] = {name: value for name, value in query.items() if value} | days
    return [
        (label, url_for("reports.download_suite", format=key, **given)) for key, label in REPORTS
    ]


def _list_choices(engine: Engine, selected: ModelSet | None) -> dict[str, Any]:
    functions = list_top(engine, TopFunction, run_count=300, limit=_OFFERED)
    breaks = list_top(engine, TopBreak, run_count=300, limit=_OFFERED)
    return {
        "models": [(model, model) for model in list_model_names(engine, selected.suite)]
        if selected
        else [],
        "metrics": [(name, metric) for name in CHOICES if (metric := _find_metric(name))],
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


def _find_metric(name: str) -> Metric | None:
    return find_metric(name, of_suite=False) or find_metric(name, of_suite=True)


DefinitionName = Annotated[
    str | None,
    Parameter(choices=tuple(DEFINITIONS)),
    "Formula of a suite's summary. Default: `hud`, or `summarize_perf` without checked accuracy.",
]


@dataclass(frozen=True)
class SummaryDefinition:
    """The formula of a summary: which results count, and how."""

    name: Annotated[str, one_of(DEFINITIONS), "Name of the definition."]
    label: Annotated[str, "Who uses the definition."]
    pass_rate: Annotated[str, "Definition of its pass rate."]
    geomean: Annotated[str, "Models in its geomean."]


@dataclass(frozen=True)
class SetSummaryJson(SuiteNumbers, SetFields):
    """Summary of the models of one configuration. A value that was not measured is null,
    never 0.
    """

    is_incomplete: Annotated[
        bool, "Whether usually measured models failed: its means are of the others."
    ]


@dataclass(frozen=True)
class SummaryJson:
    """Summary of a run's benchmark results by one formula."""

    run: Annotated[TrendRun, "The run whose results are summed up."]
    definition: Annotated[SummaryDefinition, "The formula, and which models it takes."]
    summaries: Annotated[
        list[SetSummaryJson],
        (
            "One for each suite, mode, dtype, device, hardware, backend, dynamic or not, and world "
            "size."
        ),
    ]


@dataclass(frozen=True)
class TrendPointJson(TrendPoint, PointRun):
    """The value of one run. Missing points are left out, not interpolated."""

    tables = ("runs", "results")

    environment_changes: Annotated[
        list[Annotated[str, one_of(name for name, _field in ENVIRONMENT)]],
        "Environment changes at this point.",
    ] = dataclasses.field(default_factory=list)


@dataclass(frozen=True)
class TrendSeriesJson:
    """Points that are comparable with each other."""

    tables = ("series",)

    label: Annotated[str, "Subject of the series."]
    suite: str | None
    mode: str | None
    dtype: str | None
    device: str | None
    hardware: str | None
    backend: str | None
    dynamic: bool | None
    world_size: int | None
    model: Annotated[str | None, "The model; null for a suite."]
    points: Annotated[list[TrendPointJson], "In the order of the axis."]


@dataclass(frozen=True)
class TrendJson:
    """A metric over time."""

    metric: Annotated[TrendMetric, "The drawn metric."]
    axis: Annotated[str, one_of(name for name, _label in AXES), "Order of the points."]
    definition: Annotated[str | None, one_of(DEFINITIONS), "Formula of the suite's summary."]
    notes: Annotated[list[str], "Omitted points, in words."]
    series: Annotated[list[TrendSeriesJson], "The newest first."]


@dataclass(frozen=True)
class SummaryQuery:
    run: Annotated[str | None, "A run's id, or `latest`."] = None
    commit: Annotated[
        str | None,
        Keywords(pattern="^[0-9a-fA-F]*$"),
        "The beginning of the hash of a run's commit.",
    ] = None
    torch: Annotated[str | None, "A run's exact torch version."] = None
    definition: DefinitionName = None


@dataclass(frozen=True)
class TrendQuery:
    metric: Annotated[str | None, f"`speedup` where it is not given; {', '.join(CHOICES)}."] = None
    model: Annotated[str | None, "A model's name, whole; the suite where it is not given."] = None
    function: Annotated[str | None, Parameter(most=0), "A function's `id`: its recompiles."] = None
    break_: Annotated[
        str | None, Parameter("break", most=0), "A graph break's `id`: its occurrences."
    ] = None
    category: Annotated[
        str | None, Parameter(choices=tuple(BY_NAME)), "Kind of guard that failed."
    ] = None
    definition: DefinitionName = None
    axis: Annotated[
        str, Parameter(choices=tuple(name for name, _label in AXES)), "Order of the points."
    ] = "date"
    last: Annotated[
        str | None, "How many of the newest runs, or `all`; 90 where it is not given."
    ] = None


_COUNTED = {"function": "Recompiles", "break": "Graph breaks", "category": "Recompiles"}
_FIELDS = {"break": "break_"}


@operation("/summary")
def get_summary(asked: SummaryQuery, selection: TrendFilter) -> SummaryJson:
    """Return the summary of benchmark results of `run`, or of the newest run of a commit, branch or
    torch version.
    """
    if asked.run:
        find_run(asked.run)
    narrowed = replace(selection, run=asked.run, commit=asked.commit, torch=asked.torch)
    clock = get_clock()
    screen = summarize_runs(get_engine(), narrowed, asked.definition, clock)
    if screen is None:
        refuse("No run has benchmark results like these; /api/v1/models lists what was measured.")
    (run,) = list_trend_runs(
        get_engine(), [screen.newest.run_id], alive_since_us=clock.alive_since_us
    )
    return SummaryJson(
        run=run,
        definition=fill(SummaryDefinition, screen.definition._asdict()),
        summaries=[
            fill(SetSummaryJson, vars(summary) | summary.set.fields)
            for summary in screen.newest_summaries
        ],
    )


@operation("/trend")
def get_trend(asked: TrendQuery, selection: TrendFilter) -> TrendJson:
    """Return a metric over the newest runs, for every matching suite, for one model, or a count.

    A count is of a function's recompiles, a distinct graph break, or a kind of guard.
    """
    return make_trend(build_requested_trend(asked, selection))


def build_requested_trend(asked: TrendQuery, selection: TrendFilter) -> TrendScreen:
    """Build the trend that the API's parameters select. Raises FilterError for an invalid value."""
    run_count = parse_run_count({"last": asked.last or ""})[1]
    counted = [
        (name, value) for name in _COUNTED if (value := getattr(asked, _FIELDS.get(name, name)))
    ]
    if len(counted) > 1:
        raise FilterError(
            f"{' and '.join(name for name, _value in counted)}: at most one of these at once"
        )
    subject = counted[0] if counted else None
    name, model, axis, definition = (
        asked.metric or "speedup",
        asked.model,
        asked.axis,
        asked.definition,
    )
    try:
        return build_trend(
            get_engine(), selection, name, model, subject, axis, definition, run_count, get_clock()
        )
    except UnknownCountedError as error:
        refuse(str(error))


def make_trend(screen: TrendScreen) -> TrendJson:
    label = _COUNTED.get(screen.metric.name, screen.metric.label)
    return TrendJson(
        fill(TrendMetric, vars(screen.metric) | {"label": label}),
        screen.axis.name,
        screen.definition,
        screen.notes,
        [_make_series(series) for series in screen.series],
    )


def _make_series(series: TrendSeries) -> TrendSeriesJson:
    changed = {
        change.run.id: [word for word, _before, _now in change.parts]
        for change in series.axis.changes
    }
    values = {point.run_id: point for point in series.line.points}
    points = []
    for run in series.axis.runs:
        own = {"environment_changes": changed.get(run.id, [])}
        points.append(fill(TrendPointJson, vars(run) | vars(values[run.id]) | own))
    return fill(TrendSeriesJson, {**series.fields, "label": series.line.label, "points": points})
