"""The request's connections: one read-only reader a request, and a short-lived writer. Restores a deleted run."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from flask import Flask, abort, current_app, g, request

from compileboard.app.indexing import start_indexing
from compileboard.app.queries.engine import Engine, SqliteEngine
from compileboard.app.queries.newest import RecorderClock, read_clock
from compileboard.app.settings import Settings
from compileboard.collectors.store import connection as connect
from compileboard.collectors.store.dashboard.audit import ActionOrigin, record_action
from compileboard.collectors.store.dashboard.tokens import revoke_token
from compileboard.collectors.store.dashboard.trash import CannotRestore, restore_run


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


def renew_reader() -> sqlite3.Connection:
    """Return this request's connection as of now: what it has read holds nothing of the database any more.

    Raises: StoreError as get_reader does.
    """
    reader = get_reader()
    reader.execute("rollback")
    reader.execute("begin")
    return reader


def get_engine() -> Engine:
    """Return what holds the tables across runs, over this request's connection.

    Raises: StoreError as get_reader does.
    """
    return SqliteEngine(get_reader())


def get_clock() -> RecorderClock:
    """Return this moment, with the silence after which a run no longer counts as running."""
    return read_clock(get_settings().stale_after_s)


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


def request_origin() -> ActionOrigin:
    """Return who sent this request, as far as app.web.access knows, and where it came from."""
    channel = "api" if request.path.startswith("/api/") else "page"
    return ActionOrigin(
        channel, g.get("actor"), address=request.remote_addr, user_agent=request.headers.get("User-Agent")
    )


def close_reader(_error: BaseException | None = None) -> None:
    """Close this request's connection, if it opened one."""
    reader = g.pop("reader", None)
    if reader is not None:
        reader.close()


def init_app(app: Flask) -> None:
    """Close the reader at the end of each request."""
    app.teardown_appcontext(close_reader)


def revoke_by_id(token_id: str) -> None:
    """Revoke a token; answer 404 where none in force has that id."""
    with writing("token.revoke", token_id) as connection:
        revoked = revoke_token(connection, token_id)
    if revoked is None:
        abort(404, f"No token in force has the ID {token_id[:80]}.")


def restore_deleted_run(run_id: str) -> None:
    """Restore a deleted run and its place in the search index; answer 404 or 409 in words where that cannot be."""
    try:
        with writing("run.restore", run_id) as connection:
            restored = restore_run(connection, run_id)
    except CannotRestore as error:
        abort(409, f"Nothing was restored: {error}.")
    if not restored:
        abort(404, f"There is no run {run_id[:80]} among the deleted ones.")
    start_indexing(get_settings().db)
