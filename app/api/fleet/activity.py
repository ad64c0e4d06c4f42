"""Schemas of deleted runs, and of who changed what."""

from __future__ import annotations

from flask import request

from compileboard.app.analysis import rows
from compileboard.app.api.answers import Answer, Operation, build_page_answer, find_run, read_cursor, read_limit
from compileboard.app.api.parameters import PAGE
from compileboard.app.api.run.run import shown_state
from compileboard.app.api.schema import Schema, count, maybe, record, text, time_us, whole, word
from compileboard.app.db import get_reader, restore_deleted_run
from compileboard.app.queries.fleet import activity
from compileboard.app.queries.fleet.runs import list_tags

CHANNELS = ("page", "api", "command", "server")
DELETED_RUN = record(
    "A deleted run that can be put back.",
    run_id=text("The run's id."),
    name=text("Its title or name."),
    suite=maybe(text("Its suite.")),
    started_us=time_us("When it started."),
    deleted_us=time_us("When it was deleted."),
    expires_us=time_us("When it goes for good."),
    trash_bytes=count("What its rows take until then, beside the texts in the database."),
)
AUDIT_ENTRY = record(
    "One change that somebody made.",
    id=whole("Its number."),
    time_us=time_us("When."),
    action=text("What was done: `run.delete`, `run.restore`, `run.annotate`, `finding.note`, `import.done` …"),
    subject=text("The id of what was changed."),
    detail=maybe(text("More of it.")),
    channel=word("By which way.", CHANNELS),
    actor=maybe(text("Of a command: user@host.")),
    address=maybe(text("Of a request: the client's address.")),
    user_agent=maybe(text("Of a request: the client's program.")),
)
SCHEMAS: dict[str, Schema] = {"DeletedRun": DELETED_RUN, "AuditEntry": AUDIT_ENTRY}


def list_deleted_runs() -> Answer:
    """List deleted runs that can be put back."""
    return build_page_answer(activity.list_deleted_runs(get_reader(), read_cursor(), read_limit()), rows.plain_row)


def list_audit() -> Answer:
    """List who changed what."""
    subject = request.args.get("subject") or None
    return build_page_answer(activity.list_audit(get_reader(), read_cursor(), read_limit(), subject), rows.plain_row)


def restore(run_id: str) -> Answer:
    """Put a deleted run back."""
    restore_deleted_run(run_id)
    run = find_run(run_id).run
    return Answer(rows.run_row(run, list_tags(get_reader(), [run_id])[run_id]) | {"shown_state": shown_state(run)})


OPERATIONS = (
    Operation("/deleted_runs", list_deleted_runs, "DeletedRun", True, "Deleted runs that can be put back.", PAGE),
    Operation(
        "/deleted_runs/<run_id>/restore",
        restore,
        "Run",
        False,
        "Puts a deleted run back, with all that belongs to it.",
        method="POST",
        body={},
    ),
    Operation("/audit", list_audit, "AuditEntry", True, "Who changed what, and from where.", ("subject_audit", *PAGE)),
)
