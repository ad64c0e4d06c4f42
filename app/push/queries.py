"""Queries of pushed streams."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Annotated

from compileboard.app.core.fields import RunId, StartTime
from compileboard.app.core.page import Page, decode_cursor, make_page
from compileboard.app.core.rows import make_row

STREAMS_SQL = """
select
  s.run_id, s.stream_id, coalesce(a.title, r.git_subject, r.name, d.name) as name, r.host,
  r.id is not null as is_here, t.name as token, s.stored_bytes, s.event_count, s.lost_count,
  s.dropped_text_count,
  s.version, s.started_us, s.updated_us, s.ended_us,
  exists (
    select 1 from streams as o
    where o.run_id = s.run_id and o.stream_id <> s.stream_id and o.started_us >= s.updated_us
  ) as is_replaced
from streams as s
left join runs as r on r.id = s.run_id
left join run_annotations as a on a.run_id = s.run_id
left join removed_runs as d on d.run_id = s.run_id
left join tokens as t on t.id = s.token_id
where :updated_us is null or (s.updated_us, s.run_id, s.stream_id) < (:updated_us, :run_id,
  :stream_id)
order by s.updated_us desc, s.run_id desc, s.stream_id desc
limit :limit
"""


@dataclass(frozen=True)
class StreamRow:
    """The stream of one recorder for one run."""

    tables = ("streams", "runs")

    run_id: RunId
    stream_id: str
    name: Annotated[str | None, "The run's name."]
    host: Annotated[str | None, "The client's host name."]
    is_here: Annotated[bool, "Whether the run exists; false if it was deleted."]
    token: Annotated[str | None, "The name of the token that sends it."]
    stored_bytes: int
    event_count: int
    lost_count: int
    dropped_text_count: int
    version: str | None
    started_us: StartTime
    updated_us: int
    ended_us: int | None
    is_replaced: Annotated[bool, "Whether a newer stream replaced it."]


def is_pushed(reader: sqlite3.Connection, run_id: str) -> bool:
    query = "select 1 from streams where run_id = :run_id limit 1"
    return reader.execute(query, {"run_id": run_id}).fetchone() is not None


def list_streams(reader: sqlite3.Connection, cursor: str | None, limit: int) -> Page[StreamRow]:
    """List pushed streams, the most recently active first. Raises FilterError for an invalid
    cursor.
    """
    updated_us, run_id, stream_id = decode_cursor(cursor, int, str, str) or (None, None, None)
    values = {
        "updated_us": updated_us,
        "run_id": run_id,
        "stream_id": stream_id,
        "limit": limit + 1,
    }
    rows = [make_row(StreamRow, row) for row in reader.execute(STREAMS_SQL, values)]
    return make_page(rows, limit, lambda row: (row.updated_us, row.run_id, row.stream_id))
