"""Suggestions of recompile causes in a database of before: the advice of that time becomes the catalogue's titles."""

from __future__ import annotations

import sqlite3

from compileboard.collectors.contract.events import GuardFailure
from compileboard.collectors.fixes.recompile_fixes import describe_guard_fixes
from compileboard.collectors.store.ingest.recompiles import is_after_break


def renew_suggestions(connection: sqlite3.Connection) -> None:
    """Write every cause's suggestion as ingest writes it now; within a transaction of the caller."""
    causes = connection.execute(
        """
        select u.id, u.category, u.source, u.reason, f.file, f.name
        from recompile_causes as u
        left join functions as f on f.id = u.function_id
        """
    ).fetchall()
    for cause_id, category, source, reason, file, name in causes:
        first = connection.execute(
            """
            select expected, actual, g.source_line, compile_key
            from guard_failures as g
            join recompiles on recompiles.id = recompile_id
            where cause_id = :id
            order by recompile_id, g.position
            limit 1
            """,
            {"id": cause_id},
        ).fetchone()
        expected, actual, source_line, compile_key = first or (None, None, None, None)
        guard = GuardFailure(None, reason, category, source, expected, actual, source_line=source_line)
        is_late = is_after_break(connection, compile_key)
        suggestion = describe_guard_fixes(guard, function=name, file=file, after_break=is_late)
        connection.execute(
            "update recompile_causes set suggestion = :suggestion where id = :id",
            {"id": cause_id, "suggestion": suggestion},
        )
