"""The Incidents page, the page of one incident, and their API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, NoReturn

from flask import Blueprint, abort, make_response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from compileboard.app.benchmarks.queries import list_bench_runs
from compileboard.app.benchmarks.trend_charts import list_table_rows, share_runs
from compileboard.app.benchmarks.trend_lines import resolve_choice
from compileboard.app.core.access import choose_author, describe_author
from compileboard.app.core.api import PageQuery, operation, read_body, refuse
from compileboard.app.core.charts import draw_sparkline
from compileboard.app.core.db import (
    get_clock,
    get_engine,
    get_reader,
    get_settings,
    get_store,
    writing,
)
from compileboard.app.core.page import FilterError, Page, check_limit
from compileboard.app.core.schema import OPTIONAL, Keywords
from compileboard.app.incidents import model as messages
from compileboard.app.incidents.charts import chart_incident
from compileboard.app.incidents.model import (
    DIRECTIONS,
    STATES,
    STATUSES,
    Incident,
    IncidentDetail,
    SeriesChange,
    list_checks,
)
from compileboard.app.incidents.page_model import (
    ABSENT,
    SERIES_FIELDS,
    IncidentScreen,
    IncidentSeries,
    build_detail,
    build_incident,
    build_sparkline,
)
from compileboard.app.incidents.queries import (
    FILTERS,
    IncidentFilter,
    count_incidents,
    find_incident_of,
    get_detection,
    list_incident_choices,
    read_incident_filter,
)
from compileboard.app.incidents.queries import list_incidents as list_page
from compileboard.collectors.store.incident_triage import AUTHOR_LIMIT, TEXT_LIMIT, save_comment

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
    page = list_page(reader, selected, args.get("cursor"), limit_count)
    counts, detection = count_incidents(reader), get_detection(reader)
    lines = [build_sparkline(reader, get_engine(), row, get_clock()) for row in page.rows]
    given = {key: args.get(key, "") for key in FILTERS}
    return render_template(
        "incidents/index.html",
        listed=page,
        counts=counts,
        detected_us=detection.finished_us if detection else None,
        has_runs=bool(counts.incident_count or list_bench_runs(get_engine())),
        sparklines=[
            line and draw_sparkline(line.values, bad_from=line.bad_from, bad_to=line.bad_to)
            for line in lines
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
        saved = _save_comment(incident_id, **typed)
    except ValueError as error:
        screen = build_incident(get_store(), incident_id, get_clock())
        if screen is None:
            _refuse(incident_id)
        return make_response(_render(screen, typed, str(error)), 400)
    if not saved:
        _refuse(incident_id)
    return redirect(url_for("incidents.show", incident_id=incident_id, _anchor="activity"), 303)


def _save_comment(incident_id: str, action: str, author: str, text: str) -> bool:
    author = choose_author(author)
    signed = describe_author(author[:AUTHOR_LIMIT])
    with writing(f"incident.{action[:20]}", incident_id, signed) as writer:
        return save_comment(writer, incident_id, action, author=author, text=text)


def _refuse(incident_id: str) -> NoReturn:
    abort(404, ABSENT.format(incident_id[:80]))


def _render(
    screen: IncidentScreen, typed: dict[str, str] | None = None, problem: str | None = None
) -> str:
    return render_template(
        "incidents/one.html",
        screen=screen,
        incident=screen.detail,
        tiles=[change for change in screen.detail.changes if change.state != "withdrawn"][
            :TILE_COUNT
        ],
        words=messages,
        list_checks=list_checks,
        typed=typed or {"action": "", "author": "", "text": ""},
        problem=problem and problem.partition(": ")[2],
        limits={"author": AUTHOR_LIMIT, "text": TEXT_LIMIT},
        has_charts=screen.series is not None,
        drawn=_build_chart(screen.series) if screen.series else None,
        compare=link_comparison(screen.detail),
        links=list_series_links(screen.series.change) if screen.series else [],
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


def list_series_links(change: SeriesChange) -> list[tuple[str, str]]:
    links = []
    series: dict[str, Any] = {
        name: value for name in SERIES_FIELDS if (value := getattr(change, name))
    }
    series["dynamic"] = "yes" if change.dynamic else "no"
    if change.world_size:
        series["world_size"] = change.world_size
    if change.subject != "runs":
        of: dict[str, Any] = {"model": change.model} if change.subject == "model" else {}
        metric = resolve_choice(change.metric)
        of |= {"metric": metric} if metric else {}
        of |= {"branch": change.branch} if change.branch else {}
        links.append(("Open trend", url_for("trends.index", **of, **series)))
    if change.subject == "model":
        series |= {"batch_size": change.batch_size} if change.batch_size else {}
        links.append(("Open model", url_for("models.show", model=change.model, **series)))
    if change.subject == "runs":
        links.append((f"Runs named {change.model[:60]}", url_for("runs.index", name=change.model)))
    return links


@dataclass(frozen=True)
class CommentBody:
    """A comment or an action, with the author's name and the reason."""

    author: Annotated[
        str,
        Keywords(maxLength=AUTHOR_LIMIT, examples=["Ada"]),
        "Your name. Leave it out with a token, whose name signs; else required.",
    ] = field(default="", metadata=OPTIONAL)
    text: Annotated[
        str | None,
        Keywords(maxLength=TEXT_LIMIT, examples=["Slower since the driver was updated."]),
        "The comment, or the reason: required to ignore and to comment.",
    ] = field(default=None, metadata=OPTIONAL)


_INCIDENT = "/incidents/<incident_id>"


@operation("/incidents")
def list_incidents(selection: IncidentFilter, page: PageQuery) -> Page[Incident]:
    """List incidents, the one with the newest run first."""
    return list_page(get_reader(), selection, page.cursor, page.limit)


@operation(_INCIDENT)
def get_incident(incident_id: str) -> IncidentDetail:
    """Return one incident with its changes and comments."""
    reader = get_reader()
    detail = build_detail(reader, incident_id) or build_detail(
        reader, find_incident_of(reader, incident_id) or ""
    )
    if detail is None:
        refuse(ABSENT.format(incident_id[:80]))
    return detail


@operation(f"{_INCIDENT}/acknowledge", method="POST", body=CommentBody)
def acknowledge(incident_id: str) -> IncidentDetail:
    """Acknowledge an incident; `author` becomes its owner."""
    return _add_comment(incident_id, "acknowledge")


@operation(f"{_INCIDENT}/ignore", method="POST", body=CommentBody)
def ignore(incident_id: str) -> IncidentDetail:
    """Ignore an incident, which mutes its alerts; `text` is the reason, and is required."""
    return _add_comment(incident_id, "ignore")


@operation(f"{_INCIDENT}/comment", method="POST", body=CommentBody)
def comment(incident_id: str) -> IncidentDetail:
    """Comment on an incident, in `text`."""
    return _add_comment(incident_id, "comment")


@operation(f"{_INCIDENT}/reopen", method="POST", body=CommentBody)
def reopen(incident_id: str) -> IncidentDetail:
    """Reopen an incident that was acknowledged or ignored."""
    return _add_comment(incident_id, "reopen")


def _add_comment(incident_id: str, action: str) -> IncidentDetail:
    body = read_body(CommentBody, '{"author": "your name", "text": "why"}')
    try:
        _save_comment(incident_id, action, body.author, body.text or "")
    except ValueError as error:
        raise FilterError(str(error)) from None
    return get_incident(incident_id)
