"""Schemas of what compiles did: records, graph breaks, recompiles, failures, caches."""

from __future__ import annotations

from typing import Any

from compileboard.app.api.schema import (
    Schema,
    count,
    duration_us,
    extend,
    flag,
    maybe,
    record,
    ref,
    rows,
    text,
    time_us,
    whole,
    word,
)
from compileboard.app.api.schemas_parts import (
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
)
from compileboard.collectors.fields import FIELDS

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
    guards=rows(ref("Guard"), "The failed guard of every cache entry, the newest first."),
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
    chain=rows(
        record("One compile of the same frame.", id=ID, compile_id=text("Compile id."), outcome=OUTCOME),
        "Every compile of the frame, first to last: at most 500.",
    ),
    restart_reasons=rows({"type": "string"}, "Why dynamo began again."),
    compilations=rows(ref("Compilation"), "Its records."),
    recompiles=rows(ref("Recompile"), "The recompile that it is, if any."),
    graph_breaks=rows(ref("GraphBreak"), "Its graph breaks."),
    failures=rows(ref("Failure"), "What it raised."),
    cache_lookups=rows(ref("CacheLookup"), "Its look-ups in caches."),
    cudagraph_skips=rows(ref("CudagraphSkip"), "The CUDA graphs it could not use."),
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
