"""Imports: send trace logs, see how it goes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flask import request

from compileboard.app.api.answer import Answer, read_limit, refuse
from compileboard.app.api.operation import Operation
from compileboard.app.db import get_settings, request_origin
from compileboard.app.imports.desk import accept
from compileboard.app.imports.shelf import MOST_KEPT, Import, Shelf

_WISHES = ("filename", "name_import", "suite_import", "tags", "payloads", "redact_source", "again")


def import_row(it: Import) -> dict[str, Any]:
    """Write how an import stands, with where that is asked again."""
    return asdict(it) | {"status_url": f"/api/v1/imports/{it.id}"}


def list_imports() -> Answer:
    """List imports."""
    limit = read_limit()
    return Answer([import_row(it) for it in Shelf(get_settings().db).list_newest(min(limit, MOST_KEPT))])


def get_import(import_id: str) -> Answer:
    """Return one import."""
    it = Shelf(get_settings().db).load(import_id)
    if it is None:
        refuse(f"There is no import {import_id[:80]}; how an import ended is known for a day.")
    return Answer(import_row(it))


def start_import() -> Answer:
    """Take an upload."""
    return Answer(import_row(accept(request.environ, request.args, get_settings(), request_origin())))


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
