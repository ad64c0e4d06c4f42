"""Incidents, their changes, and their triage."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from flask import request

from compileboard.app.analysis.incidents.incident import Incident
from compileboard.app.analysis.incidents.messages import (
    describe_commit_range,
    describe_series,
    describe_series_change,
    format_confidence,
)
from compileboard.app.api.answers import PageQuery, operation, refuse
from compileboard.app.db import get_reader, writing
from compileboard.app.queries.dashboard.incidents import Comment, IncidentFilter, find_incident_of
from compileboard.app.queries.dashboard.series_changes import SeriesChange
from compileboard.app.queries.fields import EventTime
from compileboard.app.queries.page import FilterError, Page
from compileboard.app.schema import OPTIONAL, Keywords, list_names, one_of
from compileboard.app.screens.fleet.incidents import ABSENT, build_incident_record
from compileboard.app.screens.fleet.incidents import list_incidents as list_page
from compileboard.app.web.access import choose_author, describe_author
from compileboard.collectors.store.dashboard.incidents import (
    ACTIONS,
    AUTHOR_LIMIT,
    TEXT_LIMIT,
    save_comment,
)


@dataclass(frozen=True)
class SeriesChangeJson(SeriesChange):
    """A change of one series. An empty text or a 0 in the series' fields means not recorded."""

    sentence: Annotated[str, "What it is, in one line."]
    measured_as: Annotated[str, "Configuration of the series, in words."]
    range: Annotated[str, "Its range of runs or commits, in words."]
    confidence: Annotated[str, "Confidence, in words."]
    before: Annotated[
        dict[str, Any] | None,
        "`run_id`, `name`, `started_us`, `commit`, `subject`, `torch`; null where not known.",
    ]
    after: Annotated[
        dict[str, Any] | None,
        "`run_id`, `name`, `started_us`, `commit`, `subject`, `torch`; null where not known.",
    ]
    environment: Annotated[
        list[dict[str, Any]],
        "What of GPU, driver, torch and triton changed: `word`, `before`, `now`.",
    ]
    commits: Annotated[
        dict[str, Any] | None,
        "The commits after the one, up to the other: `known`, `count`, and `listed` with authors.",
    ]
    causes: Annotated[
        list[dict[str, Any]],
        (
            "What appeared in the same range: `kind`, `word`, `label`, `before`, `after`, "
            "`break_id`, `cause_id`."
        ),
    ]
    points: Annotated[dict[str, Any] | None, "How many runs each level has: `before`, `after`."]


@dataclass(frozen=True)
class CommentJson:
    """One action or comment of a person on an incident."""

    action: Annotated[str, one_of(ACTIONS), "The action."]
    author: Annotated[str, "The person's name, as given."]
    text: Annotated[str | None, "The comment, or the reason."]
    time_us: EventTime


@dataclass(frozen=True)
class IncidentDetailJson(Incident):
    """One incident with its changes and comments."""

    changes: Annotated[list[SeriesChangeJson], "Its changes, the most severe first."]
    comments: Annotated[list[CommentJson], "The oldest first."]


@dataclass(frozen=True)
class CommentBody:
    """An action with the author's name and reason."""

    author: Annotated[
        str,
        Keywords(maxLength=AUTHOR_LIMIT),
        "Your name. Leave it out with a token, whose name signs; else required.",
    ] = field(default="", metadata=OPTIONAL)
    text: Annotated[
        str | None,
        Keywords(maxLength=TEXT_LIMIT),
        "The comment, or the reason: required to ignore and to comment.",
    ] = field(default=None, metadata=OPTIONAL)


_INCIDENT = "/incidents/<incident_id>"


@operation("/incidents")
def list_incidents(selection: IncidentFilter, page: PageQuery) -> Page[Incident]:
    """List incidents, those of the newest runs first."""
    return list_page(get_reader(), selection, page.cursor, page.limit)


@operation(_INCIDENT)
def get_incident(incident_id: str) -> IncidentDetailJson:
    """Return one incident with its changes and comments."""
    reader = get_reader()
    record = build_incident_record(reader, incident_id) or build_incident_record(
        reader, find_incident_of(reader, incident_id) or ""
    )
    if record is None:
        refuse(ABSENT.format(incident_id[:80]))
    return IncidentDetailJson(
        **{part.name: getattr(record.incident, part.name) for part in fields(Incident)},
        changes=[make_change_json(change) for change in record.changes],
        comments=[make_comment_json(comment) for comment in record.comments],
    )


def make_change_json(change: SeriesChange) -> SeriesChangeJson:
    evidence = change.evidence
    return SeriesChangeJson(
        **vars(change),
        sentence=describe_series_change(change),
        measured_as=describe_series(change),
        range=describe_commit_range(change),
        confidence=format_confidence(change),
        before=evidence.get("before") or None,
        after=evidence.get("after") or None,
        environment=evidence.get("environment") or [],
        commits=evidence.get("commits") or None,
        causes=evidence.get("causes") or [],
        points=evidence.get("points") or None,
    )


def make_comment_json(comment: Comment) -> CommentJson:
    return CommentJson(comment.action, comment.author, comment.text, comment.time_us)


@operation(f"{_INCIDENT}/acknowledge", method="POST", body=CommentBody)
def acknowledge(incident_id: str) -> IncidentDetailJson:
    """Acknowledge an incident: `author` takes care of it."""
    return _add_comment(incident_id, "acknowledge")


@operation(f"{_INCIDENT}/ignore", method="POST", body=CommentBody)
def ignore(incident_id: str) -> IncidentDetailJson:
    """Ignore an incident, which mutes its alerts; `text` is the reason, and is required."""
    return _add_comment(incident_id, "ignore")


@operation(f"{_INCIDENT}/comment", method="POST", body=CommentBody)
def comment(incident_id: str) -> IncidentDetailJson:
    """Comment on an incident, in `text`."""
    return _add_comment(incident_id, "comment")


@operation(f"{_INCIDENT}/reopen", method="POST", body=CommentBody)
def reopen(incident_id: str) -> IncidentDetailJson:
    """Reopen an incident that was acknowledged or ignored."""
    return _add_comment(incident_id, "reopen")


def _add_comment(incident_id: str, action: str) -> IncidentDetailJson:
    body = _read_body()
    try:
        author = choose_author(body.author)
        with writing(
            f"incident.{action}", incident_id, describe_author(author[:AUTHOR_LIMIT])
        ) as connection:
            save_comment(connection, incident_id, action, author=author, text=body.text or "")
    except ValueError as error:
        raise FilterError(str(error)) from None
    return get_incident(incident_id)


def _read_body() -> CommentBody:
    body: Any = request.get_json(force=True, silent=True)
    if not isinstance(body, dict):
        raise FilterError('body: expected a JSON object, {"author": "your name", "text": "why"}')
    names = list_names(CommentBody)
    for key, value in body.items():
        if key not in names:
            raise FilterError(
                f"{str(key)[:40]}: there is no such field; known are {', '.join(names)}"
            )
        if not isinstance(value, str) and not (key == "text" and value is None):
            raise FilterError(f"{key}: expected a text, this is {type(value).__name__}")
    return CommentBody(**body)
