"""Write compiles: their starts, records, graph breaks and recompiles."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from compileboard.collectors.contract.events import (
    Compiled,
    CompileStarted,
    GraphBroke,
    Recompiled,
)
from compileboard.collectors.contract.failures import identify_failure
from compileboard.collectors.contract.fingerprints import join_fingerprints
from compileboard.collectors.fixes.cache_entries import Guards, choose_guards, to_recorded
from compileboard.collectors.fixes.fix import RecordedGuard
from compileboard.collectors.store.ingest.batch import Batch, find_function, find_issue
from compileboard.collectors.store.ingest.frames import Compile
from compileboard.collectors.store.ingest.insert import (
    Insert,
    InsertOnce,
    select_fields,
    select_table_fields,
)
from compileboard.collectors.store.reading import read_event
from compileboard.collectors.store.rollups import BREAKS, CAUSES, FUNCTIONS, ISSUES, BatchTotals

_RECOMPILE = Insert("recompiles")
_GUARD_FAILURE = Insert("guard_failures")
_FAILURE = Insert("failures")
_RECOMPILE_CAUSE = InsertOnce("recompile_causes", "fingerprint")


def write_recompile(batch: Batch, event: Recompiled) -> None:
    compile_, new = batch.frames.find(batch.run_id, event)
    function_id = compile_.function_id if compile_ else None
    recompile_id = _RECOMPILE.add_for_id(
        batch.connection,
        {
            **select_table_fields("recompiles", event),
            "run_id": batch.run_id,
            "compile_key": compile_.key if compile_ else None,
            "function_id": function_id,
            "line": compile_.line if compile_ else None,
            "is_partial": int(not event.failed or bool(event.unread)),
            **dict.fromkeys(_OF_CAUSE),
        },
    )
    for position, guard in enumerate(event.guards):
        row = {
            "recompile_id": recompile_id,
            "position": position,
            **select_table_fields("guard_failures", guard),
        }
        _GUARD_FAILURE.add(batch.connection, row)
    if compile_:
        compile_.recompiled = True
        compile_.has_unnamed_recompiles |= function_id is None
        batch.connection.execute(
            "update compiles set recompiled_from = :old, recompile_category = 'unknown' "
            "where id = :key",
            {"key": compile_.key, "old": event.recompiled_from or "?"},
        )
    _mark_recompiled(batch, event.process_id, compile_, recompile_id)
    batch.totals.add(recompile_count=1, compile_count=int(new))
    batch.totals.add_to(FUNCTIONS, function_id, recompile_count=1)


def _mark_recompiled(
    batch: Batch, process_id: str, compile_: Compile | None, recompile_id: int = 0
) -> None:
    frame = batch.frames.list_frame(process_id, compile_) if compile_ else []
    batch.recompiled[frame[0].key if frame else -recompile_id] = (frame, recompile_id)


def set_recompile_function(
    batch: Batch, process_id: str, compile_: Compile, function_id: int | None, line: int | None
) -> None:
    if function_id is None or not compile_.has_unnamed_recompiles:
        return
    compile_.has_unnamed_recompiles = False
    named = batch.connection.execute(
        """
        update recompiles set function_id = :function_id, line = coalesce(:line, line)
        where compile_key = :key and function_id is null
        """,
        {"key": compile_.key, "function_id": function_id, "line": line},
    )
    if named.rowcount:
        _mark_recompiled(batch, process_id, compile_)
        batch.totals.add_to(FUNCTIONS, function_id, recompile_count=named.rowcount)


# Of a recompile, what its cause decides.
_OF_CAUSE = (
    "cause_id",
    "cache_entry",
    "reason",
    "expected",
    "actual",
    "source_line",
    "guard_line",
)
_FRAME_SQL = """
select
  r.id, r.cause_id, r.is_partial, r.compile_key, r.function_id, f.file, f.name as function,
  coalesce(c.total_us, 0) as compile_us, e.body
