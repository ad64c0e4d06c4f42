"""Schemas of findings."""

from __future__ import annotations

from compileboard.app.api.schema import Schema, count, decimal, extend, flag, maybe, record, rows, text, time_us, word
from compileboard.app.queries.findings import DIRECTIONS, HANDLINGS, KINDS, STATES, SUBJECTS
from compileboard.collectors.store.findings import ACTIONS, TEXT_LIMIT, WHO_LIMIT

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
    environment=rows(_OPEN, "What of GPU, driver, torch and triton differs: `word`, `before`, `now`."),
    commits=maybe(
        _OPEN
        | {"description": "The commits after the one, up to the other: `known`, `count`, and `listed` with authors."}
    ),
    causes=rows(
        _OPEN,
        "What appeared in the same range, the likeliest first: `kind`, `word`, `label`, `before`, `after`, `break_id`, "
        "`cause_id`.",
    ),
    points=maybe(_OPEN | {"description": "How many runs each level has: `before`, `after`."}),
)
FINDING_DETAIL = extend(
    FINDING,
    "One finding with what people said of it.",
    words=rows(
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
