"""Source lines around graph breaks and recompiles, stored once by content."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from compileboard.collectors.contract.fingerprints import content_id
from compileboard.collectors.fixes.recorded import SourceLines
from compileboard.collectors.store.ingest.insert import InsertOnce

MOST_EXCERPTS = 500  # a run's

_EXCERPT = InsertOnce("source_excerpts", "file", "first_line", "text")


def save_source_lines(
    connection: sqlite3.Connection, run_id: str, excerpts: Iterable[SourceLines]
) -> None:
    for excerpt in excerpts:
        text = "\n".join(excerpt.lines)
        excerpt_id = content_id("source", excerpt.file, excerpt.first_line, text)
        values = {
            "id": excerpt_id,
            "file": excerpt.file,
            "first_line": excerpt.first_line,
            "text": text,
        }
        _EXCERPT.add_once(connection, values)
        connection.execute(
            """
            insert or ignore into run_source_excerpts (run_id, excerpt_id)
            select id, :excerpt_id
            from runs
            where id = :run_id
            """,
            {"run_id": run_id, "excerpt_id": excerpt_id},
        )


def list_source_lines(connection: sqlite3.Connection, run_id: str) -> list[SourceLines]:
    rows = connection.execute(
        """
        select e.file, e.first_line, e.text
        from run_source_excerpts as r
        join source_excerpts as e on e.id = r.excerpt_id
        where r.run_id = :run_id
        order by e.file, e.first_line
        limit :most
        """,
        {"run_id": run_id, "most": MOST_EXCERPTS},
    )
    return [
        SourceLines(row["file"], row["first_line"], tuple(row["text"].split("\n"))) for row in rows
    ]
