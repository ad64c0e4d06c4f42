"""Schemas of what compiles did: records, graph breaks, recompiles, failures, caches."""

from __future__ import annotations

from typing import Any

from flask import request

from compileboard.app.analysis import rows
from compileboard.app.api.answers import (
    Answer,
    build_page_answer,
    find_run,
    read_cursor,
    read_limit,
    read_number,
    read_word,
)
from compileboard.app.api.schema import (
    BREAK,
    CATEGORY,
    COMPILE_ID,
    COMPILE_US,
    EVENT,
    ID,
    LINE,
    OUTCOME,
    PAGE_URL,
    PHASES,
    PLACE,
    PROCESS_ID,
    RANK,
    RECOMPILED_FROM,
    RECORD_PHASES,
    SOURCE_LINE,
    STACK,
    Schema,
    array_of,
    count,
    duration_us,
    extend,
    flag,
    maybe,
    record,
    ref,
    text,
    time_us,
    whole,
    word,
)
from compileboard.app.db import get_reader
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.run import compiles, failures, graph_breaks, recompiles, run
from compileboard.collectors.contract.fields import FIELDS

_UNITS = {
    "us": "Microseconds.",
    "ms": "Milliseconds.",
    "s": "Seconds.",
    "time_us": "Microseconds since 1970.",
    "time_s": "Seconds since 1970.",
    "bytes": "Bytes.",
}
_TIME = time_us("When.")


def _metric(name: str) -> Schema:
    field = FIELDS[name]
    said = f"{field.help} {_UNITS.get(field.unit, '')}".strip()
    return {"description": f"torch's `{name}`. {said}"}


