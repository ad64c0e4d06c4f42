"""The Imports page, with or without JavaScript."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from flask import Blueprint, abort, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from compileboard.app.core.access import describe_missing_scope, get_sender, may, needs
from compileboard.app.core.api import Limit, operation, refuse
from compileboard.app.core.db import get_board_path, get_settings, request_origin
from compileboard.app.core.page import Page
from compileboard.app.core.schema import Schema
from compileboard.app.imports.queue import MAX_KEPT, Import, ImportQueue
from compileboard.app.imports.upload import FORBIDDEN, accept_upload


def describe_no_import(import_id: str) -> str:
    return f"There is no import {import_id[:80]}; how an import ended is known for a day."


blueprint = Blueprint("imports", __name__)
SHOWN = 20


@blueprint.get("/imports")
def index() -> str:
    settings = get_settings()
    uploads = ImportQueue(get_board_path()).list_newest(SHOWN)
    return render_template(
        "imports/index.html",
        uploads=uploads,
        is_live=any(not upload.has_ended for upload in uploads),
        open=may("write") and settings.uploads == "yes",
        no=FORBIDDEN if may("write") else describe_missing_scope(),
    )


@blueprint.post("/imports")
def start() -> Response:
    upload = accept_upload(
        request.environ, request.args, get_settings(), request_origin(), get_sender()
    )
    return redirect(url_for("imports.show", import_id=upload.id), 303)


@blueprint.get("/imports/<import_id>")
def show(import_id: str) -> str:
    upload = ImportQueue(get_board_path()).load(import_id)
    if upload is None:
        abort(404, describe_no_import(import_id))
    return render_template("imports/one.html", upload=upload)


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
    filename: Annotated[str | None, "The log's name, if the body is the file."] = None
    name: Annotated[str | None, "The run's name. Default: the program's file."] = None
    suite: Annotated[str | None, "The run's suite."] = None
    tags: Annotated[str | None, "Tags of the run: `key=value`, with commas between."] = None
    payloads: Annotated[
        bool | None, "Whether to store graphs, code and guards. Default: `yes`."
    ] = None
    redact_source: Annotated[
        bool | None,
        "Whether to leave out the user's code. Default: `no`.",
    ] = None
    again: Annotated[
        bool | None,
        "Whether to import it even if its run was deleted here. Default: `no`.",
    ] = None


@operation("/imports")
def list_imports(page: Limit) -> Page[Import]:
    """List trace logs and benchmark results that were uploaded during the last day, newest
    first.
    """
    return Page(tuple(ImportQueue(get_board_path()).list_newest(min(page.limit, MAX_KEPT))), None)


@operation("/imports/<import_id>")
@needs("read", "ingest")
def get_import(import_id: str) -> Import:
    """Return the state of an import."""
    upload = ImportQueue(get_board_path()).load(import_id)
    return upload if upload is not None else refuse(describe_no_import(import_id))


@operation("/imports", method="POST", status=202, parameters=ImportParameters)
@needs("ingest")
def start_import() -> Import:
    """Upload trace logs or files of benchmark results; they are imported in the background."""
    return accept_upload(
        request.environ, request.args, get_settings(), request_origin(), get_sender()
    )