from recompiles as r
join events as e on e.process_id = r.process_id and e.sequence = r.sequence
left join compiles as c on c.id = r.compile_key
left join functions as f on f.id = r.function_id
where r.id = :id or r.compile_key in (select value from json_each(:keys))
order by r.id
"""


def update_recompile_causes(batch: Batch) -> None:
    """Recompute the causes of recompiles for each frame with new recompiles or a new name."""
    for frame, recompile_id in batch.recompiled.values():
        keys = json.dumps([compile_.key for compile_ in frame if compile_.recompiled])
        rows = batch.connection.execute(_FRAME_SQL, {"id": recompile_id, "keys": keys}).fetchall()
        recompiles = []
        for row in rows:
            event = read_event(row["body"])
            assert isinstance(event, Recompiled)
            recompiles.append(to_recorded(event, row["compile_key"], row["file"], row["function"]))
        for row, guards in zip(rows, choose_guards(recompiles), strict=True):
            _update_recompile_cause(batch, row, guards)
    batch.recompiled.clear()


def _update_recompile_cause(batch: Batch, row: sqlite3.Row, guards: Guards) -> None:
    if not guards:
        return
    distinct = list(dict.fromkeys(guards.values()))
    first = distinct[0]
    categories = {guard.category for guard in distinct}
    category = first.category if len(categories) == 1 else "several"
    cause_id = _find_cause(batch, row, distinct, category)
    if cause_id == row["cause_id"]:
        return
    for of, sign in ((row["cause_id"], -1), (cause_id, 1)):
        batch.totals.add_to(
            CAUSES,
            of,
            recompile_count=sign,
            partial_count=sign * row["is_partial"],
            compile_us=sign * row["compile_us"],
        )
    if row["cause_id"] is not None:
        batch.totals.abandoned_causes.add(row["cause_id"])
    one = len(distinct) == 1
    batch.connection.execute(
        f"update recompiles set {', '.join(f'{name} = :{name}' for name in _OF_CAUSE)} "  # noqa: S608 - our own names
        "where id = :id",
        {
            "id": row["id"],
            "cause_id": cause_id,
            "cache_entry": first.cache_entry,
            "reason": _join_reasons(distinct),
            "expected": first.expected if one else None,
            "actual": first.actual if one else None,
            "source_line": first.source_line,
            "guard_line": first.line,
        },
    )
    batch.connection.execute(
        "update compiles set recompile_category = :category where id = :key",
        {"key": row["compile_key"], "category": category},
    )


def _join_reasons(guards: Sequence[RecordedGuard]) -> str:
    return " and ".join(dict.fromkeys(guard.reason for guard in guards))


def _find_cause(
    batch: Batch, row: sqlite3.Row, guards: Sequence[RecordedGuard], category: str
) -> int:
    fingerprint = join_fingerprints(guard.fingerprint for guard in guards)

    def describe() -> dict[str, Any]:
        return {
            "function_id": row["function_id"],
            "category": category,
            "source": ", ".join(guard.source or guard.category for guard in guards) or None,
            "reason": _join_reasons(guards),
        }

    return batch.find_id(
        _RECOMPILE_CAUSE, ("cause", fingerprint), {"fingerprint": fingerprint}, describe
    )


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
        **select_fields(event, "line", "resumed_at"),
        **({} if function_id is None else {"function_id": function_id}),
        "outcome": "loaded" if _is_loaded(event) else "started",
        "stack_id": batch.stacks.find(batch.run_id, event.stack),
        "attempt_count": (event.attempt or 0) + 1,
    }
    compile_, new = batch.frames.begin(batch.run_id, event, started)
    function_id = function_id or compile_.function_id
    if not new:
        _uncount_failure(batch, compile_)
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
                **select_fields(event, "time_us", "rank"),
                "key": compile_.key,
                "function_id": function_id,
            },
        )
        set_recompile_function(batch, event.process_id, compile_, function_id, event.line)
    batch.totals.add(compile_count=int(new))
    batch.totals.add_to(FUNCTIONS, function_id, compile_count=1)


def _uncount_failure(batch: Batch, compile_: Compile) -> None:
    """Subtract the failure that a compile's exception counted; its record counts it again."""
    batch.totals.add(failure_count=-int(compile_.is_failure_counted))
    compile_.is_failure_counted = False


def _is_loaded(event: CompileStarted) -> bool:
    """Return whether the code comes from a saved package. torch reports the start of such a compile
    but no end.

    Source: `_TorchDynamoContext.__call__` and `_compile_frame_context` of torch/_dynamo, 2.11,
    2.13.
    """
    caller = [(frame.get("file"), frame.get("name")) for frame in event.stack[-2:-1]]
    return caller == [("torch/_dynamo/eval_frame.py", "__call__")]


