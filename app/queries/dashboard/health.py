"""The state of a store: whether it can be read, its size, and its processes' progress."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from compileboard.app.queries.dashboard.incidents import get_detection, get_publications

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
  (select count(*) from runs where state = 'running' and heartbeat_us >= :alive_since_us) as running_count,
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
    pending_count: int  # commits to runs that detection has not looked at
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
