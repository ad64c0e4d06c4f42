"""The series that a finding is of: read as the trend page reads it, drawn, and where else it is shown."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from flask import Blueprint, abort, make_response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from compileboard.app.analysis.incidents import messages
from compileboard.app.analysis.incidents.chart_data import (
    choose_runs,
    find_levels,
    make_model_line,
    make_runs_line,
    make_suite_line,
)
from compileboard.app.analysis.incidents.groups import SHOWN, group_incidents
from compileboard.app.analysis.incidents.messages import find_metric_of
from compileboard.app.analysis.metrics import PASSES
from compileboard.app.analysis.trends.lines import TrendLine, find_choice, lay_out
from compileboard.app.charts.base import Chart
from compileboard.app.charts.incidents import chart_incident
from compileboard.app.charts.trends import list_table_rows, share_runs
from compileboard.app.db import get_reader, get_settings, writing
from compileboard.app.queries.fleet.incidents import (
    FILTERS,
    HANDLINGS,
    KINDS,
    STATES,
    SUBJECTS,
    SeriesChange,
    count_findings,
    count_range_others,
    count_ranges,
    get_detection,
    get_finding,
    list_finding_choices,
    list_finding_words,
    list_findings,
    read_finding_filter,
)
from compileboard.app.queries.fleet.models import list_bench_runs
from compileboard.app.queries.fleet.series import list_run_points
from compileboard.app.queries.fleet.trends import (
    TrendFilter,
    TrendRun,
    list_model_rows,
    list_summaries,
    list_trend_runs,
)
from compileboard.app.queries.page import check_limit
from compileboard.collectors.store.dashboard.series_changes import TEXT_LIMIT, WHO_LIMIT, save_comment
from compileboard.collectors.store.rollups.summaries import HUD, SUMMARIZE_PERF

_SAID = ("suite", "mode", "dtype", "device", "hardware", "backend")


@dataclass(frozen=True)
class DrawnSeries:
    """Hold the chart of a finding's series and its table, and its runs by their ids."""

    chart: Chart
    shared: dict[str, list[Any]]
    columns: list[tuple[str, bool]]
    rows: list[list[object]]
    runs: dict[str, TrendRun]


def chart_series(reader: sqlite3.Connection, it: SeriesChange) -> DrawnSeries | None:
    """Draw the runs around a finding; None where none of them is left."""
    line = _read_line(reader, it)
    runs = choose_runs(it, list_trend_runs(reader, [point.run_id for point in line.points]))
    if not runs:
        return None
    axis, metric = lay_out(runs, "date"), find_metric_of(it)
    columns, rows = list_table_rows([(metric, [line])], axis)
    chart = chart_incident(it, metric, line, axis, find_levels(it, axis))
    return DrawnSeries(chart, share_runs(axis), columns, rows, {run.id: run for run in axis.runs})


def _read_line(reader: sqlite3.Connection, it: SeriesChange) -> TrendLine:
    if it.subject == "runs":
        found = list_run_points(reader, [it.model])
        own = [rows for key, rows in found if (key["suite"], key["hardware"]) == (it.suite, it.hardware)]
        return make_runs_line(it, own[0] if own else ())
    words: dict[str, Any] = {name: getattr(it, name) for name in _SAID}
    wanted = TrendFilter(**words, dynamic=it.dynamic, world_size=it.world_size, branch=it.branch or None)
    if it.subject == "model":
        columns = () if it.metric == PASSES.name else find_metric_of(it).columns
        return make_model_line(it, list_model_rows(reader, wanted, [it.model], columns))
    for definition in (HUD, SUMMARIZE_PERF):  # as detection does: the second where nobody checks accuracy
        line = make_suite_line(it, list_summaries(reader, wanted, definition.name), f"{it.suite}, {definition.label}")
        if any(point.value is not None for point in line.points):
            return line
    return line


