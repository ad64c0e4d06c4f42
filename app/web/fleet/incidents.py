"""The Incidents page and the page of one incident."""

from __future__ import annotations

from typing import Any, NoReturn

from flask import Blueprint, abort, make_response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from compileboard.app.analysis.incidents import messages
from compileboard.app.analysis.incidents.incident import Incident, list_checks
from compileboard.app.analysis.trends.lines import find_choice
from compileboard.app.charts.incidents import chart_incident
from compileboard.app.charts.sparkline import draw_sparkline
from compileboard.app.charts.trends import list_table_rows, share_runs
from compileboard.app.db import get_clock, get_engine, get_reader, get_settings, get_store, writing
from compileboard.app.queries.dashboard.incidents import (
    FILTERS,
    STATES,
    STATUSES,
    find_incident_of,
    list_incident_choices,
    read_incident_filter,
)
from compileboard.app.queries.dashboard.series_changes import DIRECTIONS, SeriesChange
from compileboard.app.queries.page import check_limit
from compileboard.app.screens.fleet.incidents import (
    ABSENT,
    SERIES_FIELDS,
    IncidentScreen,
    IncidentSeries,
    build_incident,
    build_incidents,
)
from compileboard.app.web.access import choose_author, describe_author
from compileboard.collectors.store.dashboard.incidents import AUTHOR_LIMIT, TEXT_LIMIT, save_comment

blueprint = Blueprint("incidents", __name__)
TILE_COUNT = 5
LIST_LIMIT = 25  # each has a sparkline, which reads a series
OFFERED = {
    "states": (
        ("", "Open or unconfirmed"),
        *((state, messages.INCIDENT_LABELS[state][0]) for state in STATES),
        ("any", "Any"),
    ),
    "statuses": (
        ("", "Not ignored"),
        *((status, status.capitalize()) for status in STATUSES),
        ("any", "Any"),
    ),
    "directions": tuple(
        (direction, messages.DIRECTION_LABELS[direction][0]) for direction in DIRECTIONS
    ),
}


@blueprint.get("/incidents")
def index() -> str:
    reader, args = get_reader(), request.args
    limit_count = check_limit(args.get("limit"), min(LIST_LIMIT, get_settings().page_size))
    selected = read_incident_filter(args)
    screen = build_incidents(
        reader, get_engine(), selected, args.get("cursor"), limit_count, get_clock()
    )
    given = {key: args.get(key, "") for key in FILTERS}
    return render_template(
        "incidents/index.html",
        screen=screen,
        sparklines=[
            sparkline
            and draw_sparkline(
                sparkline.values, bad_from=sparkline.bad_from, bad_to=sparkline.bad_to
            )
            for sparkline in screen.sparklines
        ],
        given=given,
        filtered=any(given.values()),
        choices=list_incident_choices(reader),
        words=messages,
        now_us=get_clock().now_us,
        **OFFERED,
    )


@blueprint.get("/incidents/<incident_id>")
def show(incident_id: str) -> Response:
    screen = build_incident(get_store(), incident_id, get_clock(), request.args.get("change"))
    if screen is not None:
        return make_response(_render(screen))
    of = find_incident_of(get_reader(), incident_id)
    if of is None:
        _refuse(incident_id)
    return redirect(url_for("incidents.show", incident_id=of, _anchor=f"change-{incident_id}"), 301)


@blueprint.post("/incidents/<incident_id>")
def add_comment(incident_id: str) -> Response:
    typed = {key: request.form.get(key, "") for key in ("action", "author", "text")}
    try:
        author = choose_author(typed["author"])
        with writing(
            f"incident.{typed['action'][:20]}", incident_id, describe_author(author[:AUTHOR_LIMIT])
        ) as writer:
            saved = save_comment(
                writer, incident_id, typed["action"], author=author, text=typed["text"]
            )
    except ValueError as error:
        screen = build_incident(get_store(), incident_id, get_clock())
        if screen is None:
            _refuse(incident_id)
        return make_response(_render(screen, typed, str(error)), 400)
    if not saved:
        _refuse(incident_id)
    return redirect(url_for("incidents.show", incident_id=incident_id, _anchor="activity"), 303)


def _refuse(incident_id: str) -> NoReturn:
    abort(404, ABSENT.format(incident_id[:80]))


def _render(
    screen: IncidentScreen, typed: dict[str, str] | None = None, problem: str | None = None
) -> str:
    return render_template(
        "incidents/one.html",
        screen=screen,
        incident=screen.record.incident,
        tiles=[change for change in screen.record.changes if change.state != "withdrawn"][
            :TILE_COUNT
        ],
        words=messages,
        list_checks=list_checks,
        typed=typed or {"action": "", "author": "", "text": ""},
        problem=problem and problem.partition(": ")[2],
        limits={"author": AUTHOR_LIMIT, "text": TEXT_LIMIT},
        has_charts=screen.series is not None,
        drawn=_build_chart(screen.series) if screen.series else None,
        compare=link_comparison(screen.record.incident),
        links=link_series(screen.series.change) if screen.series else [],
        now_us=get_clock().now_us,
    )


def _build_chart(series: IncidentSeries) -> dict[str, Any]:
    axis = series.axis
    columns, rows = list_table_rows([(series.metric, [series.line])], axis)
    chart = chart_incident(series.change, series.metric, series.line, axis, series.levels)
    return {"chart": chart, "shared": share_runs(axis), "columns": columns, "rows": rows}


def link_comparison(incident: Incident) -> str | None:
    if incident.last_good is None:
        return None
    return url_for("compare.index", base=incident.last_good.run_id, new=incident.first_bad.run_id)


def link_series(change: SeriesChange) -> list[tuple[str, str]]:
    links = []
    series: dict[str, Any] = {
        name: value for name in SERIES_FIELDS if (value := getattr(change, name))
    }
    series["dynamic"] = "yes" if change.dynamic else "no"
    if change.world_size:
        series["world_size"] = change.world_size
    if change.subject != "runs":
        of: dict[str, Any] = {"model": change.model} if change.subject == "model" else {}
        metric = find_choice(change.metric)
        of |= {"metric": metric} if metric else {}
        of |= {"branch": change.branch} if change.branch else {}
        links.append(("Open trend", url_for("trends.index", **of, **series)))
    if change.subject == "model":
        series |= {"batch_size": change.batch_size} if change.batch_size else {}
        links.append(("Open model", url_for("models.show", model=change.model, **series)))
    if change.subject == "runs":
        links.append((f"Runs named {change.model[:60]}", url_for("runs.index", name=change.model)))
    return links
