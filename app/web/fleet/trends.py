"""The trend page: metrics of suites, models, functions, graph breaks and guards over time, on one axis."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from flask import Blueprint, abort, render_template, request, url_for

from compileboard.app.analysis.incidents.messages import describe_finding
from compileboard.app.analysis.metrics import Metric
from compileboard.app.analysis.models.series import label_fields
from compileboard.app.analysis.models.summaries import list_eligible_sets
from compileboard.app.analysis.trends.lines import (
    AXES,
    CHOICES,
    TrendLine,
    build_count_line,
    build_model_lines,
    build_suite_line,
    find_metric,
    lay_out,
    pad,
    read_choices,
)
from compileboard.app.charts.incidents import mark_incidents
from compileboard.app.charts.trends import chart_metric, list_table_rows, share_runs
from compileboard.app.db import get_reader
from compileboard.app.format import format_time
from compileboard.app.queries.fleet.incidents import SeriesChange, list_series_findings
from compileboard.app.queries.fleet.overview import TopBreak, list_top_breaks, list_top_functions
from compileboard.app.queries.fleet.series import count_guard_failures, count_runs
from compileboard.app.queries.fleet.trends import (
    FILTERS,
    ModelSet,
    StoredSummary,
    TrendFilter,
    TrendRun,
    address_set,
    choose_set,
    list_branches,
    list_model_names,
    list_model_rows,
    list_sets,
    list_trend_runs,
    read_choice,
    read_ids,
    read_last,
    read_trend_filter,
)
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.parameters import check_keys
from compileboard.app.queries.run_cache import cached_ancestry
from compileboard.app.web.run.shell import REPORTS
from compileboard.collectors.contract.categories import CATEGORIES
from compileboard.collectors.store.rollups.summaries import DEFINITIONS

blueprint = Blueprint("trends", __name__)
MOST_MODELS, MOST_METRICS, MOST_COUNTED = 6, 8, 6
DEFAULT_METRICS = ("speedup", "compilation_latency_s", "graph_breaks", "recompiles")
_OTHERS = ("metric", "model", "function", "break", "category", "axis", "last", "definition", "zoom")
_OFFERED = 50  # functions and graph breaks


@dataclass(frozen=True)
class TrendDrawing:
    """Hold one chart before it is drawn."""

    metric: Metric
    lines: Sequence[TrendLine]


@dataclass(frozen=True)
class TrendRequest:
    """Hold what an address asks for."""

    wanted: TrendFilter
    metrics: Sequence[str]
    models: Sequence[str]
    counted: dict[str, list[str]]
    axis: str
    last: str
    limit: int
    definition: str


def _read_asked() -> TrendRequest:
    """Read the address.

    Raises: FilterError if a key is unknown or a value cannot be used.
    """
    args = request.args
    check_keys(args, (*FILTERS, *_OTHERS))
    last, limit = read_last(args)
    models, metrics = (_read_list(key, most) for key, most in (("model", MOST_MODELS), ("metric", MOST_METRICS)))
    counted = {key: _read_list(key, MOST_COUNTED) for key in ("function", "break", "category")}
    return TrendRequest(
        read_trend_filter(args),
        read_choices(metrics) or ([] if any(counted.values()) and not models else list(DEFAULT_METRICS)),
        models,
        counted,
        read_choice(args, "axis", [name for name, _label in AXES], "date"),
        last,
        limit,
        read_choice(args, "definition", DEFINITIONS, "hud"),
    )


def _read_list(key: str, most: int) -> list[str]:
    found = list(dict.fromkeys(it.strip() for it in request.args.getlist(key) if it.strip()))
    if len(found) > most:
        raise FilterError(f"{key}: at most {most} at once, these are {len(found)}")
    return found


@blueprint.get("/trends")
def index() -> str:
    """Show what an address asks for over time."""
    asked, reader = _read_asked(), get_reader()
    sets = list_sets(reader)
    chosen = choose_set(reader, sets, asked.wanted, asked.models[0] if asked.models else None)
    notes: list[str] = []
    drawings: list[TrendDrawing] = []
    if chosen is not None:
        asked, summaries = _summarize(reader, asked, chosen)
        drawings = _measure(reader, asked, chosen, summaries, notes)
    drawings += _count(reader, asked)
    found = [] if chosen is None else _find(reader, asked, chosen, drawings)
    run_ids = {point.run_id for it in drawings for line in it.lines for point in line.points}
    runs = list_trend_runs(reader, run_ids)
    runs = [it for it in runs if asked.wanted.branch in (None, it.git_branch)]
    parents = cached_ancestry(reader, [it.git_commit for it in runs]) if asked.axis == "commit" else {}
    axis = lay_out(runs, asked.axis, parents=parents)
    charts = []
    for number, it in enumerate(drawings):
        chart = chart_metric(it.metric, it.lines, axis, chart_id=f"trend-{number}", words=number == 0)
        charts.append(mark_incidents(chart, [one for one in found if one.metric == it.metric.name], axis))
    shown = {run.id for run in axis.runs}
    columns, twin = list_table_rows([(it.metric, it.lines) for it in drawings], axis)
    return render_template(
        "trends/index.html",
        asked=asked,
        sets=sets,
        chosen=chosen,
        charts=charts if axis.runs else [],
        shared=share_runs(axis),
        axis=axis,
        notes=[*notes, *axis.notes],
        found=[it for it in found if it.first_run_id in shown],
        describe_finding=describe_finding,
        columns=columns,
        twin=twin,
        label_fields=label_fields,
        set_address=_address_set,
        saves=_list_reports(asked, chosen, axis.runs),
        **_offer(reader, chosen),
    )


def _summarize(
    reader: sqlite3.Connection, asked: TrendRequest, chosen: ModelSet
) -> tuple[TrendRequest, list[StoredSummary]]:
    """List what the runs come to, by the definition that is asked for or, if none is, one that they have."""
    wanted, definition = asked.wanted.narrow(chosen), DEFINITIONS[asked.definition]
    named = "definition" in request.args
    definition, summaries = list_eligible_sets(reader, wanted, definition, asked.limit, named=named)
    return replace(asked, definition=definition.name), summaries


def _measure(
    reader: sqlite3.Connection,
    asked: TrendRequest,
    chosen: ModelSet,
    summaries: Sequence[StoredSummary],
    notes: list[str],
) -> list[TrendDrawing]:
    """Draw the chosen metrics of a suite or of its models."""
    wanted = asked.wanted.narrow(chosen)
    metrics = [(name, find_metric(name, of_suite=not asked.models)) for name in asked.metrics]
    missing = [name for name, metric in metrics if metric is None]
    if missing:
        notes.append(f"{', '.join(missing)}: {'a model' if asked.models else 'a suite'} has no such number")
    known = [metric for _name, metric in metrics if metric is not None]
    if not summaries or not known:
        return []
    if not asked.models:
        by = DEFINITIONS[asked.definition].label
        found = [TrendDrawing(it, [build_suite_line(it, summaries, f"{chosen.suite}, {by}")]) for it in known]
        return _drop_empty(found, f"no run here has one by {by}", notes)
    columns = [name for metric in known for name in metric.columns]
    rows = list_model_rows(reader, replace(wanted, since_us=summaries[-1].started_us), asked.models, columns)
    unknown = sorted(set(asked.models) - {it.model for it in rows})
    if unknown:
        notes.append(f"{', '.join(unknown)}: no result in these runs")
    run_ids = [it.run_id for it in summaries]
    found = [TrendDrawing(metric, [pad(line, run_ids) for line in build_model_lines(metric, rows)]) for metric in known]
    return _drop_empty(found, "never measured in these runs", notes)


def _drop_empty(found: Sequence[TrendDrawing], why: str, notes: list[str]) -> list[TrendDrawing]:
    """Drop the charts that would have nothing but axes, and say so."""
    kept = [it for it in found if any(line.has_points for line in it.lines)]
    if len(kept) < len(found):
        notes.append(f"{', '.join(it.metric.label for it in found if it not in kept)}: {why}")
    return kept


def _find(
    reader: sqlite3.Connection, asked: TrendRequest, chosen: ModelSet, drawings: Sequence[TrendDrawing]
) -> list[SeriesChange]:
    """List what was found in the series that are drawn."""
    metrics = {it.metric.name for it in drawings}
    of_set = {name: "" if value is None else value for name, value in chosen.fields.items()}
    subject, models = ("model", asked.models) if asked.models else ("suite", [""])
    found = list_series_findings(reader, subject, chosen.suite, models)
    return [
        it
        for it in found
        if it.metric in metrics
        and asked.wanted.branch in (None, it.branch)
        and all(getattr(it, name) == value for name, value in of_set.items())
    ]


def _count(reader: sqlite3.Connection, asked: TrendRequest) -> list[TrendDrawing]:
    """Draw what is counted in every run: recompiles of functions, occurrences of breaks, failures of guards."""
    found = []
    for kind, label, meaning in (
        ("function", "Recompiles of functions", "in each run"),
        ("break", "Graph breaks", "times each came in a run"),
    ):
        lines = []
        for thing_id in read_ids(kind, asked.counted[kind]):
            counted = count_runs(reader, kind, thing_id, newest=asked.limit)
            if counted is None:
                abort(404, f"There is no {'function' if kind == 'function' else 'distinct graph break'} {thing_id}.")
            lines.append(build_count_line(counted.label, counted.points))
        found += [TrendDrawing(_name_count(kind, label, meaning), lines)] if lines else []
    known = {it.name: it for it in CATEGORIES}
    categories = asked.counted["category"]
    for name in categories:
        if name not in known:
            raise FilterError(f"category: {name[:40]!r} is not one of {', '.join(known)}")
    lines = [
        build_count_line(known[it].label, count_guard_failures(reader, it, asked.wanted.suite, newest=asked.limit))
        for it in categories
    ]
    return found + ([TrendDrawing(_name_count("category", "Guard failures", "in each run"), lines)] if lines else [])


def _name_count(name: str, label: str, meaning: str) -> Metric:
    return Metric(name, label, "", "down_is_good", 0, "count", "the hooks", meaning)


def _address_set(it: ModelSet) -> str:
    kept = {key: request.args.getlist(key) for key in request.args if key in ("metric", "axis", "last", "definition")}
    return url_for("trends.index", **(address_set(it) | kept))  # type: ignore[arg-type]


def _list_reports(asked: TrendRequest, chosen: ModelSet | None, runs: Sequence[TrendRun]) -> list[tuple[str, str]]:
    """List what saves the suite over the days of the runs that are drawn."""
    if chosen is None or not asked.metrics or not runs:
        return []
    times = [it.started_us for it in runs]
    query = {**address_set(chosen), "branch": asked.wanted.branch, "definition": request.args.get("definition")}
    days = {"since": format_time(min(times))[:10], "until": format_time(max(times))[:10]}
    kept: dict[str, Any] = {name: value for name, value in query.items() if value} | days
    return [(label, url_for("reports.download_suite", format=key, **kept)) for key, label in REPORTS]


def _offer(reader: sqlite3.Connection, chosen: ModelSet | None) -> dict[str, Any]:
    """List what the selectors offer."""
    functions = list_top_functions(reader, newest=300, limit=_OFFERED)
    breaks = list_top_breaks(reader, newest=300, limit=_OFFERED)
    return {
        "models": [(it, it) for it in list_model_names(reader, chosen.suite)] if chosen else [],
        "metrics": [(name, metric) for name in CHOICES if (metric := _name_choice(name))],
        "branches": list_branches(reader),
        "functions": [(str(it.function_id), f"{it.name} · {it.file}") for it in functions],
        "breaks": [(str(it.distinct_id), _name_break(it)) for it in breaks],
        "categories": [(it.name, it.label) for it in CATEGORIES],
    }


def _name_break(it: TopBreak) -> str:
    """Name a graph break by where it is too: one kind may come in many places."""
    where = f"{it.function or ''} {it.file or ''}:{it.line or ''}".strip(" :")
    return " · ".join(filter(None, (" ".join(filter(None, (it.gb_id, it.gb_type or it.reason[:60]))), where)))


def _name_choice(name: str) -> Metric | None:
    return find_metric(name, of_suite=False) or find_metric(name, of_suite=True)
