"""Titles, notes and pins of runs."""

from __future__ import annotations

import sqlite3
import time

from compileboard.collectors.store.connection import write_transaction

TITLE_LIMIT = 200
NOTE_LIMIT = 20_000


def annotate(
    connection: sqlite3.Connection,
    run_id: str,
    *,
    title: str | None = None,
    note: str | None = None,
    pinned: bool | None = None,
    now_us: int | None = None,
) -> bool:
    """Set a run's title, note or pin, leaving those that are None; False if there is no such run.

    An empty title or note removes it. Raises ValueError if a text is too long.
    """
    if title is not None and len(title) > TITLE_LIMIT:
        raise ValueError(f"a title has at most {TITLE_LIMIT} characters; this one has {len(title)}")
    if note is not None and len(note) > NOTE_LIMIT:
        raise ValueError(f"a note has at most {NOTE_LIMIT} characters; this one has {len(note)}")
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    with write_transaction(connection):
        if (
            connection.execute("select 1 from runs where id = :id", {"id": run_id}).fetchone()
            is None
        ):
            return False
        connection.execute(
            """
            insert into run_annotations (run_id, title, note, pinned, changed_us)
            values (:id, nullif(:title, ''), nullif(:note, ''), coalesce(:pinned, 0), :now_us)
            on conflict (run_id) do update set
              title = case when :title is null then title else nullif(:title, '') end,
              note = case when :note is null then note else nullif(:note, '') end,
              pinned = coalesce(:pinned, pinned),
              changed_us = :now_us
            """,
            {
                "id": run_id,
                "title": None if title is None else title.strip(),
                "note": None if note is None else note.strip(),
                "pinned": None if pinned is None else int(pinned),
                "now_us": now_us,
            },
        )
    return True
