"""Health checks: /healthz tests the database, /readyz the whole server for load balancers."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from flask import Blueprint, Response, jsonify

from compileboard.app.benchmarks.series_queries import get_newest_pub
from compileboard.app.clickhouse.client import EngineUnavailable
from compileboard.app.clickhouse.run_files import count_lost_files
from compileboard.app.core.access import open_to_all
from compileboard.app.core.address import parse_address
from compileboard.app.core.db import get_board_path, get_engine, get_reader, get_settings
from compileboard.app.core.format import format_bytes, format_duration, format_plural
from compileboard.app.core.resources import __version__
from compileboard.app.incidents.queries import get_detection, get_publications
from compileboard.collectors.store.connection import (
    StoreBusy,
    StoreError,
    StoreFull,
    StoreMissing,
    StoreNeedsMigration,
    StoreTooNew,
    explain,
    measure_room,
    open_writer,
)
from compileboard.collectors.store.leases import FOLLOW, is_lease_held, read_renewed

STREAMS_SQL = """
select
  coalesce(sum(ended_us is null), 0) as open_stream_count,
  coalesce(sum(ended_us is not null), 0) as ended_stream_count,
  coalesce(sum(stored_bytes), 0) as stream_bytes,
  coalesce(sum(event_count), 0) as stream_event_count,
  coalesce(sum(lost_count), 0) as lost_event_count
from streams
"""
RUN_COUNTS_SQL = """
select
  (select count(*) from runs) as run_count,
  (select count(*) from runs where state = 'running' and heartbeat_us >= :alive_since_us)
    as running_count,
  (select count(*) from pruned_runs) as pruned_count
"""


@dataclass(frozen=True)
class Health:
    schema_version: int
    run_count: int


@dataclass(frozen=True)
class StoreFigures:
    used_bytes: int
    free_bytes: int
    run_count: int
    running_count: int
    pruned_count: int
    pending_count: int  # publications that detection has not processed
    open_stream_count: int
    ended_stream_count: int
    stream_bytes: int
    stream_event_count: int
    lost_event_count: int


def get_health(connection: sqlite3.Connection) -> Health:
    schema_version = connection.execute("pragma user_version").fetchone()[0]
    return Health(schema_version, connection.execute("select count(*) from runs").fetchone()[0])


def get_figures(connection: sqlite3.Connection, alive_since_us: int) -> StoreFigures:
    page_count, free_count, page_bytes = (
        connection.execute(f"pragma {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    runs = connection.execute(RUN_COUNTS_SQL, {"alive_since_us": alive_since_us}).fetchone()
    streams = connection.execute(STREAMS_SQL).fetchone()
    detection, newest = get_detection(connection), get_publications(connection)
    seen = {} if detection is None else detection.seen
    seen_pub = max(int(seen.get(name, 0)) for name in ("pub", "removed_pub"))
    return StoreFigures(
        used_bytes=(page_count - free_count) * page_bytes,
        free_bytes=free_count * page_bytes,
        pending_count=max(0, newest.pub - seen_pub),
        **dict(runs),
        **dict(streams),
    )


MIN_FREE_BYTES = 256 << 20
WRITE_TIMEOUT_MS = 1000
SLOWEST_PASS_S = 900.0  # a first pass over a large history takes minutes
OK = "ok"
# Public: contains no path and no text from the database.
_REASONS: tuple[tuple[type[StoreError], str], ...] = (
    (StoreMissing, "missing"),
    (StoreNeedsMigration, "older than this server: run compileboard migrate"),
    (StoreTooNew, "newer than this server: upgrade it"),
    (StoreBusy, "locked by another program"),
    (StoreFull, "the disk is full"),
    (EngineUnavailable, "does not answer as it should: see the log of the server"),
)

blueprint = Blueprint("health", __name__)


@blueprint.get("/healthz")
@open_to_all
def index() -> Response:
    health = get_health(get_reader())
    return jsonify(
        {
            "ok": True,
            "version": __version__,
            "schema": health.schema_version,
            "runs": health.run_count,
        }
    )


@blueprint.get("/readyz")
@open_to_all
def ready() -> Response:
    settings = get_settings()
    path = get_board_path()
    checks = {"read": _check_part(lambda: get_health(get_reader()))}
    if settings.read_only == "no":
        checks["write"] = _check_write(path)
        checks["disk"] = _check_disk(path)
        if settings.follow == "yes":
            checks["follower"] = _check_follower(path)
    if parse_address(settings.db).clickhouse is not None:
        checks["clickhouse"] = _check_part(lambda: get_newest_pub(get_engine()))
    is_ready = all(state == OK for state in checks.values())
    answer: dict[str, object] = {"ready": is_ready, "checks": checks}
    lost_count = _count_lost_files() if checks["read"] == OK else 0
    if lost_count:  # other runs are readable, so load balancers should keep this server
        lost = (
            f"{format_plural(lost_count, 'sealed run')} without a file: compileboard verify "
            "names them"
        )
        answer["warnings"] = {"run_files": lost}
    response = jsonify(answer)
    response.status_code = 200 if is_ready else 503
    return response


def _count_lost_files() -> int:
    try:
        return count_lost_files(get_reader())
    except (StoreError, sqlite3.Error):
        return 0


def _check_part(read: Callable[[], object]) -> str:
    try:
        read()
    except (StoreError, sqlite3.Error, UnicodeDecodeError) as error:
        return _describe(error)
    return OK


def _check_write(path: str) -> str:
    try:
        with closing(open_writer(path, busy_timeout_ms=WRITE_TIMEOUT_MS, create=False)) as writer:
            writer.execute("begin immediate")
            writer.execute("rollback")
    except (StoreError, sqlite3.Error) as error:
        return _describe(error)
    return OK


def _check_disk(path: str) -> str:
    room_bytes = measure_room(path)
    if room_bytes >= MIN_FREE_BYTES:
        return OK
    return f"{format_bytes(int(room_bytes))} are free; expected {format_bytes(MIN_FREE_BYTES)}"


def _check_follower(path: str) -> str:
    renewed_s = read_renewed(path, FOLLOW)
    if renewed_s is None or not is_lease_held(path, FOLLOW):
        return (
            "no process updates incidents; its server starts one within 10 s, or compileboard "
            "follow"
        )
    silent_s = time.time() - renewed_s
    if silent_s > SLOWEST_PASS_S:
        return f"incidents were last looked at {format_duration(silent_s * 1e6)} ago"
    return OK


def _describe(error: Exception) -> str:
    explained = (
        explain(error, "") if isinstance(error, sqlite3.Error | UnicodeDecodeError) else error
    )
    return next(
        (reason for kind, reason in _REASONS if isinstance(explained, kind)),
        "cannot be used: see the log",
    )
