"""Write compiles: their starts, records and graph breaks."""

from __future__ import annotations

import json
import sqlite3

from compileboard.collectors.contract.events import (
    Compiled,
    CompileStarted,
    GraphBroke,
    GuardFailure,
    Recompiled,
)
from compileboard.collectors.contract.fingerprints import cause_fingerprint
from compileboard.collectors.fixes.recompile_fixes import describe_guard_fixes
from compileboard.collectors.store.ingest.batch import Batch, find_function
from compileboard.collectors.store.ingest.frames import Compile
from compileboard.collectors.store.ingest.insert import Insert, InsertForId, InsertOnce, pick
from compileboard.collectors.store.reading import read_event
from compileboard.collectors.store.rollups import BREAKS, CAUSES, FUNCTIONS, BatchTotals

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
        {"fingerprint": cause_fingerprint(guard.fingerprint, file, name)},
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


Connection = sqlite3.Connection
PHASES = ("dynamo", "aot", "inductor", "codegen", "triton", "cudagraph", "restart")
# Metrics with a column of their own, under torch's name.
PROMOTED = (
    "graph_op_count",
    "graph_node_count",
    "graph_input_count",
    "guard_count",
    "guard_latency_us",
    "cache_size",
    "fail_type",
    "fail_reason",
)


_COMPILATION = Insert("compilations")
_GRAPH_BREAK = Insert("graph_breaks")
_DISTINCT_BREAK = InsertOnce("distinct_breaks", "fingerprint")


def write_start(batch: Batch, event: CompileStarted) -> None:
    function_id = find_function(batch, event.file, event.function)
    started = {
        **pick(event, "line", "resumed_at"),
        **({} if function_id is None else {"function_id": function_id}),
        "outcome": "loaded" if _is_loaded(event) else "started",
        "stack_id": batch.stacks.find(batch.run_id, event.stack),
        "attempt_count": (event.attempt or 0) + 1,
    }
    compile_, new = batch.frames.begin(batch.run_id, event, started)
    function_id = function_id or compile_.function_id
    if not new:
        compile_.function_id, compile_.line = function_id, event.line
        batch.connection.execute(
            """
            update compiles set
              outcome = :outcome, started_us = :time_us, function_id = :function_id, line = :line,
              resumed_at = :resumed_at, rank = coalesce(rank, :rank),
              stack_id = coalesce(:stack_id, stack_id),
              attempt_count = max(attempt_count, :attempt_count)
            where id = :key
            """,
            {
                **started,
                **pick(event, "time_us", "rank"),
                "key": compile_.key,
                "function_id": function_id,
            },
        )
        name_recompiles(batch, compile_, function_id, event.line)
    batch.totals.add(compile_count=int(new))
    batch.totals.add_to(FUNCTIONS, function_id, compile_count=1)


def _is_loaded(event: CompileStarted) -> bool:
    """Return whether the code comes from a saved package: torch reports its start but no end.

    Source: `_TorchDynamoContext.__call__` and `_compile_frame_context` of torch/_dynamo, 2.11,
    2.13.
    """
    caller = [(frame.get("file"), frame.get("name")) for frame in event.stack[-2:-1]]
    return caller == [("torch/_dynamo/eval_frame.py", "__call__")]


def write_compiled(batch: Batch, event: Compiled) -> None:
    compile_, new = batch.frames.find(batch.run_id, event)
    # A forward record whose start was not seen (a limit hit, a torch without dynamo_start) stands
    # for its own compile.
    untraced = event.record_kind == "forward" and batch.frames.take_untraced(event)
    function_id = compile_.function_id if compile_ else None
    if function_id is None:
        function_id = find_function(batch, event.file, event.function)
    restarts = len(event.metrics.get("restart_reasons") or [])
    if (
        event.record_kind == "forward"
    ):  # a compile that failed has lost its reasons, and still says which attempt it was
        restarts = max(restarts, event.attempt or 0)
    outcome = _outcome(batch.connection, event, compile_)
    _write_record(batch, event, compile_.key if compile_ else None, function_id, outcome, restarts)
    duration_us = 0 if event.record_kind == "runtime" else event.duration_us or 0
    batch.totals.add(
        record_count=1, compile_count=int(new), compile_us=duration_us, restart_count=restarts
    )
    batch.totals.add_to(FUNCTIONS, function_id, compile_count=int(untraced), compile_us=duration_us)
    if compile_ is None:
        return
    if event.record_kind == "forward":
        _settle_compile(batch, event, compile_, function_id, outcome, restarts)
    else:
        time = {"key": compile_.key, "duration_us": duration_us}
        batch.connection.execute(
            "update compiles set total_us = total_us + :duration_us where id = :key", time
        )
    _spread_time(batch.connection, compile_, duration_us, batch.totals)