COMPILE = record(
    "One attempt to compile a frame.",
    id=ID,
    process_id=PROCESS_ID,
    pid=maybe(whole("Process number of the operating system.")),
    rank=RANK,
    generation=count("How often the process had called `reset()`: compile ids start again."),
    compile_id=text("Compile id as torch prints it: `0/1`."),
    frame_id=maybe(whole("First number of the compile id.")),
    frame_compile_id=maybe(whole("Second number of the compile id.")),
    **PLACE,
    resumed_at=maybe(whole("Line at which it goes on after a graph break.")),
    outcome=OUTCOME,
    started_us=time_us("Start."),
    duration_us=maybe(duration_us("Duration of its forward record.")),
    total_us=maybe(duration_us("Forward and backward records together.")),
    attempt_count=count("Analyses, restarts included."),
    graph_break_count=count("Graph breaks."),
    recompiled_from=RECOMPILED_FROM,
    recompile_category=maybe(text("Kind of guard that failed on the newest cache entry.")),
    phases_us=PHASES,
)
_OURS: dict[str, Any] = {
    "id": ID,
    "sequence": whole("Number of the event in its process."),
    "process_id": PROCESS_ID,
    "rank": RANK,
    "compile_key": EVENT["compile_key"],
    "compile_id": COMPILE_ID,
    "kind": word("Which part of a compile the record is of.", ("forward", "backward", "runtime")),
    **PLACE,
    "outcome": OUTCOME,
    "start_us": maybe(time_us("Start.")),
    "duration_us": maybe(duration_us("Duration.")),
    "duration_source": maybe(text("torch's fields that the duration is of, `duration_us` where it has that.")),
    "phases_us": RECORD_PHASES,
    "restart_count": count("Restarts of the analysis."),
}
COMPILATION: Schema = {
    "type": "object",
    "description": (
        "One CompilationMetrics record with every metric under torch's own name, null where torch recorded none: its "
        "version has none, or left it empty. One that this document does not know is there as well. A configuration "
        "text is given as {config_hash}. Where a name of ours is one of torch's too, torch's value stands, if any."
    ),
    "properties": {name: _metric(name) for name in FIELDS} | _OURS,
    "required": [*_OURS, *(name for name in FIELDS if name not in _OURS)],
    "additionalProperties": True,
}
GRAPH_BREAK = record(
    "One graph break.",
    **EVENT,
    **BREAK,
    **PLACE,
    distinct_id=whole("`id` of the distinct graph break."),
    fingerprint=text("What identifies the distinct graph break in every database."),
    debug_context=maybe(text("torch's context of it.")),
    source_line=SOURCE_LINE,
    outcome=word(
        "Whether the function goes on compiled after it (resumed) or its frame runs eagerly (skipped).",
        ("resumed", "skipped", "unknown"),
    ),
    time_us=_TIME,
    compile_us=COMPILE_US,
    stack=STACK,
    text=text("All that torch wrote."),
    page_url=PAGE_URL,
)
GUARD = record(
    "Why one cache entry could not serve a call.",
    position=count("0 is the newest cache entry."),
    cause_id=whole("`id` of the cause."),
    cache_entry=maybe(text("Compile id of the cache entry.")),
    reason=text("The failed guard in torch's words."),
    **CATEGORY,
    source=maybe(text("The guard's source expression.")),
    expected=maybe(text("What the guard expected.")),
    actual=maybe(text("What came.")),
    suggestion=maybe(text("What to do.")),
    source_line=SOURCE_LINE,
    line=LINE,
)
RECOMPILE = record(
    "One recompile: a frame that already had cache entries.",
    **EVENT,
    **PLACE,
    recompiled_from=RECOMPILED_FROM,
    time_us=_TIME,
    compile_us=COMPILE_US,
    guards=array_of(ref("Guard"), "The failed guard of every cache entry, the newest first."),
)
CHAIN = record(
    "One frame that was compiled more than once.",
    process_id=PROCESS_ID,
    generation=count("How often the process had called `reset()`."),
    frame_id=maybe(whole("Frame.")),
    rank=RANK,
    pid=maybe(whole("Process number of the operating system.")),
    **PLACE,
    recompile_count=count("Recompiles."),
    compile_us=maybe(duration_us("Time of the recompiles.")),
    limit_count=count("Compiles that hit the recompile limit."),
)
LIMIT_HIT = record(
    "One compile that dynamo gave up on.",
    compile_key=whole("`id` of the compile."),
    compile_id=text("Compile id as torch prints it."),
    process_id=PROCESS_ID,
    rank=RANK,
    **PLACE,
    recompile_category=maybe(text("Kind of guard that failed on the newest cache entry.")),
    recompiled_from=RECOMPILED_FROM,
    started_us=time_us("Start."),
    fail_reason=maybe(text("What torch said.")),
)
FAILURE = record(
    "One exception that a compile raised, or compiled code while it ran, or that ended the program.",
    **EVENT,
    outcome=maybe(OUTCOME),
    phase=word("What raised it.", ("compile", "forward", "backward", "wrapper", "program")),
    occurrence_count=count("How often the same was raised; 1 of a compile."),
    ended_program=flag("Whether it ended the program."),
    **PLACE,
    error_type=maybe(text("Type of the exception.")),
    message=maybe(text("What it said.")),
    time_us=_TIME,
    text=text("The traceback."),
)
CACHE_LOOKUP = record(
    "One look-up in a cache.",
    **EVENT,
    function=PLACE["function"],
    cache=word("Which cache.", ("fx_graph", "aot_autograd")),
    result=word("What it answered.", ("hit", "miss", "bypass")),
    key=maybe(text("Key of the cache entry.")),
    reason=maybe(text("Why.")),
    time_taken_us=maybe(duration_us("Time it took.")),
    time_saved_us=maybe(duration_us("Time that torch says it saved.")),
    time_us=_TIME,
)
CUDAGRAPH_SKIP = record(
    "One CUDA graph that inductor could not use.",
    **EVENT,
    **PLACE,
    reason=text("Why."),
    time_us=_TIME,
)
COMPILE_DETAIL = extend(
    COMPILE,
    "One compile with all that belongs to it. The lists of events have at most 100 rows.",
    stack=STACK,
    chain=array_of(
        record("One compile of the same frame.", id=ID, compile_id=text("Compile id."), outcome=OUTCOME),
        "Every compile of the frame, first to last: at most 500.",
    ),
    restart_reasons=array_of({"type": "string"}, "Why dynamo began again."),
    compilations=array_of(ref("Compilation"), "Its records."),
    recompiles=array_of(ref("Recompile"), "The recompile that it is, if any."),
    graph_breaks=array_of(ref("GraphBreak"), "Its graph breaks."),
    failures=array_of(ref("Failure"), "What it raised."),
    cache_lookups=array_of(ref("CacheLookup"), "Its look-ups in caches."),
    cudagraph_skips=array_of(ref("CudagraphSkip"), "The CUDA graphs it could not use."),
)

