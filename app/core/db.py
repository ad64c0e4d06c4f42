"""Database connections of a request: a store to read from and a short-lived writer.

Also the state of publication to ClickHouse, and search indexing in a child process.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from flask import Flask, abort, current_app, g, request

from compileboard.app.core.address import parse_address
from compileboard.app.core.engine import Engine
from compileboard.app.core.newest import RecorderClock, read_clock
from compileboard.app.core.settings import Settings
from compileboard.app.core.store import Store, open_store
from compileboard.collectors.store import connection as connect
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.store.leases import FOLLOW, is_lease_held
from compileboard.collectors.store.search import list_pending
from compileboard.collectors.store.tokens import ActionOrigin, record_action, revoke_token
from compileboard.collectors.store.trash import CannotRestore, restore_run
from compileboard.start import own_command

WAITING_SQL = """
select count(*) + (select count(*) from published_runs where run_id not in (select id
  from runs)) as waiting_count
from runs as r
left join published_runs as p on p.run_id = r.id
where p.run_id is null
  or p.run_pub < r.pub
  or (p.rows_run_pub < r.pub and r.state <> 'running')
"""
STATE_SQL = "select version, passed_us, error, error_us from engine_publications where id = 1"
# Whether ClickHouse has the newest state of a run: its row, its annotations, or its deletion.
SHOWN_SQL = """
select coalesce(
  (
    select coalesce(p.run_pub, -1) >= 0 and p.annotated_us is a.changed_us
    from runs as r
    left join published_runs as p on p.run_id = r.id
    left join run_annotations as a on a.run_id = r.id
    where r.id = :run_id
  ),
  not exists (select 1 from published_runs where run_id = :run_id)
)
"""


@dataclass(frozen=True)
class PublicationState:
    """Progress of publication to ClickHouse.

    Units: `passed_us` (when nothing was last waiting) and `error_us` are since the epoch.
    """

    waiting_count: int  # runs whose newest state is not published
    version: int  # grows with every published row of a run
    passed_us: int | None
    error: str | None
    error_us: int | None


def get_publication_state(connection: sqlite3.Connection) -> PublicationState | None:
    row = connection.execute(STATE_SQL).fetchone()
    if row is None:
        return None
    return PublicationState(connection.execute(WAITING_SQL).fetchone()[0], *row)


def get_publication_error(connection: sqlite3.Connection) -> str | None:
    row = connection.execute(STATE_SQL).fetchone()
    return None if row is None else row["error"]


def is_shown(connection: sqlite3.Connection, run_id: str) -> bool:
    return bool(connection.execute(SHOWN_SQL, {"run_id": run_id}).fetchone()[0])


SHOWN_WITHIN_S = 3.0


def get_settings() -> Settings:
    settings: Settings = current_app.config["COMPILEBOARD"]
    return settings


def is_read_only() -> bool:
    return get_settings().read_only == "yes"


def get_board_path() -> str:
    return parse_address(get_settings().db).board


def get_store() -> Store:
    """Return this request's store. Raises StoreError if the database is missing, newer, older,
    locked or not one.
    """
    if "store" not in g:
        g.store = open_store(get_settings().db)
    store: Store = g.store
    return store


def get_reader() -> sqlite3.Connection:
    return get_store().board


def get_run_reader(run_id: str) -> sqlite3.Connection:
    """Return a reader of a run's data. Raises StoreError as get_store does, or if the run's file is
    damaged or missing.
    """
    return get_store().open_run(run_id)


def renew_reader() -> sqlite3.Connection:
    reader = get_reader()
    reader.execute("rollback")
    reader.execute("begin")
    return reader


def get_engine() -> Engine:
    return get_store().engine


def get_clock() -> RecorderClock:
    return read_clock(get_settings().stale_after_s)


@contextmanager
def writing(action: str, subject: str, detail: str | None = None) -> Iterator[sqlite3.Connection]:
    """Open a writing connection for a block, whose changes are audited. Raises StoreError as
    get_store does.
    """
    get_reader()  # refuses a database that is older or newer
    close_store()
    with closing(connect.open_writer(get_board_path(), create=False)) as connection:
        before_count = connection.total_changes
        yield connection
        has_changed = connection.total_changes > before_count
        if has_changed:
            record_action(connection, action, subject, request_origin(), detail=detail)
        connect.checkpoint(connection)
    if (
        has_changed
        and action.startswith("run.")
        and parse_address(get_settings().db).clickhouse is not None
    ):
        _wait_until_shown(subject)


def _wait_until_shown(run_id: str) -> None:
    path, until_s = get_board_path(), time.monotonic() + SHOWN_WITHIN_S
    with closing(connect.open_reader(path)) as reader:
        while time.monotonic() < until_s and is_lease_held(path, FOLLOW):
            if is_shown(reader, run_id) or get_publication_error(reader) is not None:
                return
            time.sleep(0.05)


def request_origin() -> ActionOrigin:
    channel = "api" if request.path.startswith("/api/") else "page"
    return ActionOrigin(
        channel,
        g.get("actor"),
        address=request.remote_addr,
        user_agent=request.headers.get("User-Agent"),
    )


def close_store(_error: BaseException | None = None) -> None:
    store = g.pop("store", None)
    if store is not None:
        store.close()


def init_app(app: Flask) -> None:
    app.teardown_appcontext(close_store)


def revoke_by_id(token_id: str) -> None:
    """Revoke a token, or abort with 404 if no valid token has that id."""
    with writing("token.revoke", token_id) as connection:
        revoked = revoke_token(connection, token_id)
    if revoked is None:
        abort(404, f"No token in force has the ID {token_id[:80]}.")


def restore_deleted_run(run_id: str) -> None:
    """Restore a deleted run and its place in the search index, or abort with 404 or 409."""
    try:
        with writing("run.restore", run_id) as connection:
            restored = restore_run(connection, run_id)
    except CannotRestore as error:
        abort(409, f"Nothing was restored: {error}.")
    if not restored:
        abort(404, f"There is no run {run_id[:80]} among the deleted ones.")
    start_indexing(get_board_path())


def start_indexing(path: str) -> int:
    """Index pending runs for search in a child process; return how many are pending."""
    with closing(open_reader(path)) as reader:
        pending_count = len(list_pending(reader))
    if pending_count:
        child = subprocess.Popen(
            own_command("compileboard.collectors", "index", "--db", os.path.abspath(path)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        # Runs that it did not finish are indexed at the next start.
        threading.Thread(target=child.wait, name="indexing", daemon=True).start()
    return pending_count
