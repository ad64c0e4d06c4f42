"""Findings, and what people say of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from flask import request

from compileboard.app.analysis.incidents.messages import finding_detail_row, finding_row
from compileboard.app.api.answers import PageQuery, operation, refuse
from compileboard.app.db import get_reader, writing
from compileboard.app.queries.dashboard.incidents import IncidentFilter, SeriesChange
from compileboard.app.queries.fields import EventTime
from compileboard.app.queries.page import FilterError, Page
from compileboard.app.schema import OPTIONAL, Keywords, list_names, one_of
from compileboard.app.screens.fleet.incidents import build_change_list, build_incident_record
from compileboard.collectors.store.dashboard.series_changes import ACTIONS, TEXT_LIMIT, WHO_LIMIT, save_comment


@dataclass(frozen=True)
class FindingJson(SeriesChange):
    """A lasting change of one series. Of the series, an empty text or a 0 is what was not said."""

    sentence: Annotated[str, "What it is, in one line."]
    measured_as: Annotated[str, "As what it was measured, in words."]
    range: Annotated[str, "Between which runs or commits it came, in words."]
    confidence: Annotated[str, "How sure it is, in words."]
    recovered: Annotated[bool, "Whether the level before came back."]
    before: Annotated[
        dict[str, Any] | None, "`run_id`, `name`, `started_us`, `commit`, `subject`, `torch`; null where not known."
    ]
    after: Annotated[
        dict[str, Any] | None, "`run_id`, `name`, `started_us`, `commit`, `subject`, `torch`; null where not known."
    ]
    environment: Annotated[
        list[dict[str, Any]], "What of GPU, driver, torch and triton differs: `word`, `before`, `now`."
    ]
    commits: Annotated[
        dict[str, Any] | None,
        "The commits after the one, up to the other: `known`, `count`, and `listed` with authors.",
    ]
    causes: Annotated[
        list[dict[str, Any]],
        "What appeared in the same range, the likeliest first: `kind`, `word`, `label`, `before`, `after`, "
        "`break_id`, `cause_id`.",
    ]
    points: Annotated[dict[str, Any] | None, "How many runs each level has: `before`, `after`."]


@dataclass(frozen=True)
class FindingComment:
    """What one person did with it, or said of it."""

    action: Annotated[str, one_of(ACTIONS), "What was done."]
    who: Annotated[str, "The person's name, as given."]
    text: Annotated[str | None, "What was said."]
    time_us: EventTime


@dataclass(frozen=True)
class FindingDetailJson(FindingJson):
    """One finding with what people said of it."""

    words: Annotated[list[FindingComment], "The oldest first."]


@dataclass(frozen=True)
class CommentBody:
    """Who says what."""

    who: Annotated[str, Keywords(minLength=1, maxLength=WHO_LIMIT), "The name that others know you by."]
    text: Annotated[
        str | None, Keywords(maxLength=TEXT_LIMIT), "What you know: required to ignore, and for a note."
    ] = field(default=None, metadata=OPTIONAL)
    range: Annotated[bool, "The same for every finding that came between the same two runs."] = field(
        default=False, metadata=OPTIONAL
    )


_FINDING = "/findings/<finding_id>"


@operation("/findings")
def list_findings(selection: IncidentFilter, page: PageQuery) -> Page[FindingJson]:
    """List lasting changes of series, those of the newest runs first."""
    listed = build_change_list(get_reader(), selection, page.cursor, page.limit)
    rows = (FindingJson(**finding_row(change), evidence=change.evidence) for change in listed.changes)
    return Page(tuple(rows), listed.next_cursor)


@operation(_FINDING)
def get_finding(finding_id: str) -> FindingDetailJson:
    """Return one finding with what people said of it."""
    record = build_incident_record(get_reader(), finding_id)
    if record is None:
        refuse(f"There is no finding {finding_id[:80]}; what was never confirmed goes when later runs do not show it.")
    change = record.change
    return FindingDetailJson(**finding_detail_row(change, record.comments), evidence=change.evidence)


@operation(f"{_FINDING}/acknowledge", method="POST", body=CommentBody)
def acknowledge(finding_id: str) -> FindingDetailJson:
    """Acknowledge a finding: somebody looks after it."""
    return _add_comment(finding_id, "acknowledge")


@operation(f"{_FINDING}/ignore", method="POST", body=CommentBody)
def ignore(finding_id: str) -> FindingDetailJson:
    """Ignore a finding; `text` is the reason, and is required."""
    return _add_comment(finding_id, "ignore")


@operation(f"{_FINDING}/note", method="POST", body=CommentBody)
def note(finding_id: str) -> FindingDetailJson:
    """Comment on a finding, in `text`."""
    return _add_comment(finding_id, "note")


@operation(f"{_FINDING}/reopen", method="POST", body=CommentBody)
def reopen(finding_id: str) -> FindingDetailJson:
    """Open a finding again that was acknowledged or ignored."""
    return _add_comment(finding_id, "reopen")


def _add_comment(finding_id: str, action: str) -> FindingDetailJson:
    body = _read_body()
    try:
        with writing(f"finding.{action}", finding_id, f"by {body.who[:WHO_LIMIT]}") as connection:
            save_comment(connection, finding_id, action, author=body.who, text=body.text or "", whole_range=body.range)
    except ValueError as error:
        raise FilterError(str(error)) from None
    return get_finding(finding_id)


def _read_body() -> CommentBody:
    """Read who says what, and of how much.

    Raises: FilterError if the body is not an object of what is expected.
    """
    body: Any = request.get_json(force=True, silent=True)
    if not isinstance(body, dict):
        raise FilterError('body: expected a JSON object, {"who": "your name", "text": "what you know"}')
    names = list_names(CommentBody)
    for key, value in body.items():
        if key not in names:
            raise FilterError(f"{str(key)[:40]}: there is no such field; known are {', '.join(names)}")
        if key == "range" and not isinstance(value, bool):
            raise FilterError(f"range: expected true or false, this is {type(value).__name__}")
        if key != "range" and not isinstance(value, str) and not (key == "text" and value is None):
            raise FilterError(f"{key}: expected a text, this is {type(value).__name__}")
    return CommentBody(**{"who": "", **body})
