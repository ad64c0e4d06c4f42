"""Imports of logs that were sent."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

from flask import request

from compileboard.app.api.answers import Limit, operation, refuse
from compileboard.app.db import get_settings, request_origin
from compileboard.app.imports.queue import MOST_KEPT, STATES, Import, ImportQueue
from compileboard.app.imports.upload import accept_upload
from compileboard.app.queries.fields import Count, TimeUs
from compileboard.app.queries.page import Page
from compileboard.app.schema import Schema, one_of

_FILES: Schema = {"type": "array", "items": {"type": "string", "format": "binary"}}
UPLOAD: Schema = {
    "required": True,
    "description": "One log, several (they become one run) or an archive, with the parameters as fields; or one file.",
    "content": {
        "multipart/form-data": {"schema": {"type": "object", "required": ["files"], "properties": {"files": _FILES}}},
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
    },
}


@dataclass(frozen=True)
class ImportJson:
    """One import of logs that were sent."""

    id: Annotated[str, "The import's id: a random token."]
    state: Annotated[str, one_of(STATES), "How it stands."]
    name: Annotated[str, "What was sent: a file, a folder, or the first of several files."]
    created_us: Annotated[TimeUs, "When sending began."]
    updated_us: Annotated[TimeUs, "When it last went on."]
    file_count: Annotated[Count, "Files that were sent."]
    size_bytes: Annotated[Count, "Their size as it was sent."]
    read_bytes: Annotated[Count, "Bytes of logs read so far, unpacked."]
    total_bytes: Annotated[Count | None, "Bytes of logs there are; null for compressed ones, which only reading tells."]
    log_count: Annotated[Count, "Logs that were read."]
    record_count: Annotated[Count, "New records read so far."]
    rejects: Annotated[dict[str, Count], "What could not be read, by kind; see `rejects` of a run for the words."]
    run_id: Annotated[str | None, "The run that the logs became."]
    message: Annotated[str, "What went wrong and what to do, or what else to know of it; empty where there is nothing."]
    status_url: Annotated[str, "Where to ask again how it stands."]


@dataclass(frozen=True)
class ImportParameters:
    """What an upload may say of itself in its address, or in fields of its form: `accept_upload` reads both."""

    filename: Annotated[str | None, "What the log is called, where the body is the file itself."] = None
    name: Annotated[str | None, "The run's name; the program's file where it is not given."] = None
    suite: Annotated[str | None, "What the run belongs to."] = None
    tags: Annotated[str | None, "Tags of the run: `key=value`, with commas between."] = None
    payloads: Annotated[bool | None, "Whether graphs, code and guards are kept; `yes` where it is not given."] = None
    redact_source: Annotated[
        bool | None, "Whether every line of the user's code is left out; `no` where it is not given."
    ] = None
    again: Annotated[
        bool | None,
        "Whether it is imported even if its run was deleted here; `no` where it is not given.",
    ] = None


def import_row(found: Import) -> ImportJson:
    """Write how an import stands, with where that is asked again."""
    return ImportJson(**asdict(found), status_url=f"/api/v1/imports/{found.id}")


@operation("/imports")
def list_imports(page: Limit) -> Page[ImportJson]:
    """List trace logs and benchmark results that were sent to this dashboard during the last day, newest first."""
    found = ImportQueue(get_settings().db).list_newest(min(page.limit, MOST_KEPT))
    return Page(tuple(import_row(one) for one in found), None)


@operation("/imports/<import_id>")
def get_import(import_id: str) -> ImportJson:
    """Return how an import stands."""
    found = ImportQueue(get_settings().db).load(import_id)
    if found is None:
        refuse(f"There is no import {import_id[:80]}; how an import ended is known for a day.")
    return import_row(found)


@operation("/imports", method="POST", status=202, parameters=ImportParameters)
def start_import() -> ImportJson:
    """Send trace logs or files of benchmark results; they are imported in the background."""
    return import_row(accept_upload(request.environ, request.args, get_settings(), request_origin()))
