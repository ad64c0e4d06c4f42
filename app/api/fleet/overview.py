"""Schemas of what is summed over runs: the overview, distinct graph breaks, causes of recompiles."""

from __future__ import annotations

from typing import Any

from flask import request

from compileboard.app.analysis import rows
from compileboard.app.api.answers import (
    Answer,
    build_page_answer,
    read_cursor,
    read_limit,
    read_number,
    read_word,
    refuse,
)
from compileboard.app.api.run.run import shown_state
from compileboard.app.api.schema import (
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
    Schema,
    array_of,
    count,
    duration_us,
    extend,
    flag,
    mapping,
    maybe,
    record,
    ref,
    text,
    time_us,
    whole,
)
from compileboard.app.db import get_reader, get_settings
from compileboard.app.queries.fleet import graph_breaks, overview, recompiles, runs
from compileboard.app.queries.fleet.scope import Slot, TrendGrid, list_slots
from compileboard.app.queries.run.trace_files import get_event, list_stack

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
    events=array_of(
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
    values=array_of(
        record(
            "What a guard expected and what came.",
            expected=maybe(text("Expected.")),
            actual=maybe(text("Came.")),
            count=count("How often."),
        ),
        "The 12 most frequent pairs among the newest thousand failures.",
    ),
    events=array_of(
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
_SLOTS = array_of(
    record(
        "One place of a trend: one run, or consecutive ones.",
        started_us=time_us("Start of its first run."),
        run_id=text("Its last run."),
        run_count=count("Its runs."),
    ),
    "At most 48, oldest first.",
)
_KINDS = array_of(
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
_EACH = array_of(record("One distinct thing.", id=whole("Its `id`."), trend=TREND), "By `id`.")
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
    series=array_of(record("One suite and name.", **_SCOPE, run_count=count("Runs.")), "At most 500."),
    trend=array_of(
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
    newest_runs=array_of(ref("Run"), "The newest 8."),
    graph_breaks=array_of(
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
    functions=array_of(
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


def get_overview() -> Answer:
    """Return what is in this database."""
    reader, newest = get_reader(), get_settings().trend_runs
    suite, name = read_word("suite"), read_word("name")
    page = runs.list_runs(reader, runs.RunFilter(suite=suite, name=name), pinned_first=False, limit=8)
    tags = runs.list_tags(reader, [run.id for run in page.rows])
    return Answer(
        {
            "totals": rows.plain_row(overview.get_totals(reader, suite, name)),
            "series": [rows.plain_row(it) for it in overview.list_series(reader)],
            "trend": [rows.plain_row(it) for it in overview.list_trend(reader, suite, name, newest=newest)],
            "newest_runs": [rows.run_row(run, tags[run.id]) | {"shown_state": shown_state(run)} for run in page.rows],
            "graph_breaks": [rows.plain_row(it) for it in overview.list_top_breaks(reader, suite, name, newest=newest)],
            "functions": [rows.plain_row(it) for it in overview.list_top_functions(reader, suite, name, newest=newest)],
        }
    )


def list_graph_breaks() -> Answer:
    """List distinct graph breaks across runs."""
    wanted, sort = graph_breaks.read_break_filter(request.args), request.args.get("sort") or "breaks"
    page = graph_breaks.list_distinct_breaks(get_reader(), wanted, sort=sort, cursor=read_cursor(), limit=read_limit())
    return build_page_answer(page, rows.distinct_break_row)


def get_graph_break_trends() -> Answer:
    """Sum and draw the distinct graph breaks over runs."""
    reader, wanted = get_reader(), graph_breaks.read_break_filter(request.args)
    slots = list_slots(reader, wanted.runs)
    summary, cells = graph_breaks.get_break_trends(reader, wanted, slots)
    return Answer(_trends(rows.plain_row(summary), cells, slots))


def list_recompiles() -> Answer:
    """List causes of recompiles across runs."""
    wanted, sort = recompiles.read_cause_filter(request.args), request.args.get("sort") or "recompiles"
    page = recompiles.list_causes(get_reader(), wanted, sort=sort, cursor=read_cursor(), limit=read_limit())
    return build_page_answer(page, rows.cause_row)


def get_recompile_trends() -> Answer:
    """Sum and draw the causes of recompiles over runs."""
    reader, wanted = get_reader(), recompiles.read_cause_filter(request.args)
    slots = list_slots(reader, wanted.runs)
    summary, cells = recompiles.get_cause_trends(reader, wanted, slots)
    return Answer(_trends(rows.plain_row(summary), cells, slots))


def _trends(summary: dict[str, Any], cells: TrendGrid, slots: list[Slot]) -> dict[str, Any]:
    kinds = [
        {
            "kind": it.kind,
            "gb_id": it.gb_id,
            "distinct_count": it.things,
            "function_count": len(it.functions),
            "count": it.count,
            "guard_failure_count": it.guard_failure_count,
            "compile_us": it.compile_us,
            "trend": it.line,
        }
        for it in cells.kinds
    ]
    each = [{"id": key, "trend": line} for key, line in sorted(cells.lines.items())]
    return {"summary": summary, "slots": [rows.plain_row(it) for it in slots], "kinds": kinds, "distinct": each}


def _find_break(distinct_id: str) -> graph_breaks.DistinctBreak:
    number = read_number(distinct_id)
    found = None if number is None else graph_breaks.get_distinct_break(get_reader(), number)
    return found or refuse(f"There is no graph break {distinct_id[:40]}; its runs may have been deleted.")


def get_graph_break(distinct_id: str) -> Answer:
    """Return one distinct graph break."""
    it, reader = _find_break(distinct_id), get_reader()
    found = graph_breaks.list_break_events(reader, it.id)
    newest = get_event(reader, found[0].process_id, found[0].sequence) if found else {}
    history = graph_breaks.list_history(reader, graph_breaks.HISTORY_SQL, it.id)
    more = {
        "stack": list_stack(newest),
        "text": newest.get("text") or None,
        "debug_context": newest.get("debug_context"),
        "events": [rows.plain_row(event) for event in found],
        "history": [rows.plain_row(point) for point in history],
    }
    return Answer(rows.distinct_break_row(it) | more)


def list_graph_break_runs(distinct_id: str) -> Answer:
    """List the runs that have one distinct graph break."""
    it = _find_break(distinct_id)
    page = graph_breaks.list_affected(
        get_reader(), graph_breaks.RUNS_SQL, it.id, cursor=read_cursor(), limit=read_limit()
    )
    return build_page_answer(page, rows.plain_row)


def _find_cause(cause_id: str) -> recompiles.RecompileCause:
    number = read_number(cause_id)
    found = None if number is None else recompiles.get_cause(get_reader(), number)
    return found or refuse(f"There is no cause of recompiles {cause_id[:40]}; its runs may have been deleted.")


def get_recompile(cause_id: str) -> Answer:
    """Return one cause of recompiles."""
    it, reader = _find_cause(cause_id), get_reader()
    history = graph_breaks.list_history(reader, recompiles.HISTORY_SQL, it.id)
    more = {
        "values": [rows.plain_row(pair) for pair in recompiles.list_value_changes(reader, it.id)],
        "events": [rows.plain_row(event) for event in recompiles.list_cause_events(reader, it.id)],
        "history": [rows.plain_row(point) for point in history],
    }
    return Answer(rows.cause_row(it) | more)


def list_recompile_runs(cause_id: str) -> Answer:
    """List the runs that have one cause of recompiles."""
    it = _find_cause(cause_id)
    page = graph_breaks.list_affected(
        get_reader(), recompiles.RUNS_SQL, it.id, cursor=read_cursor(), limit=read_limit()
    )
    return build_page_answer(page, rows.plain_row)
