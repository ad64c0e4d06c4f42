"""Recompiles across runs: their causes, and one of them."""

from __future__ import annotations

from flask import Blueprint, abort, render_template, request

from compileboard.app.charts.breaks_and_recompiles import chart_categories, chart_cause, make_spark
from compileboard.app.db import get_reader, get_settings
from compileboard.app.queries.fleet import graph_breaks, recompiles
from compileboard.app.queries.fleet.models import CAUSES_SQL, list_affected_models
from compileboard.app.queries.fleet.runs import list_choices
from compileboard.app.queries.fleet.scope import list_slots
from compileboard.app.queries.page import check_limit
from compileboard.app.web.fleet.graph_breaks import read_id
from compileboard.collectors.contract.categories import CATEGORIES, describe

blueprint = Blueprint("recompiles", __name__)

SORTS = (
    ("recompiles", "most recompiles"),
    ("compile_time", "most compile time"),
    ("runs", "most runs"),
    ("guard_failures", "most guard failures"),
    ("last", "last seen"),
    ("first", "newest cause first"),
)
_FILTERS = recompiles.FILTERS
_MORE = ("name", "tag", "host", "gpu", "torch", "commit", "state", "since", "until")


@blueprint.get("/recompiles")
def index() -> str:
    """List causes of recompiles that a filter lets through, with what they came to in those runs."""
    reader = get_reader()
    wanted = recompiles.read_cause_filter(request.args)
    sort = request.args.get("sort") or "recompiles"
    limit = check_limit(request.args.get("limit"), get_settings().page_size)
    page = recompiles.list_causes(reader, wanted, sort=sort, cursor=request.args.get("cursor"), limit=limit)
    slots = list_slots(reader, wanted.runs)
    summary, cells = recompiles.get_cause_trends(reader, wanted, slots)
    charted = summary.recompile_count > 0
    return render_template(
        "recompiles/index.html",
        rows=[(it, make_spark(cells.line(it.id))) for it in page.rows],
        next=page.next,
        summary=summary,
        categories=[(describe(it.kind), it) for it in cells.kinds],
        chart=chart_categories(cells.kinds, slots) if charted else None,
        has_charts=charted,
        run_count=sum(slot.run_count for slot in slots),
        given={key: request.args.get(key, "") for key in _FILTERS},
        filtered=any(request.args.get(key) for key in _FILTERS),
        more_given=any(request.args.get(key) for key in _MORE),
        choices=list_choices(reader),
        options=[(it.name, it.label) for it in CATEGORIES],
        sort=sort,
        sorts=SORTS,
    )


@blueprint.get("/recompiles/<cause_id>")
def show(cause_id: str) -> str:
    """Show one cause: what it means, what to do, the values that came, in which runs."""
    reader, number = get_reader(), read_id(cause_id)
    it = recompiles.get_cause(reader, number) if number is not None else None
    if it is None:
        abort(404, f"There is no cause of recompiles {cause_id[:40]}; its runs may have been deleted.")
    limit = check_limit(request.args.get("limit"), get_settings().page_size)
    page = graph_breaks.list_affected(
        reader, recompiles.RUNS_SQL, it.id, cursor=request.args.get("cursor"), limit=limit
    )
    history = graph_breaks.list_history(reader, recompiles.HISTORY_SQL, it.id)
    return render_template(
        "recompiles/one.html",
        it=it,
        page_of_runs=page,
        models=list_affected_models(reader, CAUSES_SQL, it.id),
        events=recompiles.list_cause_events(reader, it.id),
        values=recompiles.list_value_changes(reader, it.id),
        chart=chart_cause(history) if len(history) > 1 else None,
        has_charts=len(history) > 1,
    )
