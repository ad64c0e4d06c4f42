"""Findings: list them, read one, and say what a person does with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import request

from compileboard.app.analysis.finding_rows import finding_detail_row, finding_row
from compileboard.app.api.answer import Answer, give_page, read_cursor, read_limit, refuse
from compileboard.app.api.operation import Operation
from compileboard.app.api.parameters import FINDINGS, PAGE
from compileboard.app.api.schemas_findings import SAY
from compileboard.app.db import get_reader, writing
from compileboard.app.queries import findings as queries
from compileboard.app.queries.finding_filter import read_finding_filter
from compileboard.app.queries.page import FilterError
from compileboard.collectors.store.findings import WHO_LIMIT, say_of_finding


def list_findings() -> Answer:
    """List findings."""
    page = queries.list_findings(get_reader(), read_finding_filter(request.args), read_cursor(), read_limit())
    return give_page(page, finding_row)


def get_finding(finding_id: str) -> Answer:
    """Return one finding."""
    it = queries.get_finding(get_reader(), finding_id)
    if it is None:
        refuse(f"There is no finding {finding_id[:80]}; what was never confirmed goes when later runs do not show it.")
    return Answer(finding_detail_row(it, queries.list_finding_words(get_reader(), it.id)))


def acknowledge(finding_id: str) -> Answer:
    """Say that somebody looks after it."""
    return _say(finding_id, "acknowledge")


def ignore(finding_id: str) -> Answer:
    """Say that it is no matter, and why."""
    return _say(finding_id, "ignore")


def note(finding_id: str) -> Answer:
    """Say something of it."""
    return _say(finding_id, "note")


def reopen(finding_id: str) -> Answer:
    """Open it again."""
    return _say(finding_id, "reopen")


def _say(finding_id: str, action: str) -> Answer:
    said = _read_body()
    try:
        with writing(f"finding.{action}", finding_id, f"by {said['who'][:WHO_LIMIT]}") as connection:
            say_of_finding(connection, finding_id, action, **said)
    except ValueError as error:
        raise FilterError(str(error)) from None
    return get_finding(finding_id)


def _read_body() -> dict[str, Any]:
    """Read who says what, and of how much.

    Raises: FilterError if the body is not an object of what is expected.
    """
    body: Any = request.get_json(force=True, silent=True)
    if not isinstance(body, dict):
        raise FilterError('body: expected a JSON object, {"who": "your name", "text": "what you know"}')
    for key, value in body.items():
        if key not in ("who", "text", "range"):
            raise FilterError(f"{str(key)[:40]}: there is no such field; known are who, text, range")
        if key == "range" and not isinstance(value, bool):
            raise FilterError(f"range: expected true or false, this is {type(value).__name__}")
        if key != "range" and not isinstance(value, str) and not (key == "text" and value is None):
            raise FilterError(f"{key}: expected a text, this is {type(value).__name__}")
    texts = {key: body.get(key) or "" for key in ("who", "text")}
    return texts | {"whole_range": body.get("range", False)}


def _post(view: Callable[..., Answer], summary: str) -> Operation:
    path = f"/findings/<finding_id>/{view.__name__}"
    return Operation(path, view, "FindingDetail", False, summary, method="POST", body=SAY)


OPERATIONS = (
    Operation(
        "/findings",
        list_findings,
        "Finding",
        True,
        "Lasting changes of series, those of the newest runs first.",
        (*FINDINGS, *PAGE),
    ),
    Operation(
        "/findings/<finding_id>", get_finding, "FindingDetail", False, "One finding with what people said of it."
    ),
    _post(acknowledge, "Says that somebody looks after a finding."),
    _post(ignore, "Says that a finding is no matter; `text` says why, and is required."),
    _post(note, "Says something of a finding, in `text`."),
    _post(reopen, "Opens a finding again that was acknowledged or ignored."),
)
