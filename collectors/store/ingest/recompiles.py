"""Write recompiles with the failed guard of every cache entry.

torch reports a recompile before naming its function. If the function's first compile was not
recorded (late install, second `observe()`), only the following compile names it, perhaps in another
batch; `name_recompiles` then sets the function and the guards' causes.
"""

from __future__ import annotations

import sqlite3

from compileboard.collectors.contract.events import GuardFailure, Recompiled
from compileboard.collectors.contract.fingerprints import content_digest
from compileboard.collectors.fixes.recompile_fixes import describe_guard_fixes
from compileboard.collectors.store.ingest.batch import Batch
from compileboard.collectors.store.ingest.frames import Compile
from compileboard.collectors.store.ingest.insert import Insert, InsertForId, InsertOnce, pick
from compileboard.collectors.store.reading import read_event
from compileboard.collectors.store.rollups.totals import CAUSES, FUNCTIONS

_RECOMPILE = InsertForId("recompiles")
_RECOMPILE_CAUSE = InsertOnce("recompile_causes", "fingerprint")
_GUARD_FAILURE = Insert("guard_failures")


def write_recompile(batch: Batch, event: Recompiled) -> None:
    compile_, new = batch.frames.find(batch.run_id, event)
    function_id = compile_.function_id if compile_ else None
    recompile_id = _RECOMPILE.add_for_id(
        batch.connection,
        {
            "run_id": batch.run_id,
            "compile_key": compile_.key if compile_ else None,
            "function_id": function_id,
            "line": compile_.line if compile_ else None,
            **pick(event, "process_id", "sequence", "compile_id", "recompiled_from", "time_us"),
        },
    )
    cause_ids = _write_guards(
        batch, recompile_id, event, function_id, compile_.key if compile_ else None
    )
    _count_guards(batch, cause_ids, 1)
    if compile_:
        compile_.recompiled = True
        compile_.has_unnamed_recompiles |= function_id is None
        batch.connection.execute(
            (
                "update compiles set recompiled_from = :old, recompile_category = :category where "
                "id = :key"
            ),
            {
                "key": compile_.key,
                "old": event.recompiled_from or "?",
                "category": event.guards[0].category if event.guards else "unknown",
            },
        )
    batch.totals.add(recompile_count=1, compile_count=int(new))
    batch.totals.add_to(FUNCTIONS, function_id, recompile_count=1)


def name_recompiles(
    batch: Batch, compile_: Compile, function_id: int | None, line: int | None
) -> None:
    if function_id is None or not compile_.has_unnamed_recompiles:
        return
    compile_.has_unnamed_recompiles = False
    rows = batch.connection.execute(
        """
        select recompiles.id, body, total_us
        from recompiles
        join compiles on compiles.id = compile_key
        join events on events.process_id = recompiles.process_id
          and events.sequence = recompiles.sequence
        where compile_key = :key and recompiles.function_id is null
        """,
        {"key": compile_.key},
    ).fetchall()
    for row in rows:
        event = read_event(row["body"])
        if not isinstance(event, Recompiled):
            continue
        batch.connection.execute(
            (
                "update recompiles set function_id = :function_id, line = coalesce(:line, line) "
                "where id = :id"
            ),
            {"id": row["id"], "function_id": function_id, "line": line},
        )
        key = {"id": row["id"]}
        guards = "select cause_id from guard_failures where recompile_id = :id order by position"
        before_ids = [guard["cause_id"] for guard in batch.connection.execute(guards, key)]
        _count_guards(batch, before_ids, -1, row["total_us"])
        batch.totals.abandoned_causes.update(before_ids)
        batch.connection.execute("delete from guard_failures where recompile_id = :id", key)
        cause_ids = _write_guards(batch, row["id"], event, function_id, compile_.key)
        _count_guards(batch, cause_ids, 1, row["total_us"])
        batch.totals.add_to(FUNCTIONS, function_id, recompile_count=1)


def _count_guards(batch: Batch, cause_ids: list[int], sign: int, compile_us: int = 0) -> None:
    for position, cause_id in enumerate(cause_ids):
        newest = int(position == 0)
        batch.totals.add_to(
            CAUSES,
            cause_id,
            guard_failure_count=sign,
            recompile_count=sign * newest,
            compile_us=sign * newest * compile_us,
        )


def _write_guards(
    batch: Batch,
    recompile_id: int,
    event: Recompiled,
    function_id: int | None,
    compile_key: int | None,
) -> list[int]:
    function = batch.connection.execute(
        "select file, name from functions where id = :id", {"id": function_id}
    )
    file, name = function.fetchone() or (None, None)
    cause_ids = [
        _find_cause(batch, guard, function_id, file, name, compile_key) for guard in event.guards
    ]
    for position, (guard, cause_id) in enumerate(zip(event.guards, cause_ids, strict=True)):
        _GUARD_FAILURE.add(
            batch.connection,
            {
                "recompile_id": recompile_id,
                "position": position,
                "cause_id": cause_id,
                **pick(guard, "cache_entry", "reason", "expected", "actual", "source_line", "line"),
            },
        )
    return cause_ids


def _find_cause(
    batch: Batch,
    guard: GuardFailure,
    function_id: int | None,
    file: str | None,
    name: str | None,
    compile_key: int | None,
) -> int:
    content = ("cause", guard.fingerprint, file, name)
    return batch.find_id(
        _RECOMPILE_CAUSE,
        content,
        {"fingerprint": content_digest(*content)[:32]},
        lambda: {
            "function_id": function_id,
            "suggestion": describe_guard_fixes(
                guard,
                function=name,
                file=file,
                after_break=is_after_break(batch.connection, compile_key),
            ),
            **pick(guard, "category", "source", "reason"),
        },
    )


def is_after_break(connection: sqlite3.Connection, compile_key: int | None) -> bool:
    row = connection.execute(
        """
        select 1
        from compiles as c
        join compiles as first using (process_id, generation, frame_id)
        where c.id = :key and first.resumed_at is not null
        limit 1
        """,
        {"key": compile_key},
    ).fetchone()
    return row is not None
