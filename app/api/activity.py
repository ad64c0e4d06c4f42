"""Deleted runs that can be put back, and who changed what."""

from __future__ import annotations

from flask import request

from compileboard.app.analysis import rows
from compileboard.app.api.answer import Answer, find_run, give_page, read_cursor, read_limit
from compileboard.app.api.operation import Operation
from compileboard.app.api.parameters import PAGE
from compileboard.app.api.runs import shown_state
from compileboard.app.db import get_reader
from compileboard.app.queries import audit
from compileboard.app.queries.runs import list_tags
from compileboard.app.restoring import restore_deleted_run


def list_deleted_runs() -> Answer:
    """List deleted runs that can be put back."""
    return give_page(audit.list_deleted_runs(get_reader(), read_cursor(), read_limit()), rows.plain_row)


def list_audit() -> Answer:
    """List who changed what."""
    subject = request.args.get("subject") or None
    return give_page(audit.list_audit(get_reader(), read_cursor(), read_limit(), subject), rows.plain_row)


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
