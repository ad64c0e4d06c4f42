"""Schemas of imports, and of what an imported run has beside its events."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flask import request

from compileboard.app.api.answers import Answer, Operation, read_limit, refuse
from compileboard.app.api.schema import Schema, count, flag, mapping, maybe, record, text, time_us, whole, word
from compileboard.app.db import get_settings, request_origin
from compileboard.app.imports.queue import MOST_KEPT, STATES, Import, ImportQueue
from compileboard.app.imports.upload import accept_upload
from compileboard.collectors.contract.rejects import KINDS

IMPORT = record(
    "One import of logs that were sent.",
    id=text("The import's id: a random token."),
    state=word("How it stands.", STATES),
    name=text("What was sent: a file, a folder, or the first of several files."),
    created_us=time_us("When sending began."),
    updated_us=time_us("When it last went on."),
    file_count=count("Files that were sent."),
    size_bytes=count("Their size as it was sent."),
    read_bytes=count("Bytes of logs read so far, unpacked."),
    total_bytes=maybe(count("Bytes of logs there are; null for compressed ones, which only reading tells.")),
    log_count=count("Logs that were read."),
    record_count=count("New records read so far."),
    rejects=mapping(count("Records."), "What could not be read, by kind; see `rejects` of a run for the words."),
    run_id=maybe(text("The run that the logs became.")),
    message=text("What went wrong and what to do, or what else to know of it; empty where there is nothing."),
    status_url=text("Where to ask again how it stands."),
)
REJECT = record(
    "What of a run's logs could not be read, for one reason.",
    kind=word("Reason.", KINDS),
    count=count("How often."),
    first_line=maybe(whole("The line it happened at first, in the first of the logs that have it.")),
)
LOG = record(
    "One trace log that was imported.",
    name=text("Its name, with the archive it came from."),
    size_bytes=maybe(count("Its size as far as it was read, unpacked.")),
    line_count=count("Lines."),
    payloads=word("Whether its texts were kept.", ("kept", "left_out")),
    redacted=flag("Whether the user's code was left out."),
)

_FILES: Schema = {"type": "array", "items": {"type": "string", "format": "binary"}}
UPLOAD: Schema = {
    "required": True,
    "description": "One log, several (they become one run) or an archive, with the parameters as fields; or one file.",
    "content": {
        "multipart/form-data": {"schema": {"type": "object", "required": ["files"], "properties": {"files": _FILES}}},
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
    },
}

SCHEMAS: dict[str, Schema] = {"Import": IMPORT}


_WISHES = ("filename", "name_import", "suite_import", "tags", "payloads", "redact_source", "again")


def import_row(it: Import) -> dict[str, Any]:
    """Write how an import stands, with where that is asked again."""
    return asdict(it) | {"status_url": f"/api/v1/imports/{it.id}"}


def list_imports() -> Answer:
    """List imports."""
    limit = read_limit()
    return Answer([import_row(it) for it in ImportQueue(get_settings().db).list_newest(min(limit, MOST_KEPT))])


def get_import(import_id: str) -> Answer:
    """Return one import."""
    it = ImportQueue(get_settings().db).load(import_id)
    if it is None:
        refuse(f"There is no import {import_id[:80]}; how an import ended is known for a day.")
    return Answer(import_row(it))


def start_import() -> Answer:
    """Take an upload."""
    return Answer(import_row(accept_upload(request.environ, request.args, get_settings(), request_origin())))


OPERATIONS = (
    Operation(
        "/imports",
        list_imports,
        "Import",
        True,
        "Trace logs and benchmark results that were sent to this dashboard during the last day, newest first.",
        ("limit",),
    ),
    Operation("/imports/<import_id>", get_import, "Import", False, "How an import stands."),
    Operation(
        "/imports",
        start_import,
        "Import",
        False,
        "Sends trace logs or files of benchmark results; they are imported in the background.",
        _WISHES,
        method="POST",
        status=202,
    ),
)