def link_finding(it: SeriesChange) -> list[tuple[str, str]]:
    """List the pages that show more of a finding's series: what they are, and their addresses."""
    found = []
    if it.before_run_id:
        sides: dict[str, Any] = {"base": it.before_run_id, "new": it.first_run_id}
        found.append(("Compare the runs before and after", url_for("compare.index", **sides)))
    said: dict[str, Any] = {name: value for name in _SAID if (value := getattr(it, name))}
    said["dynamic"] = "yes" if it.dynamic else "no"
    if it.world_size:
        said["world_size"] = it.world_size
    if it.subject != "runs":
        of: dict[str, Any] = {"model": it.model} if it.subject == "model" else {}
        metric = find_choice(it.metric)
        of |= {"metric": metric} if metric else {}
        of |= {"branch": it.branch} if it.branch else {}
        found.append(("Trend of this series", url_for("trends.index", **of, **said)))
    if it.subject == "model":
        said |= {"batch_size": it.batch_size} if it.batch_size else {}
        found.append(("The model's page", url_for("models.show", model=it.model, **said)))
    if it.subject == "runs":
        found.append((f"Runs named {it.model[:60]}", url_for("runs.index", name=it.model)))
    return found


blueprint = Blueprint("findings", __name__)
_MORE = ("subject", "branch", "hardware", "run", "since", "until")
_OFFERED = {
    "states": (("", "suspected or confirmed"), *STATES, ("any", "any, withdrawn too")),
    "handlings": (("", "open or acknowledged"), *HANDLINGS, ("any", "any, ignored too")),
    "kinds": (*KINDS[:-1], (KINDS[-1], "no longer measured")),
    "subjects": tuple(zip(SUBJECTS, ("models", "suites", "observed runs"))),
}


@blueprint.get("/findings")
def index() -> str:
    """List findings, grouped by the commits or runs that they came with."""
    reader, settings = get_reader(), get_settings()
    wanted = read_finding_filter(request.args)
    limit = check_limit(request.args.get("limit"), settings.page_size)
    page = list_findings(reader, wanted, request.args.get("cursor"), limit)
    counted = count_ranges(reader, wanted, [it.first_run_id for it in page.rows])
    counts = count_findings(reader)
    return render_template(
        "incidents/index.html",
        groups=group_incidents(page.rows, counted),
        shown=SHOWN,
        next=page.next,
        counts=counts,
        detection=get_detection(reader),
        has_runs=bool(counts.finding_count or list_bench_runs(reader)),
        given={key: request.args.get(key, "") for key in FILTERS},
        filtered=any(request.args.get(key) for key in FILTERS),
        more_given=any(request.args.get(key) for key in _MORE),
        choices=list_finding_choices(reader),
        words=messages,
        cells=messages,
        **_OFFERED,
    )


@blueprint.get("/findings/<finding_id>")
def show(finding_id: str) -> str:
    """Show one finding: what changed, between which commits, what may have caused it, what people said."""
    return _render(_find(finding_id))


@blueprint.post("/findings/<finding_id>")
def say(finding_id: str) -> Response:
    """Keep what a person does with a finding, or says of it; what cannot be kept comes back with what was typed."""
    typed = {key: request.form.get(key, "") for key in ("action", "who", "text", "range")}
    try:
        with writing(f"finding.{typed['action'][:20]}", finding_id, f"by {typed['who'][:WHO_LIMIT]}") as connection:
            found = save_comment(
                connection,
                finding_id,
                typed["action"],
                who=typed["who"],
                text=typed["text"],
                whole_range=typed["range"] == "yes",
            )
    except ValueError as error:
        return make_response(_render(_find(finding_id), typed, str(error)), 400)
    if not found:
        _refuse(finding_id)
    return redirect(url_for("findings.show", finding_id=finding_id, _anchor="said"), 303)


def _find(finding_id: str) -> SeriesChange:
    return get_finding(get_reader(), finding_id) or _refuse(finding_id)


def _refuse(finding_id: str) -> Any:
    abort(404, f"There is no finding {finding_id[:80]}; what was never confirmed goes when later runs do not show it.")


def _render(it: SeriesChange, typed: dict[str, str] | None = None, problem: str | None = None) -> str:
    reader = get_reader()
    drawn = chart_series(reader, it)
    return render_template(
        "incidents/one.html",
        it=it,
        metric=messages.find_metric_of(it),
        words=messages,
        cells=messages,
        said=list_finding_words(reader, it.id),
        typed=typed or {"action": "", "who": "", "text": "", "range": ""},
        problem=problem,
        limits={"who": WHO_LIMIT, "text": TEXT_LIMIT},
        has_charts=drawn is not None,
        drawn=drawn,
        links=link_finding(it),
        others=count_range_others(reader, it),
    )
