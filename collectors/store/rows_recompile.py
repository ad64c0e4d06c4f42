"""Write a recompile with the failed guard of every cache entry."""

from __future__ import annotations

import hashlib
import sqlite3

from collectors.events import Recompiled
from collectors.store.rows_shared import Batch, pick
from collectors.store.totals import CAUSES, FUNCTIONS, Totals

Connection = sqlite3.Connection


def write_recompile(batch: Batch, event: Recompiled) -> None:
    compile_, new = batch.frames.find(batch.run_id, event)
    function_id = compile_.function_id if compile_ else None
    cursor = batch.connection.execute(
        """
        insert into recompiles
          (run_id, process_id, sequence, compile_key, compile_id, function_id, line, recompiled_from, time_us)
        values
          (:run_id, :process_id, :sequence, :compile_key, :compile_id, :function_id, :line, :recompiled_from, :time_us)
        """,
        {
            "run_id": batch.run_id,
            "compile_key": compile_.key if compile_ else None,
            "function_id": function_id,
            "line": compile_.line if compile_ else None,
            **pick(event, "process_id", "sequence", "compile_id", "recompiled_from", "time_us"),
        },
    )
    _write_guards(batch.connection, int(cursor.lastrowid or 0), event, function_id, batch.totals)
    if compile_:
        compile_.recompiled = True
        batch.connection.execute(
            "update compiles set recompiled_from = :old, recompile_category = :category where id = :key",
            {
                "key": compile_.key,
                "old": event.recompiled_from or "?",
                "category": event.guards[0].category if event.guards else "unknown",
            },
        )
    batch.totals.add(recompile_count=1, compile_count=int(new))
    batch.totals.add_to(FUNCTIONS, function_id, recompile_count=1)


def _write_guards(
    connection: Connection, recompile_id: int, event: Recompiled, function_id: int | None, totals: Totals
) -> None:
    for position, guard in enumerate(event.guards):
        fingerprint = hashlib.sha256(f"{guard.fingerprint}\n{function_id}".encode()).hexdigest()[:32]
        cause = connection.execute(
            """
            insert into recompile_causes (fingerprint, category, source, reason, suggestion, function_id)
            values (:fingerprint, :category, :source, :reason, :suggestion, :function_id)
            on conflict (fingerprint) do update set category = excluded.category
            returning id
            """,
            {
                "fingerprint": fingerprint,
                "function_id": function_id,
                **pick(guard, "category", "source", "reason", "suggestion"),
            },
        ).fetchone()
        connection.execute(
            """
            insert into guard_failures
              (recompile_id, position, cause_id, cache_entry, reason, expected, actual, source_line, line)
            values
              (:recompile_id, :position, :cause_id, :cache_entry, :reason, :expected, :actual, :source_line, :line)
            """,
            {
                "recompile_id": recompile_id,
                "position": position,
                "cause_id": cause["id"],
                **pick(guard, "cache_entry", "reason", "expected", "actual", "source_line", "line"),
            },
        )
        totals.add_to(CAUSES, cause["id"], guard_failure_count=1, recompile_count=int(position == 0))
