"""The findings page and a finding's own page: what changed, drawn, and what people do with it."""

from __future__ import annotations

from typing import Any, NoReturn

from flask import Blueprint, abort, make_response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from compileboard.app.analysis.incidents import messages
from compileboard.app.analysis.incidents.groups import SHOWN
from compileboard.app.analysis.trends.lines import find_choice
from compileboard.app.charts.incidents import chart_incident
from compileboard.app.charts.trends import list_table_rows, share_runs
from compileboard.app.db import get_clock, get_engine, get_reader, get_settings, writing
from compileboard.app.queries.dashboard.incidents import (
    FILTERS,
    HANDLINGS,
    KINDS,
    STATES,
    SUBJECTS,
    SeriesChange,
    list_finding_choices,
    read_finding_filter,
)
from compileboard.app.queries.page import check_limit
from compileboard.app.screens.fleet.incidents import (
    SERIES_FIELDS,
    IncidentSeries,
    build_incident,
    build_incidents,
)
from compileboard.collectors.store.dashboard.series_changes import TEXT_LIMIT, WHO_LIMIT, save_comment

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
    reader, args = get_reader(), request.args
    limit_count = check_limit(args.get("limit"), get_settings().page_size)
    return render_template(
        "incidents/index.html",
        screen=build_incidents(reader, get_engine(), read_finding_filter(args), args.get("cursor"), limit_count),
        shown=SHOWN,
        given={key: args.get(key, "") for key in FILTERS},
        filtered=any(args.get(key) for key in FILTERS),
        more_given=any(args.get(key) for key in _MORE),
        choices=list_finding_choices(reader),
        words=messages,
        cells=messages,
        **_OFFERED,
    )


@blueprint.get("/findings/<finding_id>")
def show(finding_id: str) -> str:
    """Show one finding: what changed, between which commits, what may have caused it, what people said."""
    return _render(finding_id)


@blueprint.post("/findings/<finding_id>")
def add_comment(finding_id: str) -> Response:
    """Save a person's action on a finding or comment; one that cannot be saved comes back with what was typed."""
    typed = {key: request.form.get(key, "") for key in ("action", "who", "text", "range")}
    try:
        with writing(f"finding.{typed['action'][:20]}", finding_id, f"by {typed['who'][:WHO_LIMIT]}") as connection:
            saved = save_comment(
                connection,
                finding_id,
                typed["action"],
                author=typed["who"],
                text=typed["text"],
                whole_range=typed["range"] == "yes",
            )
    except ValueError as error:
        return make_response(_render(finding_id, typed, str(error)), 400)
    if not saved:
        _refuse(finding_id)
    return redirect(url_for("findings.show", finding_id=finding_id, _anchor="said"), 303)


def _refuse(finding_id: str) -> NoReturn:
    abort(404, f"There is no finding {finding_id[:80]}; what was never confirmed goes when later runs do not show it.")


def _render(finding_id: str, typed: dict[str, str] | None = None, problem: str | None = None) -> str:
    screen = build_incident(get_reader(), get_engine(), finding_id, get_clock())
    if screen is None:
        _refuse(finding_id)
    change = screen.record.change
    return render_template(
        "incidents/one.html",
        screen=screen,
        change=change,
        words=messages,
        cells=messages,
        typed=typed or {"action": "", "who": "", "text": "", "range": ""},
        problem=problem,
        limits={"who": WHO_LIMIT, "text": TEXT_LIMIT},
        has_charts=screen.series is not None,
        drawn=_build_chart(change, screen.series) if screen.series else None,
        links=link_finding(change),
    )


def _build_chart(change: SeriesChange, series: IncidentSeries) -> dict[str, Any]:
    """Build the chart of the runs around a finding, with its table."""
    axis = series.axis
    columns, rows = list_table_rows([(series.metric, [series.line])], axis)
    chart = chart_incident(change, series.metric, series.line, axis, series.levels)
    return {"chart": chart, "shared": share_runs(axis), "columns": columns, "rows": rows, "runs": series.runs}


def link_finding(change: SeriesChange) -> list[tuple[str, str]]:
    """List the pages that show more of a finding's series: what they are, and their addresses."""
    links = []
    if change.before_run_id:
        sides: dict[str, Any] = {"base": change.before_run_id, "new": change.first_run_id}
        links.append(("Compare the runs before and after", url_for("compare.index", **sides)))
    series: dict[str, Any] = {name: value for name in SERIES_FIELDS if (value := getattr(change, name))}
    series["dynamic"] = "yes" if change.dynamic else "no"
    if change.world_size:
        series["world_size"] = change.world_size
    if change.subject != "runs":
        of: dict[str, Any] = {"model": change.model} if change.subject == "model" else {}
        metric = find_choice(change.metric)
        of |= {"metric": metric} if metric else {}
        of |= {"branch": change.branch} if change.branch else {}
        links.append(("Trend of this series", url_for("trends.index", **of, **series)))
    if change.subject == "model":
        series |= {"batch_size": change.batch_size} if change.batch_size else {}
        links.append(("The model's page", url_for("models.show", model=change.model, **series)))
    if change.subject == "runs":
        links.append((f"Runs named {change.model[:60]}", url_for("runs.index", name=change.model)))
    return links
