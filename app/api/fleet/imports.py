"""Imports of uploaded logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from flask import request

from compileboard.app.api.answers import Limit, operation, refuse
from compileboard.app.db import get_board_path, get_settings, request_origin
from compileboard.app.imports.queue import Import
from compileboard.app.imports.upload import accept_upload
from compileboard.app.queries.page import Page
from compileboard.app.schema import Schema
from compileboard.app.screens.dashboard.imports import (
    build_import,
    build_imports,
    describe_no_import,
)
from compileboard.app.web.access import get_sender, needs

_FILES: Schema = {"type": "array", "items": {"type": "string", "format": "binary"}}
UPLOAD: Schema = {
    "required": True,
    "description": (
        "One log, several (they become one run) or an archive, with the parameters as fields; "
        "or one file."
    ),
    "content": {
        "multipart/form-data": {
            "schema": {"type": "object", "required": ["files"], "properties": {"files": _FILES}}
        },
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
    },
}


@dataclass(frozen=True)
class ImportParameters:
    filename: Annotated[
        str | None, "What the log is called, where the body is the file itself."
    ] = None
    name: Annotated[str | None, "The run's name; the program's file where it is not given."] = None
    suite: Annotated[str | None, "What the run belongs to."] = None
    tags: Annotated[str | None, "Tags of the run: `key=value`, with commas between."] = None
    payloads: Annotated[
        bool | None, "Whether graphs, code and guards are kept; `yes` where it is not given."
    ] = None
    redact_source: Annotated[
        bool | None,
        "Whether every line of the user's code is left out; `no` where it is not given.",
    ] = None
    again: Annotated[
        bool | None,
        "Whether it is imported even if its run was deleted here; `no` where it is not given.",
    ] = None


@operation("/imports")
def list_imports(page: Limit) -> Page[Import]:
    """List trace logs and benchmark results that were uploaded during the last day, newest
    first.
    """
    return Page(tuple(build_imports(get_board_path(), page.limit).imports), None)


@operation("/imports/<import_id>")
@needs("read", "ingest")
def get_import(import_id: str) -> Import:
    """Return the state of an import."""
    upload = build_import(get_board_path(), import_id)
    return upload if upload is not None else refuse(describe_no_import(import_id))


@operation("/imports", method="POST", status=202, parameters=ImportParameters)
@needs("ingest")
def start_import() -> Import:
    """Upload trace logs or files of benchmark results; they are imported in the background."""
    return accept_upload(
        request.environ, request.args, get_settings(), request_origin(), get_sender()
    )