def _write_record(
    batch: Batch,
    event: Compiled,
    compile_key: int | None,
    function_id: int | None,
    outcome: str,
    restarts: int,
) -> None:
    _COMPILATION.add(
        batch.connection,
        {
            "run_id": batch.run_id,
            "compile_key": compile_key,
            "kind": event.record_kind,
            "function_id": function_id,
            "outcome": outcome,
            **pick(event, "process_id", "sequence", "compile_id", "start_us", "duration_us"),
            **{f"{phase}_us": event.phases_us.get(phase) for phase in PHASES},
            **{name: event.metrics.get(name) for name in PROMOTED},
            "restart_count": restarts,
        },
    )


def _settle_compile(
    batch: Batch,
    event: Compiled,
    compile_: Compile,
    function_id: int | None,
    outcome: str,
    restarts: int,
) -> None:
    compile_.function_id = function_id
    name_recompiles(batch, compile_, function_id, event.line)
    batch.connection.execute(
        """
        update compiles set
          outcome = :outcome, duration_us = :duration_us,
          total_us = total_us + coalesce(:duration_us, 0),
          attempt_count = max(attempt_count, :attempt_count), function_id = :function_id,
          line = coalesce(line, :line),
          resumed_at = coalesce(resumed_at, :resumed_at)
        where id = :key
        """,
        {
            **pick(event, "duration_us", "line", "resumed_at"),
            "key": compile_.key,
            "outcome": outcome,
            "attempt_count": restarts + 1,
            "function_id": function_id,
        },
    )
    if compile_.has_breaks:
        batch.connection.execute(
            (
                "update graph_breaks set outcome = :outcome where compile_key = :key and outcome = "
                "'unknown'"
            ),
            {
                "key": compile_.key,
                "outcome": "skipped" if outcome in ("failed", "skipped") else "resumed",
            },
        )
    batch.totals.add(
        failure_count=int(outcome == "failed"),
        skipped_frame_count=int(outcome == "skipped"),
        recompile_limit_count=int(outcome == "recompile_limit"),
    )
    if outcome == "recompile_limit":
        batch.totals.add_to(FUNCTIONS, function_id, recompile_limit_count=1)


def _outcome(connection: Connection, event: Compiled, compile_: Compile | None) -> str:
    if event.outcome != "skipped" or compile_ is None:
        return event.outcome
    row = connection.execute(
        """
        select
          graph_break_count = 0
          and exists (select 1 from failures where compile_key = :key
            and phase = 'compile') as raised
        from compiles
        where id = :key
        """,
        {"key": compile_.key},
    ).fetchone()
    return "failed" if row["raised"] else "skipped"


def _spread_time(
    connection: Connection, compile_: Compile, duration_us: int, totals: BatchTotals
) -> None:
    key = {"key": compile_.key}
    if compile_.has_breaks:
        for row in connection.execute(
            "select distinct distinct_id from graph_breaks where compile_key = :key", key
        ):
            totals.add_to(BREAKS, row["distinct_id"], compile_us=duration_us)
    if compile_.recompiled:
        totals.add(recompile_us=duration_us)
        for row in connection.execute(
            """
            select cause_id
            from recompiles
            join guard_failures on guard_failures.recompile_id = recompiles.id and position = 0
            where compile_key = :key
            """,
            key,
        ):
            totals.add_to(CAUSES, row["cause_id"], compile_us=duration_us)


def write_break(batch: Batch, event: GraphBroke) -> None:
    compile_, new = batch.frames.find(batch.run_id, event)
    function_id = find_function(batch, event.file, event.function)
    distinct_id = _find_distinct_break(batch, event, function_id)
    _GRAPH_BREAK.add(
        batch.connection,
        {
            "run_id": batch.run_id,
            "compile_key": compile_.key if compile_ else None,
            "distinct_id": distinct_id,
            "function_id": function_id,
            **pick(event, "process_id", "sequence", "compile_id", "line", "outcome", "time_us"),
        },
    )
    if compile_:
        compile_.has_breaks = True
        batch.connection.execute(
            "update compiles set graph_break_count = graph_break_count + 1 where id = :key",
            {"key": compile_.key},
        )
    batch.totals.add(graph_break_count=1, compile_count=int(new))
    batch.totals.add_to(FUNCTIONS, function_id, graph_break_count=1)
    batch.totals.add_to(BREAKS, distinct_id, break_count=1)


def _find_distinct_break(batch: Batch, event: GraphBroke, function_id: int | None) -> int:
    distinct_id = batch.find_id(
        _DISTINCT_BREAK,
        ("break", event.fingerprint),
        pick(event, "fingerprint"),
        lambda: {
            "hints": json.dumps(event.hints),
            "function_id": function_id,
            **pick(event, "gb_id", "gb_type", "reason", "explanation", "source_line", "line"),
        },
    )
    batch.connection.execute(
        "update distinct_breaks set line = :line where id = :id and line is not :line",
        {"id": distinct_id, "line": event.line},
    )
    return distinct_id
