"""Write the rows of each kind of event. WRITERS maps kinds to functions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from compileboard.collectors.contract.events import (
    ArtifactSeen,
    BenchMeasured,
    CacheLookedUp,
    CommitsSeen,
    Compiled,
    CompileFailed,
    CompileStarted,
    ConfigSeen,
    CudagraphMade,
    CudagraphSkipped,
    FrameContext,
    GraphBroke,
    PageFaultsCounted,
    ProcessStarted,
    Recompiled,
    RecordsLost,
    ReproAnswered,
    ReproCaptured,
    ReproValues,
    RuntimeFailed,
    SnapshotTaken,
    SpanSeen,
    StepsTimed,
    SymbolSeen,
)
from compileboard.collectors.contract.failures import identify_failure
from compileboard.collectors.contract.fingerprints import fingerprint
from compileboard.collectors.contract.records import TABLES
from compileboard.collectors.contract.result_columns import STORED
from compileboard.collectors.contract.shapes import MovedInput
from compileboard.collectors.fixes.step_costs import dump_costs, find_usual_step
from compileboard.collectors.store.codec import dumps, pack
from compileboard.collectors.store.connection import has_row, read_value
from compileboard.collectors.store.ingest.artifacts import strip_stack
from compileboard.collectors.store.ingest.batch import Batch, find_function, find_issue
from compileboard.collectors.store.ingest.commit_history import StoredCommit, save_commits
from compileboard.collectors.store.ingest.compiles import (
    write_break,
    write_compiled,
    write_recompile,
    write_start,
)
from compileboard.collectors.store.ingest.frames import Compile
from compileboard.collectors.store.ingest.insert import (
    Insert,
    InsertOnce,
    select_fields,
    select_table_fields,
)
from compileboard.collectors.store.ingest.repro_writer import (
    write_repro,
    write_repro_answer,
    write_repro_values,
)
from compileboard.collectors.store.reading import read_json
from compileboard.collectors.store.results import COUNTS, NUMBERS
from compileboard.collectors.store.rollups import ISSUES, RERECORDINGS

MAX_COUNT = 2**53  # beyond it a float names no number of things
_WORDS = ("mode", "dtype", "device", "hardware", "backend")
_LATER = ("task", "reason", "accuracy", "message", "started_us", "duration_us", "command", "origin")
SERIES = ("suite", "model", *_WORDS, "dynamic", "batch_size", "world_size")
_KEY = ("run_id", "series_id", "experiment")
_ADD_SERIES = InsertOnce("series", *SERIES)
_ROW = TABLES["results"].list_names("id")


def _named(names: tuple[str, ...], between: str = ", ", head: str = "{0} = :{0}") -> str:
    return between.join(head.format(name) for name in names)


# The statements name our own columns alone; every value is bound.
FIND_RESULT = f"select id from results where {_named(_KEY, ' and ')}"  # noqa: S608 - our own names
# An id that a sealed run's result had is another's, though it is not here.
ADD_RESULT = f"""
insert into results (id, {_named(_ROW, head="{0}")})
select
  max(coalesce((select max(id) from results), 0), (select last_result_id from publications)) + 1,
  {_named(_ROW, head=":{0}")}
