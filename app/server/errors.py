"""Error responses: JSON for programs, a page for browsers. They do not use the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from flask import Flask, Response, jsonify, make_response, render_template, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, TooManyRequests

from compileboard.app.clickhouse.client import EngineUnavailable
from compileboard.app.core.db import get_board_path
from compileboard.app.core.page import FilterError
from compileboard.app.imports.queue import UploadRejected
from compileboard.app.push.receive import PushRefused
from compileboard.collectors.store.connection import (
    NotAStore,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreNotReadable,
    StoreReadOnly,
    StoreRefused,
    explain,
)
from compileboard.collectors.store.sealed_files import RunFileUnavailable

RETRY_S = 5
TITLES = {
    400: "Bad request",
    401: "Not logged in",
    403: "Refused",
    404: "Not found",
    405: "Not possible here",
    408: "Too slow",
    409: "Not now",
    413: "Too large",
    415: "Not an upload",
    429: "Busy",
    500: "Something is broken",
    503: "The database is not available",
    507: "No room",
}


def wants_json() -> bool:
    return request.path.startswith("/api/") or request.path in (
        "/api",
        "/healthz",
        "/readyz",
        "/metrics",
    )


def render_error(
    status: int,
    message: str,
    fields: Mapping[str, Any] | None = None,
    title: str | None = None,
) -> Response:
    if wants_json():
        body = {
            "ok": False,
            "error": message,
            "errors": [message],
            "status": status,
            **(fields or {}),
        }
        response: Response = jsonify(body)
    else:
        title = title or TITLES.get(status, "That did not work")
        text = render_template("error.html", status=status, title=title, message=message)
        response = make_response(text)
    response.status_code = status
    if status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="CompileBoard"'
    return response


def handle_http(error: HTTPException) -> Response:
    status = error.code or 500
    message = error.description or error.name
    if status == 404 and (error.response is None and message.startswith("The requested URL")):
        message = f"There is no page at {request.path}."
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        message = (
            f"{request.method} is not possible at {request.path}; it takes "
            f"{', '.join(sorted(error.valid_methods))}."
        )
    if status == 500:
        message = (
            "The server failed while making this page. Its log has the details; the recorded "
            "data is untouched."
        )
    response = render_error(status, message)
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        response.headers["Allow"] = ", ".join(error.valid_methods)
    if isinstance(error, TooManyRequests) and error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def handle_store(error: StoreError) -> Response:
    if isinstance(error, RunFileUnavailable):
        return render_error(503, str(error), title="This run's file is not available")
    is_broken = isinstance(error, (NotAStore, StoreNotReadable)) and not isinstance(
        error, StoreReadOnly
    )
    response = render_error(
        500 if is_broken else 507 if isinstance(error, StoreFull) else 503, str(error)
    )
    if isinstance(error, (StoreBusy, StoreFull, EngineUnavailable)):
        response.headers["Retry-After"] = str(RETRY_S)
    return response


def handle_sqlite(error: sqlite3.Error) -> Response:
    """Handle an SQLite error after opening. Errors that the user cannot fix are reported as
    internal.
    """
    explained = explain(error, get_board_path())
    if isinstance(explained, StoreRefused):
        raise error
    return handle_store(explained)


def handle_undecodable(error: UnicodeDecodeError) -> Response:
    """Handle a schema so damaged that sqlite3 cannot decode its error message."""
    if not error.object.startswith(b"malformed database schema"):
        raise error
    return handle_store(explain(error, get_board_path()))


def handle_filter(error: FilterError) -> Response:
    return render_error(400, str(error))


def handle_refusal(refused: UploadRejected) -> Response:
    fields = refused.fields if isinstance(refused, PushRefused) else {}
    response = render_error(refused.status, refused.message, fields=fields)
    if isinstance(refused, PushRefused):
        response.headers.update(refused.headers)
    if refused.retry_after_s is not None:
        response.headers["Retry-After"] = str(refused.retry_after_s)
    return response


def init_app(app: Flask) -> None:
    app.register_error_handler(HTTPException, handle_http)
    app.register_error_handler(StoreError, handle_store)
    app.register_error_handler(sqlite3.Error, handle_sqlite)
    app.register_error_handler(UnicodeDecodeError, handle_undecodable)
    app.register_error_handler(FilterError, handle_filter)
    app.register_error_handler(UploadRejected, handle_refusal)
