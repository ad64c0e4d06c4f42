"""The pages across runs of graph breaks, recompile causes, CUDA graph re-recordings, failures."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, abort, render_template, request

from compileboard.app.core.db import get_clock, get_engine, get_settings, get_store
from compileboard.app.core.filters import board_option, url_with
from compileboard.app.core.labels import CUDA_GRAPH_STATUSES, describe_break_outcome
from compileboard.app.core.page import check_limit, read_content_id
from compileboard.app.reasons.charts import (
    chart_categories,
    chart_errors,
    chart_history,
    chart_kinds,
    chart_statuses,
    make_sparkline,
)
from compileboard.app.reasons.failure_issues import FAILURES, STATUSES
from compileboard.app.reasons.graph_breaks import GRAPH_BREAKS
from compileboard.app.reasons.model import (
    ReasonScreen,
    ReasonsScreen,
    build_failure,
    build_failures,
    build_graph_break,
    build_reasons,
    build_recompile_cause,
    build_rerecording,
)
from compileboard.app.reasons.queries import ReasonSubject, find_last_runs, list_affected_runs
from compileboard.app.reasons.recompiles import RECOMPILES
from compileboard.app.reasons.rerecordings import RERECORDINGS
from compileboard.app.runs.overview_queries import has_observed_runs
from compileboard.app.runs.queries import FILTERS, list_choices
from compileboard.collectors.contract.categories import CATEGORIES

graph_breaks = Blueprint("graph_breaks", __name__)
recompiles = Blueprint("recompiles", __name__)
rerecordings = Blueprint("rerecordings", __name__)
failures = Blueprint("failures", __name__)

BREAK_SORTS = (
    ("breaks", "most frequent"),
    ("runs", "most runs"),
    ("compile_time", "most compile time"),
    ("last", "last seen"),
    ("first", "first seen, newest first"),
    ("first.asc", "oldest first"),
)
CAUSE_SORTS = (
    ("recompiles", "most recompiles"),
    ("compile_time", "most compile time"),
    ("runs", "most runs"),
    ("last", "last seen"),
    ("first", "newest cause first"),
)
RERECORDING_SORTS = (
    ("rerecordings", "most recordings"),
    ("time", "most time"),
    ("runs", "most runs"),
    ("last", "last seen"),
    ("first", "first seen, newest first"),
)
FAILURE_SORTS = (
    ("last", "last seen"),
    ("failures", "most frequent"),
    ("runs", "most runs"),
    ("compile_time", "most compile time"),
    ("first", "first seen, newest first"),
    ("first.asc", "oldest first"),
)
_UNFOLDED = ("q", "suite")  # filters of runs that are not folded


@graph_breaks.get("/graph_breaks")
def index() -> str:
    screen, values = _build_list(GRAPH_BREAKS)
    trends = screen.program.trends
    kinds = trends.grid.kinds
    values |= {
        "chart": chart_kinds(kinds, trends.slots) if kinds else None,
        "has_charts": bool(kinds),
    }
    last_runs = find_last_runs(get_engine(), GRAPH_BREAKS, screen.listed.rows)
    return render_template(
        "graph_breaks/index.html", **values, sorts=BREAK_SORTS, last_runs=last_runs
    )


@recompiles.get("/recompiles", endpoint="index")
def index_recompiles() -> str:
    screen, values = _build_list(RECOMPILES)
    trends = screen.program.trends
    has_charts = trends.summary.recompile_count > 0
    chart = chart_categories(trends.grid.kinds, trends.slots) if has_charts else None
    values |= {"chart": chart, "has_charts": has_charts}
    options = [(category.name, category.label) for category in CATEGORIES]
    return render_template("recompiles/index.html", **values, sorts=CAUSE_SORTS, options=options)


@rerecordings.get("/cuda_graphs", endpoint="index")
def index_rerecordings() -> str:
    screen, values = _build_list(RERECORDINGS)
    trends = screen.program.trends
    kinds = trends.grid.kinds
    values |= {
        "chart": chart_statuses(kinds, trends.slots) if kinds else None,
        "has_charts": bool(kinds),
    }
    options = [(name, word.word) for name, word in CUDA_GRAPH_STATUSES.items()]
    return render_template(
        "rerecordings/index.html", **values, sorts=RERECORDING_SORTS, options=options
    )


@failures.get("/failures", endpoint="index")
def index_failures() -> str:
    screen, values = _build_list(FAILURES)
    trends = screen.program.trends
    kinds = trends.grid.kinds
    values |= {
        "chart": chart_errors(kinds, trends.slots) if kinds else None,
        "has_charts": bool(kinds),
    }
    return render_template("failures/index.html", **values, sorts=FAILURE_SORTS, options=STATUSES)


def _build_list(subject: ReasonSubject) -> tuple[ReasonsScreen, dict[str, Any]]:
    engine, program = get_engine(), request.args.get("program")
    args = {key: value for key, value in request.args.items() if key != "program"}
    limit_count = check_limit(args.get("limit"), get_settings().page_size)
    selected = subject.read_filter(args)
    chosen = selected, args.get("sort"), args.get("cursor"), limit_count, program
    screen = (
        build_failures(get_store(), *chosen)
        if subject is FAILURES
        else build_reasons(engine, subject, *chosen)
    )
    of_program = screen.program
    given = {key: args.get(key, "") for key in subject.names}
    return screen, {
        "screen": screen,
        "rows": [
            (reason, make_sparkline(of_program.trends.grid.line(reason.id)))
            for reason in screen.listed.rows
        ],
        "programs": [
            (name, url_with(program=name) + "#trend", name == of_program.name)
            for name in of_program.others
        ],
        "given": given,
        "filtered": any(given.values()),
        "is_observed": bool(screen.listed.rows) or has_observed_runs(engine),
        "more_given": any(given[key] for key in FILTERS if key not in _UNFOLDED),
        "choices": list_choices(engine),
    }


@graph_breaks.get("/graph_breaks/<distinct_id>")
def show(distinct_id: str) -> str:
    limit_count = check_limit(request.args.get("limit"), get_settings().page_size)
    screen = build_graph_break(get_store(), read_content_id(distinct_id))
    if screen is None:
        abort(404, GRAPH_BREAKS.describe_absence(distinct_id))
    values = _build_one(GRAPH_BREAKS, screen, limit_count, "break-history", "graph breaks")
    events = [(event, describe_break_outcome(event.outcome)) for event in screen.events]
    return render_template("graph_breaks/one.html", **values, events=events)


@recompiles.get("/recompiles/<cause_id>", endpoint="show")
def show_cause(cause_id: str) -> str:
    limit_count = check_limit(request.args.get("limit"), get_settings().page_size)
    screen = build_recompile_cause(get_store(), read_content_id(cause_id))
    if screen is None:
        abort(404, RECOMPILES.describe_absence(cause_id))
    return render_template(
        "recompiles/one.html",
        **_build_one(RECOMPILES, screen, limit_count, "cause-history", "recompiles"),
    )


@rerecordings.get("/cuda_graphs/<reason_id>", endpoint="show")
def show_rerecording(reason_id: str) -> str:
    limit_count = check_limit(request.args.get("limit"), get_settings().page_size)
    screen = build_rerecording(get_store(), read_content_id(reason_id))
    if screen is None:
        abort(404, RERECORDINGS.describe_absence(reason_id))
    values = _build_one(RERECORDINGS, screen, limit_count, "cuda-graphs-history", "recorded again")
    return render_template("rerecordings/one.html", **values)


@failures.get("/failures/<issue_id>", endpoint="show")
def show_failure(issue_id: str) -> str:
    limit_count = check_limit(request.args.get("limit"), get_settings().page_size)
    screen = build_failure(get_store(), read_content_id(issue_id))
    if screen is None:
        abort(404, FAILURES.describe_absence(issue_id))
    values = _build_one(FAILURES, screen, limit_count, "failures-history", "failures")
    commands = [
        f"compileboard-collect repro run {repro.id} {board_option(repro.run_id)}"
        for repro in screen.repros[:1]
    ]
    return render_template("failures/one.html", **values, commands=commands)


def _build_one(
    subject: ReasonSubject, screen: ReasonScreen, limit_count: int, chart_id: str, noun: str
) -> dict[str, Any]:
    cursor, has_charts = request.args.get("cursor"), len(screen.history) > 1
    reason_id = read_content_id(screen.reason.id)
    return {
        "screen": screen,
        "page_of_runs": list_affected_runs(
            get_engine(),
            subject,
            reason_id,
            cursor=cursor,
            limit=limit_count,
            alive_since_us=get_clock().alive_since_us,
        ),
        "chart": chart_history(chart_id, "From run to run", noun, screen.history)
        if has_charts
        else None,
        "has_charts": has_charts,
    }
