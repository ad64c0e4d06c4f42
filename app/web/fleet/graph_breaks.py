"""Graph breaks across runs: the page of the distinct ones, and of one of them."""

from __future__ import annotations

from flask import Blueprint, abort, render_template, request

from compileboard.app.analysis.labels import describe_break_outcome
from compileboard.app.charts.breaks_and_recompiles import chart_break, chart_kinds, make_spark
from compileboard.app.db import get_clock, get_engine, get_reader, get_settings
from compileboard.app.queries.fleet.graph_breaks import FILTERS, read_break_filter
from compileboard.app.queries.fleet.runs import list_choices
from compileboard.app.queries.page import check_limit
from compileboard.app.screens.fleet.graph_breaks import (
    build_break_runs,
    build_graph_break,
    build_graph_breaks,
)

blueprint = Blueprint("graph_breaks", __name__)

SORTS = (
    ("breaks", "most frequent"),
    ("runs", "most runs"),
    ("compile_time", "most compile time"),
    ("last", "last seen"),
    ("first", "newest kind first"),
    ("first.asc", "oldest first"),
)
_FILTERS = FILTERS
MORE_FILTERS = ("name", "tag", "host", "gpu", "torch", "commit", "state", "since", "until")


def read_id(text: str) -> int | None:
    """Read a number of an address; None where it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


@blueprint.get("/graph_breaks")
def index() -> str:
    """List distinct graph breaks that a filter lets through, with what they came to in those runs."""
    reader, args = get_reader(), request.args
    limit_count = check_limit(args.get("limit"), get_settings().page_size)
    selected = read_break_filter(args)
    screen = build_graph_breaks(reader, selected, args.get("sort"), args.get("cursor"), limit_count)
    grid = screen.trends.grid
    return render_template(
        "graph_breaks/index.html",
        screen=screen,
        rows=[(row, make_spark(grid.line(row.id))) for row in screen.listed.graph_breaks],
        chart=chart_kinds(grid.kinds, list(screen.trends.slots)) if grid.kinds else None,
        has_charts=bool(grid.kinds),
        given={key: args.get(key, "") for key in _FILTERS},
        filtered=any(args.get(key) for key in _FILTERS),
        more_given=any(args.get(key) for key in MORE_FILTERS),
        choices=list_choices(get_engine()),
        sorts=SORTS,
    )


@blueprint.get("/graph_breaks/<distinct_id>")
def show(distinct_id: str) -> str:
    """Show one distinct graph break: why, what to do, in which runs, and its newest event."""
    reader, number = get_reader(), read_id(distinct_id)
    limit_count = check_limit(request.args.get("limit"), get_settings().page_size)
    screen = build_graph_break(reader, number) if number is not None else None
    if screen is None:
        abort(404, f"There is no graph break {distinct_id[:40]}; its runs may have been deleted.")
    return render_template(
        "graph_breaks/one.html",
        screen=screen,
        page_of_runs=build_break_runs(
            reader, screen.graph_break.id, request.args.get("cursor"), limit_count, get_clock()
        ),
        events=[(event, describe_break_outcome(event.outcome)) for event in screen.events],
        chart=chart_break(screen.history) if len(screen.history) > 1 else None,
        has_charts=len(screen.history) > 1,
    )
