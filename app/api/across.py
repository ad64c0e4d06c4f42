"""Across runs: the overview, distinct graph breaks, causes of recompiles."""

from __future__ import annotations

from typing import Any

from flask import request

from compileboard.app.analysis import rows
from compileboard.app.api.answer import Answer, give_page, read_cursor, read_limit, read_number, read_word, refuse
from compileboard.app.api.runs import shown_state
from compileboard.app.db import get_reader, get_settings
from compileboard.app.queries import distinct_break, graph_breaks, overview, recompile_cause, recompiles, runs
from compileboard.app.queries.events import get_event, list_stack
from compileboard.app.queries.scope import Cells, Slot, list_slots


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
    return give_page(page, rows.distinct_break_row)


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
    return give_page(page, rows.cause_row)


def get_recompile_trends() -> Answer:
    """Sum and draw the causes of recompiles over runs."""
    reader, wanted = get_reader(), recompiles.read_cause_filter(request.args)
    slots = list_slots(reader, wanted.runs)
    summary, cells = recompiles.get_cause_trends(reader, wanted, slots)
    return Answer(_trends(rows.plain_row(summary), cells, slots))


def _trends(summary: dict[str, Any], cells: Cells, slots: list[Slot]) -> dict[str, Any]:
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
    found = None if number is None else distinct_break.get_distinct_break(get_reader(), number)
    return found or refuse(f"There is no graph break {distinct_id[:40]}; its runs may have been deleted.")


def get_graph_break(distinct_id: str) -> Answer:
    """Return one distinct graph break."""
    it, reader = _find_break(distinct_id), get_reader()
    found = distinct_break.list_break_events(reader, it.id)
    newest = get_event(reader, found[0].process_id, found[0].sequence) if found else {}
    history = distinct_break.list_history(reader, distinct_break.HISTORY_SQL, it.id)
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
    page = distinct_break.list_affected(
        get_reader(), distinct_break.RUNS_SQL, it.id, cursor=read_cursor(), limit=read_limit()
    )
    return give_page(page, rows.plain_row)


def _find_cause(cause_id: str) -> recompiles.RecompileCause:
    number = read_number(cause_id)
    found = None if number is None else recompile_cause.get_cause(get_reader(), number)
    return found or refuse(f"There is no cause of recompiles {cause_id[:40]}; its runs may have been deleted.")


def get_recompile(cause_id: str) -> Answer:
    """Return one cause of recompiles."""
    it, reader = _find_cause(cause_id), get_reader()
    history = distinct_break.list_history(reader, recompile_cause.HISTORY_SQL, it.id)
    more = {
        "values": [rows.plain_row(pair) for pair in recompile_cause.list_value_changes(reader, it.id)],
        "events": [rows.plain_row(event) for event in recompile_cause.list_cause_events(reader, it.id)],
        "history": [rows.plain_row(point) for point in history],
    }
    return Answer(rows.cause_row(it) | more)


def list_recompile_runs(cause_id: str) -> Answer:
    """List the runs that have one cause of recompiles."""
    it = _find_cause(cause_id)
    page = distinct_break.list_affected(
        get_reader(), recompile_cause.RUNS_SQL, it.id, cursor=read_cursor(), limit=read_limit()
    )
    return give_page(page, rows.plain_row)