SCHEMAS: dict[str, Schema] = {
    "Compile": COMPILE,
    "CompileDetail": COMPILE_DETAIL,
    "Compilation": COMPILATION,
    "GraphBreak": GRAPH_BREAK,
    "Guard": GUARD,
    "Recompile": RECOMPILE,
    "Chain": CHAIN,
    "LimitHit": LIMIT_HIT,
    "Failure": FAILURE,
    "CacheLookup": CACHE_LOOKUP,
    "CudagraphSkip": CUDAGRAPH_SKIP,
}


_YES_NO = {"": None, "yes": True, "no": False}


def list_compiles(run_id: str) -> Answer:
    """List compiles."""
    find_run(run_id)
    recompiled = request.args.get("recompiled", "")
    if recompiled not in _YES_NO:
        raise FilterError(f"recompiled: {recompiled[:40]!r} is neither yes nor no")
    wanted = compiles.CompileFilter(read_word("outcome"), read_word("q"), _YES_NO[recompiled])
    sort = request.args.get("sort") or "started.asc"
    page = compiles.list_compiles(get_reader(), run_id, wanted, sort=sort, cursor=read_cursor(), limit=read_limit())
    return build_page_answer(page, rows.compile_row)


def list_compilations(run_id: str) -> Answer:
    """List CompilationMetrics records."""
    find_run(run_id)
    page = compiles.list_compilations(get_reader(), run_id, read_cursor(), read_limit())
    return build_page_answer(page, rows.compilation_row)


def list_graph_breaks(run_id: str) -> Answer:
    """List graph breaks."""
    find_run(run_id)
    distinct = request.args.get("distinct", "")
    number = read_number(distinct)
    if distinct and number is None:
        raise FilterError(f"distinct: {distinct[:40]!r} is not the number of a distinct graph break")
    page = graph_breaks.list_graph_breaks(get_reader(), run_id, read_cursor(), read_limit(), distinct_id=number)
    return build_page_answer(page, rows.graph_break_row)


def list_distinct_breaks(run_id: str) -> Answer:
    """List distinct graph breaks."""
    find_run(run_id)
    page = graph_breaks.list_distinct_breaks(get_reader(), run_id, read_cursor(), read_limit())
    return build_page_answer(page, rows.distinct_break_row)


def list_recompiles(run_id: str) -> Answer:
    """List recompiles."""
    find_run(run_id)
    return build_page_answer(
        recompiles.list_recompiles(get_reader(), run_id, read_cursor(), read_limit()), rows.recompile_row
    )


def list_chains(run_id: str) -> Answer:
    """List frames that were compiled again."""
    find_run(run_id)
    return build_page_answer(recompiles.list_chains(get_reader(), run_id, read_cursor(), read_limit()), rows.plain_row)


def list_causes(run_id: str) -> Answer:
    """List what the run was recompiled for."""
    find_run(run_id)
    return build_page_answer(
        recompiles.list_causes(get_reader(), run_id, read_cursor(), read_limit(), of_older_entries=True), rows.cause_row
    )


def list_limit_hits(run_id: str) -> Answer:
    """List compiles that dynamo gave up on."""
    find_run(run_id)
    return build_page_answer(
        recompiles.list_limit_hits(get_reader(), run_id, read_cursor(), read_limit()), rows.plain_row
    )


def list_failures(run_id: str) -> Answer:
    """List exceptions that compiles raised."""
    find_run(run_id)
    return build_page_answer(failures.list_failures(get_reader(), run_id, read_cursor(), read_limit()), rows.plain_row)


def list_cache_lookups(run_id: str) -> Answer:
    """List look-ups in caches."""
    find_run(run_id)
    page = failures.list_cache_lookups(get_reader(), run_id, read_cursor(), read_limit())
    return build_page_answer(page, rows.plain_row)


def list_cudagraph_skips(run_id: str) -> Answer:
    """List CUDA graphs that were not used."""
    find_run(run_id)
    page = failures.list_cudagraph_skips(get_reader(), run_id, read_cursor(), read_limit())
    return build_page_answer(page, rows.plain_row)


def list_processes(run_id: str) -> Answer:
    """List processes."""
    find_run(run_id)
    return build_page_answer(run.list_process_page(get_reader(), run_id, read_cursor(), read_limit()), rows.process_row)


def list_notes(run_id: str) -> Answer:
    """List records that have no decoder."""
    find_run(run_id)
    return build_page_answer(run.list_notes(get_reader(), run_id, read_cursor(), read_limit()), rows.plain_row)
