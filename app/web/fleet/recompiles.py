"""Recompiles across runs: the page of their causes, and of one of them."""

from __future__ import annotations

from flask import Blueprint, abort, render_template, request

from compileboard.app.charts.breaks_and_recompiles import chart_categories, chart_cause, make_spark
from compileboard.app.db import get_clock, get_engine, get_reader, get_settings
from compileboard.app.queries.fleet.recompiles import FILTERS, read_cause_filter
from compileboard.app.queries.fleet.runs import list_choices
from compileboard.app.queries.page import check_limit
from compileboard.app.screens.fleet.recompiles import (
    build_cause_runs,
    build_recompile_cause,
    build_recompiles,
)
from compileboard.app.web.fleet.graph_breaks import MORE_FILTERS, read_id
from compileboard.collectors.contract.categories import CATEGORIES, label_category

blueprint = Blueprint("recompiles", __name__)

SORTS = (
    ("recompiles", "most recompiles"),
    ("compile_time", "most compile time"),
    ("runs", "most runs"),
    ("guard_failures", "most guard failures"),
    ("last", "last seen"),
    ("first", "newest cause first"),
)
_FILTERS = FILTERS


@blueprint.get("/recompiles")
def index() -> str:
    """List causes of recompiles that a filter lets through, with what they came to in those runs."""
    reader, args = get_reader(), request.args
    limit_count = check_limit(args.get("limit"), get_settings().page_size)
    selected = read_cause_filter(args)
    screen = build_recompiles(reader, selected, args.get("sort"), args.get("cursor"), limit_count)
    trends = screen.trends
    charted = trends.summary.recompile_count > 0
    return render_template(
        "recompiles/index.html",
        screen=screen,
        rows=[(cause, make_spark(trends.grid.line(cause.id))) for cause in screen.listed.causes],
        categories=[(label_category(totals.kind), totals) for totals in trends.grid.kinds],
        chart=chart_categories(trends.grid.kinds, list(trends.slots)) if charted else None,
        has_charts=charted,
        given={key: args.get(key, "") for key in _FILTERS},
        filtered=any(args.get(key) for key in _FILTERS),
        more_given=any(args.get(key) for key in MORE_FILTERS),
        choices=list_choices(get_engine()),
        options=[(category.name, category.label) for category in CATEGORIES],
        sorts=SORTS,
    )


@blueprint.get("/recompiles/<cause_id>")
def show(cause_id: str) -> str:
    """Show one cause: what it means, what to do, the values that came, in which runs."""
    reader, number = get_reader(), read_id(cause_id)
    limit_count = check_limit(request.args.get("limit"), get_settings().page_size)
    screen = build_recompile_cause(reader, number) if number is not None else None
    if screen is None:
        abort(404, f"There is no cause of recompiles {cause_id[:40]}; its runs may have been deleted.")
    return render_template(
        "recompiles/one.html",
        screen=screen,
        page_of_runs=build_cause_runs(reader, screen.cause.id, request.args.get("cursor"), limit_count, get_clock()),
        chart=chart_cause(screen.history) if len(screen.history) > 1 else None,
        has_charts=len(screen.history) > 1,
    )