returning id
"""  # noqa: S608 - our own names
COMPLETE_RESULT = f"""
update results set {_named((*NUMBERS, *_LATER, "traceback"), head="{0} = coalesce({0}, :{0})")}
where id = :id
"""  # noqa: S608 - our own names


def write_result(batch: Batch, event: BenchMeasured) -> None:
    numbers, others = _sort_values(event.values)
    if event.status == "failed" and event.reason != "fail_accuracy":
        # dynamo's counters start at 0: where a failure came first, a 0 counts nothing.
        numbers |= {name: None for name in COUNTS if not numbers[name]}
    row = {
        "run_id": batch.run_id,
        "series_id": _find_series(batch, event),
        **select_table_fields("results", event),
        **numbers,
        "traceback": pack(event.traceback, primed=False) if event.traceback else None,
        "facts": json.dumps(event.facts, separators=(",", ":")),
    }
    result_id = read_value(batch.connection, FIND_RESULT, row)
    if result_id is None:
        result_id = read_value(batch.connection, ADD_RESULT, row)
        batch.totals.add(result_count=1, failed_result_count=int(event.status == "failed"))
    else:
        batch.connection.execute(COMPLETE_RESULT, {**row, "id": result_id})
    _write_parts(batch, result_id, event, others)


def _sort_values(
    values: dict[str, float],
) -> tuple[dict[str, float | int | None], dict[str, float]]:
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    numbers: dict[str, float | int | None] = dict.fromkeys(NUMBERS)
    for name, column in STORED.items():
        value = finite.get(column.upstream)
        is_whole = value is not None and abs(value) < MAX_COUNT and value == int(value)
        if value is not None and (is_whole or not column.is_count):
            del finite[column.upstream]
            numbers[name] = int(value) if column.is_count else value
    return numbers, finite


def _find_series(batch: Batch, event: BenchMeasured) -> int:
    key: dict[str, Any] = {
        **select_fields(event, "suite", "model", "world_size"),
        **{name: getattr(event, name) or "" for name in _WORDS},
        "dynamic": int(event.dynamic),
        "batch_size": event.batch_size or 0,
    }
    return batch.find_id(_ADD_SERIES, ("series", *(key[name] for name in SERIES)), key)


def _write_parts(
    batch: Batch, result_id: int, event: BenchMeasured, others: dict[str, float]
) -> None:
    batch.connection.executemany(
        "insert or ignore into result_values (result_id, name, value) values (:id, :name, :value)",
        [{"id": result_id, "name": name, "value": value} for name, value in others.items()],
    )
    batch.connection.executemany(
        "insert or ignore into result_repeats (result_id, name, body) values (:id, :name, :body)",
        [
            {"id": result_id, "name": name, "body": pack(json.dumps(values), primed=False)}
            for name, values in event.repeats.items()
        ],
    )


_SYMBOL = Insert("symbols", once=True)
_RUNTIME_FAILURE = Insert("failures")
_PROCESS = Insert("processes", once=True)
_REASON = InsertOnce("rerecording_reasons", "fingerprint")
_WINDOW = Insert("step_windows", once=True)
_OF_COMPILE = {
    name: Insert(name) for name in ("failures", "cache_lookups", "cudagraph_skips", "cudagraphs")
}


def write_runtime_failure(batch: Batch, event: RuntimeFailed) -> None:
    if event.phase == "compile":
        batch.connection.execute(
            """
            update failures set ended_program = 1
            where id = (
              select max(id) from failures
              where process_id = :process_id and compile_id is :compile_id and phase = 'compile'
            )
            """,
            select_fields(event, "process_id", "compile_id"),
        )
        return
    values = select_table_fields("failures", event)
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
    function_id = find_function(batch, event.file, event.function)
    failed = identify_failure(event.error_type, event.message, event.text)
    issue_id = find_issue(batch, failed, function_id)
    row = {
        **values,
        "run_id": batch.run_id,
        "compile_key": _find_compile(batch, event),
        "function_id": function_id,
        "issue_id": issue_id,
    }
    _RUNTIME_FAILURE.add(batch.connection, row)
    batch.connection.execute(
        """
        update repros set issue_id = :issue_id
        where process_id = :process_id and failure_position = :position
        """,
        row,
    )
    batch.totals.add(failure_count=1)
    batch.totals.add_to(ISSUES, issue_id, failure_count=1)


def _find_compile(batch: Batch, event: RuntimeFailed) -> int | None:
    key: int | None = read_value(
        batch.connection,
        """
        select id from compiles
        where process_id = :process_id and compile_id = :compile_id and started_us <= :compiled_us
        order by generation desc
        limit 1
        """,
        select_fields(event, "process_id", "compile_id", "compiled_us"),
    )
    return key


def write_process(batch: Batch, event: ProcessStarted) -> None:
    cursor = _PROCESS.add(
        batch.connection,
        {
            **select_table_fields("processes", event),
            "id": event.process_id,
            "run_id": batch.run_id,
            "parent_id": event.parent_process_id,
            "pid": event.pid or None,
            "command": " ".join(event.argv),
            "started_us": event.time_us,
            "last_seen_us": event.time_us,
            "last_sequence": event.sequence,
            "capabilities": json.dumps(event.capabilities),
            "environment": json.dumps(event.environment),
        },
    )
    batch.totals.add(
        process_count=cursor.rowcount
    )  # a process whose file was taken from it says who it is again


def write_config(batch: Batch, event: ConfigSeen) -> None:
    # Each record of a process brings the same texts again: packing them would take longer than all
    # the rest.
    process = batch.frames.process(event.process_id)
    key = {"process_id": event.process_id, "kind": event.config_kind, "hash": event.config_hash}
    if (event.config_kind, event.config_hash) in process.configs:
        return
    if not has_row(batch.connection, "select 1 from configs where hash = :hash", key):
        batch.connection.execute(
            "insert into configs (hash, kind, body) values (:hash, :kind, :body)",
            {**key, "body": pack(event.body, primed=False)},
        )
    batch.connection.execute(
        """
        insert or ignore into process_configs (process_id, kind, config_hash)
        select :process_id, :kind, :hash
        where exists (select 1 from processes where id = :process_id)
        """,
        key,
    )
    query = (
        "select 1 from process_configs where process_id = :process_id and kind = :kind and "
        "config_hash = :hash"
    )
    if has_row(batch.connection, query, key):
        process.configs.add((event.config_kind, event.config_hash))


def write_failure(batch: Batch, event: CompileFailed) -> None:
    compile_ = _count_compile(batch, event)
    _add_row(batch, event, "failures", compile_)
    if compile_ is None:
        return
    # The record of its end says more, if it comes: a log may end before.
    has_begun = batch.connection.execute(
        "update compiles set outcome = 'failed' where id = :key and outcome = 'started'",
        {"key": compile_.key},
    ).rowcount
    if has_begun:
        compile_.is_failure_counted = True
        batch.totals.add(failure_count=1)


def write_cache(batch: Batch, event: CacheLookedUp) -> None:
    _add_of_compile(batch, event, "cache_lookups")
    batch.totals.add(**{f"cache_{event.result}_count": 1})


def write_skip(batch: Batch, event: CudagraphSkipped) -> None:
    frame = event.stack[-1] if event.stack else None
    found = {name: frame and frame.get(name) for name in ("file", "line", "code")}
    _add_of_compile(batch, event, "cudagraph_skips", **found)
    batch.totals.add(cudagraph_skip_count=1)


def write_cudagraph(batch: Batch, event: CudagraphMade) -> None:
    compile_ = _count_compile(batch, event)
    reason_id = _save_rerecording_reason(batch, event, compile_.function_id if compile_ else None)
    own = {"reasons": dumps(event.reasons), "reason_id": reason_id}
    _add_row(batch, event, "cudagraphs", compile_, **own)
    batch.totals.add(
        cudagraph_recording_count=int(event.stage == "recording"),
        cudagraph_rerecording_count=int(event.status is not None),
    )
    counts = {"rerecording_count": 1, "duration_us": event.duration_us or 0}
    batch.totals.add_to(RERECORDINGS, reason_id, **counts)


def write_steps(batch: Batch, event: StepsTimed) -> None:
    row = {
        **select_table_fields("step_windows", event),
        "run_id": batch.run_id,
        "graphs": dumps(event.graphs),
        "steps": dumps(event.steps),
        "traced": dumps(event.traced) if event.traced else None,
        "costs": _find_costs(event),
    }
    _WINDOW.add(batch.connection, row)


def _find_costs(event: StepsTimed) -> str | None:
    try:
        step = find_usual_step(event.graphs, event.steps)
        costs = step and dump_costs(step, event.traced, event.peak_bytes_per_s)
    except (ArithmeticError, LookupError, TypeError, ValueError):  # a damaged record
        return None
    return dumps(costs) if costs else None


def _save_rerecording_reason(
    batch: Batch, event: CudagraphMade, function_id: int | None
) -> int | None:
    if event.status is None:
        return None
    function = batch.connection.execute(
        "select file, name from functions where id = ?", (function_id,)
    ).fetchone()
    identity = fingerprint("rerecording", event.status, *(function or (None, None)))

    def describe() -> dict[str, Any]:
        inputs = event.reasons[-1]["inputs"] if event.reasons else []
        lines = (frame["code"] for moved in inputs for frame in moved["stack"][-1:])
        return {
            "status": event.status,
            "function_id": function_id,
            "inputs": ", ".join(map(_name_input, inputs)) or None,
            "source_line": next(lines, None),
        }

    content = ("rerecording", identity)
    return batch.find_id(_REASON, content, {"fingerprint": identity}, describe)


def _name_input(moved: MovedInput) -> str:
    dtype = (moved["dtype"] or "").removeprefix("torch.")
    shape = "" if moved["shape"] is None else f"[{', '.join(map(str, moved['shape']))}]"
    return " ".join(filter(None, (moved["name"], dtype + shape)))


def _count_compile(batch: Batch, event: FrameContext) -> Compile | None:
    compile_, new = batch.frames.find(batch.run_id, event)
    batch.totals.add(compile_count=int(new))
    return compile_


def _add_of_compile(batch: Batch, event: FrameContext, table: str, **values: Any) -> None:
    _add_row(batch, event, table, _count_compile(batch, event), **values)


def _add_row(
    batch: Batch, event: FrameContext, table: str, compile_: Compile | None, **values: Any
) -> None:
    compile_key = compile_.key if compile_ else None
    row = {
        **select_table_fields(table, event),
        **values,
        "run_id": batch.run_id,
        "compile_key": compile_key,
    }
    _OF_COMPILE[table].add(batch.connection, row)


def write_snapshot(batch: Batch, event: SnapshotTaken) -> None:
    _save_losses(batch, event.process_id, event.losses)
    batch.connection.execute(
        """
        update processes set
          counters = :counters, compile_times = :compile_times, snapshot_final = :final,
          last_seen_us = max(last_seen_us, :time_us),
          cudnn_version = coalesce(:cudnn_version, cudnn_version)
        where id = :id and snapshot_final <= :final
        """,
        {
            "id": event.process_id,
            "final": int(event.final),
            "counters": dumps(event.counters),
            "compile_times": dumps(event.compile_times),
            "time_us": event.time_us,
            "cudnn_version": event.cudnn_version,
        },
    )


def write_losses(batch: Batch, event: RecordsLost) -> None:
    _save_losses(batch, event.process_id, event.losses)


def _save_losses(batch: Batch, process_id: str, losses: dict[str, int]) -> None:
    if not losses:
        return
    row = batch.connection.execute(
        "select losses from processes where id = :id", {"id": process_id}
    ).fetchone()
    known = (read_json(dict[str, int], row["losses"]) if row else None) or {}
    merged = {
        **known,
        **{reason: max(count, known.get(reason, 0)) for reason, count in losses.items()},
    }
    batch.totals.add(loss_count=sum(merged.values()) - sum(known.values()))
    if row:
        batch.connection.execute(
            "update processes set losses = :losses where id = :id",
            {"id": process_id, "losses": json.dumps(merged)},
        )


def write_page_faults(batch: Batch, event: PageFaultsCounted) -> None:
    batch.connection.execute(
        """
        update processes set
          calm_us = :calm_us, calm_cpu_us = :cpu_us, calm_fault_count = :fault_count,
          is_on_stack_cliff = :is_on_cliff, faults_counted_us = :time_us
        where id = :process_id and coalesce(faults_counted_us, 0) <= :time_us
        """,
        select_fields(
            event, "process_id", "time_us", "calm_us", "cpu_us", "fault_count", "is_on_cliff"
        ),
    )


def write_artifact(batch: Batch, event: ArtifactSeen) -> None:
    batch.traces.add_artifact(
        batch.run_id, event, batch.frames.key_of(event), _find_stack(batch, event)
    )


def _find_stack(batch: Batch, event: FrameContext) -> int | None:
    stack = event.envelope.get("stack")
    if not isinstance(stack, list) or not all(isinstance(frame, dict) for frame in stack):
        return None
    return batch.stacks.find(batch.run_id, stack)


def write_span(batch: Batch, event: SpanSeen) -> None:
    batch.traces.spans.add(batch.run_id, event, batch.frames.key_of(event))


def write_symbol(batch: Batch, event: SymbolSeen) -> None:
    stack_id = _find_stack(batch, event)
    envelope = strip_stack(event, stack_id)
    detail = {**event.detail, "envelope": envelope} if envelope else event.detail
    _SYMBOL.add(
        batch.connection,
        {
            **select_table_fields("symbols", event),
            "run_id": batch.run_id,
            "compile_key": batch.frames.key_of(event),
            "kind": event.symbol_kind,
            "detail": pack(dumps(detail)),
            "stack_id": stack_id,
        },
    )


def write_commits(batch: Batch, event: CommitsSeen) -> None:
    parents = [*(str(row[0]) for row in event.commits[1:]), event.parent_hash]
    rows = zip(event.commits, parents, strict=False)  # no commits: no last one
    save_commits(
        batch.connection, [StoredCommit(fields[0], parent, *fields[1:]) for fields, parent in rows]
    )


WRITERS: dict[type, Callable[..., None]] = {
    CommitsSeen: write_commits,
    ProcessStarted: write_process,
    ConfigSeen: write_config,
    CompileStarted: write_start,
    Compiled: write_compiled,
    GraphBroke: write_break,
    Recompiled: write_recompile,
    CompileFailed: write_failure,
    RuntimeFailed: write_runtime_failure,
    CacheLookedUp: write_cache,
    CudagraphSkipped: write_skip,
    CudagraphMade: write_cudagraph,
    StepsTimed: write_steps,
    ReproCaptured: write_repro,
    ReproValues: write_repro_values,
    ReproAnswered: write_repro_answer,
    SnapshotTaken: write_snapshot,
    RecordsLost: write_losses,
    PageFaultsCounted: write_page_faults,
    ArtifactSeen: write_artifact,
    SpanSeen: write_span,
    SymbolSeen: write_symbol,
    BenchMeasured: write_result,
}
