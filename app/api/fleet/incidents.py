"""Schemas of findings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import request

from compileboard.app.analysis.incidents.messages import finding_detail_row, finding_row
from compileboard.app.api.answers import Answer, Operation, build_page_answer, read_cursor, read_limit, refuse
from compileboard.app.api.parameters import FINDINGS, PAGE
from compileboard.app.api.schema import (
    Schema,
    array_of,
    count,
    decimal,
    extend,
    flag,
    maybe,
    record,
    text,
    time_us,
    word,
)
from compileboard.app.db import get_reader, writing
from compileboard.app.queries.fleet import incidents as queries
from compileboard.app.queries.fleet.incidents import DIRECTIONS, HANDLINGS, KINDS, STATES, SUBJECTS, read_finding_filter
from compileboard.app.queries.page import FilterError
from compileboard.collectors.store.dashboard.series_changes import ACTIONS, TEXT_LIMIT, WHO_LIMIT, save_comment

_OPEN: Schema = {"type": "object"}  # detection's own JSON; it may learn to say more
_SIDE = _OPEN | {"description": "`run_id`, `name`, `started_us`, `commit`, `subject`, `torch`; null where not known."}
FINDING = record(
    "A lasting change of one series. Of the series, an empty text or a 0 is what was not said.",
    id=text("Its id: it stays while more runs say it better."),
    kind=word("How it changed: at once, little by little, or no longer measured.", KINDS),
    direction=word("Which way.", DIRECTIONS),
    state=word("What detection thinks of it.", STATES),
    handling=word("What people made of it.", HANDLINGS),
    subject=word("What the series is of: a model, a suite, or the observed runs of one name.", SUBJECTS),
    suite=text("The suite."),
    model=text("The model, or the name of the runs."),
    mode=text("`inference` or `training`."),
    dtype=text("Its dtype."),
    device=text("`cpu` or `cuda`."),
    hardware=text("The GPU's model, or the processor's."),
    backend=text("The backend with its config label."),
    dynamic=flag("Whether shapes were dynamic."),
    batch_size=count("The batch size."),
    world_size=count("Ranks."),
    branch=text("The branch."),
    metric=text("The metric's name."),
    before_value=maybe(decimal("The level before.")),
    after_value=maybe(decimal("The level after; null where it is no longer measured.")),
    relative=maybe(decimal("(after − before) ÷ |before|; null where before is 0.")),
    p_value=maybe(decimal("How often noise makes such a change; null where it is no longer measured.")),
    before_run_id=maybe(text("The newest run surely before.")),
    first_run_id=text("The first run after."),
    low_run_id=maybe(text("The earliest run that may be the first after.")),
    high_run_id=maybe(text("The latest.")),
    recovered_run_id=maybe(text("The first run back at the level before.")),
    first_us=time_us("When the first run after started."),
    found_us=time_us("When it was first found."),
    confirmed_us=maybe(time_us("When the run started that confirmed it.")),
    noticed_us=maybe(time_us("When that was found out.")),
    changed_us=time_us("When detection last wrote it."),
    sentence=text("What it is, in one line."),
    measured_as=text("As what it was measured, in words."),
    range=text("Between which runs or commits it came, in words."),
    confidence=text("How sure it is, in words."),
    recovered=flag("Whether the level before came back."),
    before=maybe(_SIDE),
    after=maybe(_SIDE),
    environment=array_of(_OPEN, "What of GPU, driver, torch and triton differs: `word`, `before`, `now`."),
    commits=maybe(
        _OPEN
        | {"description": "The commits after the one, up to the other: `known`, `count`, and `listed` with authors."}
    ),
    causes=array_of(
        _OPEN,
        "What appeared in the same range, the likeliest first: `kind`, `word`, `label`, `before`, `after`, `break_id`, "
        "`cause_id`.",
    ),
    points=maybe(_OPEN | {"description": "How many runs each level has: `before`, `after`."}),
)
FINDING_DETAIL = extend(
    FINDING,
    "One finding with what people said of it.",
    words=array_of(
        record(
            "What one person did with it, or said of it.",
            action=word("What was done.", ACTIONS),
            who=text("The person's name, as given."),
            text=maybe(text("What was said.")),
            time_us=time_us("When."),
        ),
        "The oldest first.",
    ),
)
SAY: Schema = {
    "type": "object",
    "description": "Who says what.",
    "properties": {
        "who": text("The name that others know you by.", minLength=1, maxLength=WHO_LIMIT),
        "text": maybe(text("What you know: required to ignore, and for a note.", maxLength=TEXT_LIMIT)),
        "range": flag("The same for every finding that came between the same two runs."),
    },
    "required": ["who"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, Schema] = {"Finding": FINDING, "FindingDetail": FINDING_DETAIL}


def list_findings() -> Answer:
    """List findings."""
    page = queries.list_findings(get_reader(), read_finding_filter(request.args), read_cursor(), read_limit())
    return build_page_answer(page, finding_row)


def get_finding(finding_id: str) -> Answer:
    """Return one finding."""
    it = queries.get_finding(get_reader(), finding_id)
    if it is None:
        refuse(f"There is no finding {finding_id[:80]}; what was never confirmed goes when later runs do not show it.")
    return Answer(finding_detail_row(it, queries.list_finding_words(get_reader(), it.id)))


def acknowledge(finding_id: str) -> Answer:
    """Say that somebody looks after it."""
    return _add_comment(finding_id, "acknowledge")


def ignore(finding_id: str) -> Answer:
    """Say that it is no matter, and why."""
    return _add_comment(finding_id, "ignore")


def note(finding_id: str) -> Answer:
    """Say something of it."""
    return _add_comment(finding_id, "note")


def reopen(finding_id: str) -> Answer:
    """Open it again."""
    return _add_comment(finding_id, "reopen")


def _add_comment(finding_id: str, action: str) -> Answer:
    said = _read_body()
    try:
        with writing(f"finding.{action}", finding_id, f"by {said['who'][:WHO_LIMIT]}") as connection:
            save_comment(connection, finding_id, action, **said)
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
