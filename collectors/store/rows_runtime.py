"""Write what compiled code raised while it ran, and what ended a program."""

from __future__ import annotations

from compileboard.collectors.events import RuntimeFailed
from compileboard.collectors.store.rows_shared import Batch, find_function, pick


def write_runtime_failure(batch: Batch, event: RuntimeFailed) -> None:
    """Write a failure's row, or count on the one that is there."""
    if event.phase == "compile":
        batch.connection.execute(
            """
            update failures set ended_program = 1
            where id = (
              select max(id) from failures
              where process_id = :process_id and compile_id is :compile_id and phase = 'compile'
            )
            """,
            pick(event, "process_id", "compile_id"),
        )
        return
    values = pick(
        event,
        *("process_id", "position", "occurrence_count", "sequence", "compile_id", "phase", "error_type", "message"),
        *("line", "time_us"),
    )
    values["ended_program"] = int(event.ended_program)
    known = batch.connection.execute(
        """
        update failures set
          occurrence_count = max(occurrence_count, :occurrence_count),
          ended_program = max(ended_program, :ended_program)
        where process_id = :process_id and position = :position
        """,
        values,
    ).rowcount
    if known:
        return
    batch.connection.execute(
        """
        insert into failures
          (run_id, process_id, sequence, compile_key, compile_id, phase, position, error_type, message, function_id,
           line, occurrence_count, ended_program, time_us)
        values
          (:run_id, :process_id, :sequence, :compile_key, :compile_id, :phase, :position, :error_type, :message,
           :function_id, :line, :occurrence_count, :ended_program, :time_us)
        """,
        {
            **values,
            "run_id": batch.run_id,
            "compile_key": _find_compile(batch, event),
            "function_id": find_function(batch.connection, event.file, event.function),
        },
    )
    batch.totals.add(runtime_failure_count=1)


def _find_compile(batch: Batch, event: RuntimeFailed) -> int | None:
    """Return the compile that had this id when the code was made: after reset() another may have it."""
    row = batch.connection.execute(
        """
        select id from compiles
        where process_id = :process_id and compile_id = :compile_id and started_us <= :compiled_us
        order by generation desc
        limit 1
        """,
        pick(event, "process_id", "compile_id", "compiled_us"),
    ).fetchone()
    return int(row["id"]) if row else None
