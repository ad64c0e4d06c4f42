"""The Symbolic shapes page of a run: what symbols stand for, what fixed or guarded them, which lines did."""

from __future__ import annotations

from flask import Blueprint, request

from compileboard.app.analysis.labels import describe_outcome
from compileboard.app.analysis.run_cache import cached_for_run
from compileboard.app.analysis.shapes import build_shapes, describe_guard, describe_range, describe_reason
from compileboard.app.db import get_reader
from compileboard.app.queries.page import check_limit
from compileboard.app.queries.run.shapes import count_kinds, list_lines, list_shape_compiles
from compileboard.app.web.run.shell import find_run, render_run

blueprint = Blueprint("shapes", __name__)

COMPILES = 6
MOST = 100


@blueprint.get("/runs/<run_id>/shapes")
def show(run_id: str) -> str:
    """Show the symbolic shapes of a run, compile by compile."""
    detail, reader = find_run(run_id), get_reader()
    limit = check_limit(request.args.get("limit"), COMPILES, MOST)
    listing = list_shape_compiles(reader, run_id, request.args.get("cursor"), limit)
    return render_run(
        detail,
        "shapes/index.html",
        tab="shapes",
        listing=listing,
        views=[build_shapes(it) for it in listing.rows],
        counts=cached_for_run(reader, run_id, count_kinds),
        lines=cached_for_run(reader, run_id, list_lines),
        describe_guard=describe_guard,
        describe_outcome=describe_outcome,
        describe_range=describe_range,
        describe_reason=describe_reason,
    )
