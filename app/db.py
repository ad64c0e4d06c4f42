"""The request's connections: one read-only reader a request, opened when first asked for, and a short-lived writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from flask import Flask, current_app, g, request

from compileboard.app.settings import Settings
from compileboard.collectors.store import connect
from compileboard.collectors.store.audit import Origin, record_action


def get_settings() -> Settings:
    """Return the running application's settings."""
    settings: Settings = current_app.config["COMPILEBOARD"]
    return settings


def get_reader() -> sqlite3.Connection:
    """Return this request's read-only connection.

    Raises: StoreError if the database is missing, newer, older, locked or not one.
    """
    if "reader" not in g:
        g.reader = connect.open_reader(get_settings().db)
        g.reader.execute("begin")  # one state of the database for all that a page says; nothing is held before it reads
    reader: sqlite3.Connection = g.reader
    return reader


@contextmanager
def writing(action: str, subject: str, detail: str | None = None) -> Iterator[sqlite3.Connection]:
    """Open a writing connection for as long as a block runs; what it changes is kept as done by the request's sender.

    Raises: StoreError as get_reader does.
    """
    get_reader()  # refuses a database that is older or newer
    close_reader()
    with closing(connect.open_writer(get_settings().db, create=False)) as connection:
        before_count = connection.total_changes
        yield connection
        if connection.total_changes > before_count:
            record_action(connection, action, subject, request_origin(), detail=detail)
        connect.checkpoint(connection)


def request_origin() -> Origin:
    """Return where this request came from."""
    channel = "api" if request.path.startswith("/api/") else "page"
    return Origin(channel, address=request.remote_addr, user_agent=request.headers.get("User-Agent"))


def close_reader(_error: BaseException | None = None) -> None:
    """Close this request's connection, if it opened one."""
    reader = g.pop("reader", None)
    if reader is not None:
        reader.close()


def init_app(app: Flask) -> None:
    """Close the reader at the end of each request."""
    app.teardown_appcontext(close_reader)
