"""Graph breaks across runs: the distinct ones, and one of them."""

from __future__ import annotations

from flask import Blueprint, abort, render_template, request

from compileboard.app.analysis.labels import describe_break_outcome
from compileboard.app.charts.breaks_and_recompiles import chart_break, chart_kinds, make_spark
from compileboard.app.db import get_reader, get_settings
from compileboard.app.queries.fields import gb_url
from compileboard.app.queries.fleet import graph_breaks
from compileboard.app.queries.fleet.models import BREAKS_SQL, list_affected_models
from compileboard.app.queries.fleet.runs import list_choices
from compileboard.app.queries.fleet.scope import list_slots
from compileboard.app.queries.page import check_limit
from compileboard.app.queries.run.trace_files import get_event, list_stack

blueprint = Blueprint("graph_breaks", __name__)

SORTS = (
    ("breaks", "most frequent"),
    ("runs", "most runs"),
    ("compile_time", "most compile time"),
    ("last", "last seen"),
    ("first", "newest kind first"),
    ("first.asc", "oldest first"),
)
_FILTERS = graph_breaks.FILTERS
_MORE = ("name", "tag", "host", "gpu", "torch", "commit", "state", "since", "until")


def read_id(text: str) -> int | None:
    """Read a number of an address; None where it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


@blueprint.get("/graph_breaks")
def index() -> str:
    """List distinct graph breaks that a filter lets through, with what they came to in those runs."""
    reader = get_reader()
    wanted = graph_breaks.read_break_filter(request.args)
    sort = request.args.get("sort") or "breaks"
    limit = check_limit(request.args.get("limit"), get_settings().page_size)
    cursor = request.args.get("cursor")
    page = graph_breaks.list_distinct_breaks(reader, wanted, sort=sort, cursor=cursor, limit=limit)
    slots = list_slots(reader, wanted.runs)
    summary, cells = graph_breaks.get_break_trends(reader, wanted, slots)
    return render_template(
        "graph_breaks/index.html",
        rows=[(it, make_spark(cells.line(it.id))) for it in page.rows],
        next=page.next,
        summary=summary,
        kinds=cells.kinds,
        chart=chart_kinds(cells.kinds, slots) if cells.kinds else None,
        has_charts=bool(cells.kinds),
        run_count=sum(slot.run_count for slot in slots),
        given={key: request.args.get(key, "") for key in _FILTERS},
        filtered=any(request.args.get(key) for key in _FILTERS),
        more_given=any(request.args.get(key) for key in _MORE),
        choices=list_choices(reader),
        sort=sort,
        sorts=SORTS,
        gb_url=gb_url,
    )


@blueprint.get("/graph_breaks/<distinct_id>")
def show(distinct_id: str) -> str:
    """Show one distinct graph break: why, what to do, in which runs, and its newest event."""
    reader, number = get_reader(), read_id(distinct_id)
    it = graph_breaks.get_distinct_break(reader, number) if number is not None else None
    if it is None:
        abort(404, f"There is no graph break {distinct_id[:40]}; its runs may have been deleted.")
    limit = check_limit(request.args.get("limit"), get_settings().page_size)
    page = graph_breaks.list_affected(
        reader, graph_breaks.RUNS_SQL, it.id, cursor=request.args.get("cursor"), limit=limit
    )
    events = graph_breaks.list_break_events(reader, it.id)
    newest = get_event(reader, events[0].process_id, events[0].sequence) if events else {}
    history = graph_breaks.list_history(reader, graph_breaks.HISTORY_SQL, it.id)
    return render_template(
        "graph_breaks/one.html",
        it=it,
        page_of_runs=page,
        models=list_affected_models(reader, BREAKS_SQL, it.id),
        events=[(event, describe_break_outcome(event.outcome)) for event in events],
        stack=list_stack(newest),
        text=newest.get("text") or "",
        context=newest.get("debug_context"),
        chart=chart_break(history) if len(history) > 1 else None,
        has_charts=len(history) > 1,
        gb_url=gb_url,
    )
