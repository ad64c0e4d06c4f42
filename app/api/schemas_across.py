"""Schemas of what is summed over runs: the overview, distinct graph breaks, causes of recompiles."""

from __future__ import annotations

from compileboard.app.api.schema import (
    Schema,
    count,
    duration_us,
    extend,
    flag,
    mapping,
    maybe,
    record,
    ref,
    rows,
    text,
    time_us,
    whole,
)
from compileboard.app.api.schemas_parts import (
    AFFECTED_RUN,
    BREAK,
    CATEGORY,
    FILE,
    FUNCTION,
    HISTORY,
    PAGE_URL,
    PLACE,
    RECOMPILED_FROM,
    RUN_ENDS,
    SOURCE_LINE,
    STACK,
    TREND,
)

_SUMS = {
    "run_count": count("Runs that have it."),
    "compile_us": maybe(duration_us("Time of the compiles that had it.")),
}
_SEEN = {"first_us": time_us("Start of the first run that has it."), "last_us": time_us("Start of the last run.")}
_SCOPE = {"suite": maybe(text("Suite.")), "name": text("Name.")}

DISTINCT_BREAK = record(
    "One distinct graph break with what it came to in the runs looked at.",
    id=whole("Number in this database."),
    fingerprint=text("What identifies it in every database."),
    **BREAK,
    **PLACE,
    source_line=SOURCE_LINE,
    break_count=count("Graph breaks."),
    **_SUMS,
    **_SEEN,
    page_url=PAGE_URL,
)
RUN_DISTINCT_BREAK = record(
    "One distinct graph break with what it came to in one run.",
    distinct_id=whole("`id` of the distinct graph break."),
    **BREAK,
    **PLACE,
    source_line=SOURCE_LINE,
    break_count=count("Graph breaks."),
    compile_us=_SUMS["compile_us"],
    outcomes=mapping(count("Graph breaks."), "Graph breaks by outcome."),
    page_url=PAGE_URL,
)
BREAK_DETAIL = extend(
    DISTINCT_BREAK,
    "One distinct graph break over all runs.",
    stack=STACK,
    text=maybe(text("All that torch wrote, the newest time.")),
    debug_context=maybe(text("torch's context of it, the newest time.")),
    events=rows(
        record("One graph break.", id=whole("Number of the row."), outcome=text("What came of it."), **RUN_ENDS),
        "The newest 20.",
    ),
    history=HISTORY,
)
_CAUSE = {
    **CATEGORY,
    "meaning": text("What the category means."),
    "source": maybe(text("The guard's source expression.")),
    "reason": text("The failed guard in torch's words, as first seen."),
    "suggestion": maybe(text("What to do.")),
    "function": FUNCTION,
    "file": FILE,
    "recompile_count": count("Recompiles whose newest cache entry failed on it: each recompile has one cause."),
    "guard_failure_count": count("Cache entries that failed on it."),
}
CAUSE = record(
    "One cause of recompiles with what it came to in the runs looked at.",
    id=whole("Number in this database."),
    fingerprint=text("What identifies it in every database."),
    **_CAUSE,
    **_SUMS,
    **_SEEN,
    limit_count=count("Compiles of its function that hit the recompile limit."),
)
RUN_CAUSE = record(
    "One cause of recompiles with what it came to in one run.",
    cause_id=whole("`id` of the cause."),
    **_CAUSE,
    compile_us=_SUMS["compile_us"],
)
CAUSE_DETAIL = extend(
    CAUSE,
    "One cause of recompiles over all runs.",
    values=rows(
        record(
            "What a guard expected and what came.",
            expected=maybe(text("Expected.")),
            actual=maybe(text("Came.")),
            count=count("How often."),
        ),
        "The 12 most frequent pairs among the newest thousand failures.",
    ),
    events=rows(
        record(
            "One guard failure and the recompile it led to.",
            id=whole("`id` of the recompile."),
            recompiled_from=RECOMPILED_FROM,
            position=count("0 is the newest cache entry."),
            cache_entry=maybe(text("Compile id of the cache entry.")),
            reason=text("The failed guard."),
            expected=maybe(text("Expected.")),
            actual=maybe(text("Came.")),
            source_line=SOURCE_LINE,
            **RUN_ENDS,
        ),
        "The newest 20.",
    ),
    history=HISTORY,
)
_SLOTS = rows(
    record(
        "One place of a trend: one run, or consecutive ones.",
        started_us=time_us("Start of its first run."),
        run_id=text("Its last run."),
        run_count=count("Its runs."),
    ),
    "At most 48, oldest first.",
)
_KINDS = rows(
    record(
        "What distinct things of one kind came to.",
        kind=text("The kind."),
        gb_id=maybe(text("torch's id, for graph breaks.")),
        distinct_count=count("Distinct things."),
        function_count=count("Functions."),
        count=count("How often."),
        guard_failure_count=count("Failed cache entries, for recompiles."),
        compile_us=maybe(duration_us("Time of the compiles.")),
        trend=TREND,
    ),
    "The most frequent first.",
)
_EACH = rows(record("One distinct thing.", id=whole("Its `id`."), trend=TREND), "By `id`.")
_SUMMARY = {
    "function_count": count("Functions."),
    "run_count": count("Runs that have any."),
    "compile_us": maybe(duration_us("Time of the compiles that had them.")),
}
BREAK_TRENDS = record(
    "Distinct graph breaks over runs.",
    summary=record(
        "Sums.", distinct_count=count("Distinct graph breaks."), break_count=count("Graph breaks."), **_SUMMARY
    ),
    slots=_SLOTS,
    kinds=_KINDS,
    distinct=_EACH,
)
CAUSE_TRENDS = record(
    "Causes of recompiles over runs.",
    summary=record(
        "Sums.",
        cause_count=count("Causes."),
        recompile_count=count("Recompiles."),
        guard_failure_count=count("Failed cache entries."),
        limit_count=count("Compiles that hit the recompile limit, of all functions."),
        **_SUMMARY,
    ),
    slots=_SLOTS,
    kinds=_KINDS,
    distinct=_EACH,
)
_TOTALS = {
    "compile_count": count("Compiles."),
    "recompile_count": count("Recompiles."),
    "graph_break_count": count("Graph breaks."),
    "compile_us": maybe(duration_us("Compile time.")),
}
OVERVIEW = record(
    "What is in this database.",
    totals=record(
        "Sums over every run.",
        run_count=count("Runs."),
        running_count=count("Runs that are running."),
        **_TOTALS,
        recompile_limit_count=count("Compiles that hit the recompile limit."),
        failure_count=count("Failed compiles."),
        runtime_failure_count=count("Exceptions while compiled code ran, or that ended a program."),
        failed_run_count=count("Runs with a failure of either kind, or a failed result."),
        recompile_us=maybe(duration_us("Time of recompiles.")),
    ),
    series=rows(record("One suite and name.", **_SCOPE, run_count=count("Runs.")), "At most 500."),
    trend=rows(
        record(
            "One run.",
            run_id=text("The run's id."),
            **_SCOPE,
            title=maybe(text("What a person called it.")),
            state=text("Its state."),
            started_us=time_us("Start."),
            **_TOTALS,
            has_failed=flag("Whether a compile, running code or a result of it failed."),
            is_observed=flag("Whether torch was seen; a file of results counts nothing but its own columns."),
        ),
        "The newest runs, oldest first: as many as the setting trend_runs says.",
    ),
    newest_runs=rows(ref("Run"), "The newest 8."),
    graph_breaks=rows(
        record(
            "One distinct graph break.",
            distinct_id=whole("`id` of the distinct graph break."),
            **{key: BREAK[key] for key in ("gb_id", "gb_type", "reason")},
            **PLACE,
            source_line=SOURCE_LINE,
            break_count=count("Graph breaks."),
            **_SUMS,
        ),
        "The 8 most frequent in the newest runs.",
    ),
    functions=rows(
        record(
            "One function.",
            function_id=whole("Number in this database."),
            name=text("Qualified name."),
            file=text("File."),
            recompile_count=count("Recompiles."),
            recompile_limit_count=count("Compiles that hit the recompile limit."),
            compile_count=count("Compiles."),
            **_SUMS,
        ),
        "The 8 that recompile most in the newest runs.",
    ),
)

SCHEMAS: dict[str, Schema] = {
    "Overview": OVERVIEW,
    "DistinctBreak": DISTINCT_BREAK,
    "RunDistinctBreak": RUN_DISTINCT_BREAK,
    "DistinctBreakDetail": BREAK_DETAIL,
    "BreakTrends": BREAK_TRENDS,
    "Cause": CAUSE,
    "RunCause": RUN_CAUSE,
    "CauseDetail": CAUSE_DETAIL,
    "CauseTrends": CAUSE_TRENDS,
    "AffectedRun": AFFECTED_RUN,
}
