"""The request's connections: one read-only reader a request, opened when first asked for, and a short-lived writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from flask import Flask, current_app, g

from app.settings import Settings
from collectors.store import connect


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
def writing() -> Iterator[sqlite3.Connection]:
    """Open a writing connection for as long as a block runs.

    Raises: StoreError as get_reader does.
    """
    get_reader()  # refuses a database that is missing, older or newer before open_writer could make one
    close_reader()
    with closing(connect.open_writer(get_settings().db)) as connection:
        yield connection
        connect.checkpoint(connection)


def close_reader(_error: BaseException | None = None) -> None:
    """Close this request's connection, if it opened one."""
    reader = g.pop("reader", None)
    if reader is not None:
        reader.close()


def init_app(app: Flask) -> None:
    """Close the reader at the end of each request."""
    app.teardown_appcontext(close_reader)
