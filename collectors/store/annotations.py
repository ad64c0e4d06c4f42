"""People's own words about a run, and a person's wish that it be gone."""

from __future__ import annotations

import sqlite3
import time

from collectors.store.connect import write_transaction
from collectors.store.search import remove_run_words

TITLE_LIMIT = 200
NOTE_LIMIT = 20_000

DELETE_ORPHANS = (
    "delete from distinct_breaks where id not in (select distinct_id from run_breaks)",
    "delete from recompile_causes where id not in (select cause_id from run_causes)",
    """
    delete from payloads
    where id not in (select payload_id from artifacts where payload_id is not null)
      and id not in (select payload_id from spans where payload_id is not null)
    """,
    "delete from series where id not in (select series_id from results)",
    "delete from span_names where id not in (select name_id from span_totals)",
    # Of a repository, not of one run: what lies between two others' commits may be known from this run alone.
    "delete from commits where not exists (select 1 from runs where git_commit is not null)",
    "delete from configs where hash not in (select config_hash from process_configs)",
    """
    delete from functions
    where id not in (select function_id from run_functions)
      and id not in (select function_id from distinct_breaks where function_id is not null)
      and id not in (select function_id from recompile_causes where function_id is not null)
    """,
)


def annotate(
    connection: sqlite3.Connection,
    run_id: str,
    *,
    title: str | None = None,
    note: str | None = None,
    pinned: bool | None = None,
    now_us: int | None = None,
) -> bool:
    """Set the given words of a run and leave the others; return False if there is no such run.

    An empty title or note removes it.
    Raises: ValueError if a text is too long.
    """
    if title is not None and len(title) > TITLE_LIMIT:
        raise ValueError(f"a title has at most {TITLE_LIMIT} characters; this one has {len(title)}")
    if note is not None and len(note) > NOTE_LIMIT:
        raise ValueError(f"a note has at most {NOTE_LIMIT} characters; this one has {len(note)}")
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    with write_transaction(connection):
        if connection.execute("select 1 from runs where id = :id", {"id": run_id}).fetchone() is None:
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


def delete_run(connection: sqlite3.Connection, run_id: str, *, now_us: int | None = None) -> bool:
    """Delete a run with all that belongs to it, for good; return False if there is no such run."""
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    with write_transaction(connection):
        remove_run_words(connection, run_id)
        deleted = connection.execute("delete from runs where id = :id", {"id": run_id}).rowcount
        if deleted:
            connection.execute(
                "insert or replace into deleted_runs (run_id, deleted_us) values (:id, :now_us)",
                {"id": run_id, "now_us": now_us},
            )
            _drop_orphans(connection)
    return bool(deleted)


def _drop_orphans(connection: sqlite3.Connection) -> None:
    """Remove what no run refers to any more, so that a deleted run's text is really gone."""
    for statement in DELETE_ORPHANS:
        connection.execute(statement)
