"""Schemas of deleted runs, and of who changed what."""

from __future__ import annotations

from compileboard.app.api.schema import Schema, count, maybe, record, text, time_us, whole, word

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
