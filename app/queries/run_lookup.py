"""Find a run by its id or the beginning of it, as people type it."""

from __future__ import annotations

import sqlite3

LOOKUP_SQL = """
select id
from runs
where id >= :prefix
  and id < :end
order by id
limit :limit
"""


def find_run_ids(connection: sqlite3.Connection, prefix: str, limit: int = 4) -> list[str]:
    """List the ids that begin so, in either case; one alone where the text is a whole id."""
    for text in dict.fromkeys((prefix, prefix.upper())):
        rows = connection.execute(LOOKUP_SQL, {"prefix": text, "end": text + "\x7f", "limit": limit})
        found = [str(row["id"]) for row in rows]
        if text in found:
            return [text]
        if found and text:
            return found
    return []