def write_compiled(batch: Batch, event: Compiled) -> None:
    compile_, new = batch.frames.find(batch.run_id, event)
    # A forward record whose start was not seen (a limit hit, a torch without dynamo_start) stands
    # for its own compile.
    untraced = event.record_kind == "forward" and batch.frames.mark_traced(event)
    function_id = compile_.function_id if compile_ else None
    if function_id is None:
        function_id = find_function(batch, event.file, event.function)
    restarts = len(event.metrics.get("restart_reasons") or [])
    if (
        event.record_kind == "forward"
    ):  # a compile that failed has lost its reasons, and still says which attempt it was
        restarts = max(restarts, event.attempt or 0)
    outcome = _outcome(batch.connection, event, compile_)
    key = compile_.key if compile_ else None
    issue_id = None
    if outcome == "failed" and event.record_kind == "forward":
        issue_id = _count_failure(batch, event, key, function_id)
    _write_record(batch, event, key, function_id, outcome, restarts, issue_id)
    duration_us = 0 if event.record_kind == "runtime" else event.duration_us or 0
    batch.totals.add(
        record_count=1, compile_count=int(new), compile_us=duration_us, restart_count=restarts
    )
    batch.totals.add_to(FUNCTIONS, function_id, compile_count=int(untraced), compile_us=duration_us)
    if compile_ is None:
        # The record has no compile: of `aot_compile` or an export.
        is_failed = event.record_kind == "forward" and outcome == "failed"
        batch.totals.add(failure_count=int(is_failed))
        return
    if event.record_kind == "forward":
        _update_compile(batch, event, compile_, function_id, outcome, restarts)
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
    issue_id: int | None,
) -> None:
    _COMPILATION.add(
        batch.connection,
        {
            **select_table_fields("compilations", event),
            "run_id": batch.run_id,
            "compile_key": compile_key,
            "kind": event.record_kind,
            "function_id": function_id,
            "outcome": outcome,
            **{f"{phase}_us": event.phases_us.get(phase) for phase in PHASES},
            **{name: event.metrics.get(name) for name in PROMOTED},
            "restart_count": restarts,
            "issue_id": issue_id,
        },
    )


_OWN_FAILURE_SQL = """
select error_type, message
from failures
where compile_key = :key and phase = 'compile'
order by id desc
limit 1
"""
# Of no compile: each record before this one has a failure of its own, so that one is left for
# this record only if there are more failures than records.
_LOOSE_FAILURE_SQL = """
select error_type, message
from failures
where run_id = :run_id
  and process_id = :process_id
  and +compile_key is null
  and compile_id is :compile_id
  and phase = 'compile'
  and (
    select count(*)
    from failures
    where run_id = :run_id
      and process_id = :process_id
      and +compile_key is null
      and compile_id is :compile_id
      and phase = 'compile'
  ) > (
    select count(*)
    from compilations
    where process_id = :process_id
      and +compile_key is null
      and compile_id is :compile_id
      and kind = 'forward'
      and outcome = 'failed'
  )
order by id desc
limit 1
"""


def _count_failure(
    batch: Batch, event: Compiled, compile_key: int | None, function_id: int | None
) -> int:
    statement = _OWN_FAILURE_SQL if compile_key is not None else _LOOSE_FAILURE_SQL
    values = {
        **select_fields(event, "process_id", "compile_id"),
        "run_id": batch.run_id,
        "key": compile_key,
    }
    row = batch.connection.execute(statement, values).fetchone()
    recorded = event.metrics.get("fail_type"), event.metrics.get("fail_reason")
    if row is None:
        failure = {
            **select_fields(event, "process_id", "sequence", "time_us", "compile_id"),
            "run_id": batch.run_id,
            "compile_key": compile_key,
            "error_type": recorded[0],
            "message": recorded[1],
        }
        _FAILURE.add(batch.connection, failure)
    issue_id = find_issue(batch, identify_failure(*(row or recorded)), function_id)
    batch.connection.execute(
        """
        update repros set issue_id = :issue_id
        where compile_key = :key and failure_position is null and kind = 'compile'
        """,
        {"issue_id": issue_id, "key": compile_key},
    )
    counts = {"failure_count": 1, "compile_us": event.duration_us or 0}
    batch.totals.add_to(ISSUES, issue_id, **counts)
    return issue_id


def _update_compile(
    batch: Batch,
    event: Compiled,
    compile_: Compile,
    function_id: int | None,
    outcome: str,
    restarts: int,
) -> None:
    compile_.function_id = function_id
    set_recompile_function(batch, event.process_id, compile_, function_id, event.line)
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
            **select_fields(event, "duration_us", "line", "resumed_at"),
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
    _uncount_failure(batch, compile_)
    batch.totals.add(
        failure_count=int(outcome == "failed"),
        skipped_frame_count=int(outcome == "skipped"),
        recompile_limit_count=int(outcome == "recompile_limit"),
    )
    if outcome == "recompile_limit":
        batch.totals.add_to(FUNCTIONS, function_id, recompile_limit_count=1)


def _outcome(connection: Connection, event: Compiled, compile_: Compile | None) -> str:
    if event.outcome != "skipped":
        return event.outcome
    if compile_ is None:  # torch skips frames alone: it raised
        return "failed" if event.record_kind == "forward" else "skipped"
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
            where compile_key = :key and cause_id is not null
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
            **select_table_fields("graph_breaks", event),
            "run_id": batch.run_id,
            "compile_key": compile_.key if compile_ else None,
            "distinct_id": distinct_id,
            "function_id": function_id,
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
        select_fields(event, "fingerprint"),
        lambda: {
            **select_table_fields("distinct_breaks", event),
            "hints": json.dumps(event.hints),
            "function_id": function_id,
        },
    )
    batch.connection.execute(
        "update distinct_breaks set line = :line where id = :id and line is not :line",
        {"id": distinct_id, "line": event.line},
    )
    return distinct_id
