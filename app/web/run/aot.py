"""What AOTAutograd found out about a run's graphs, and what its wrappers do around them at each call."""

from __future__ import annotations

from flask import Blueprint, request

from compileboard.app.analysis.aot.report import explain_graphs, report_run
from compileboard.app.db import get_reader
from compileboard.app.queries.page import check_limit, encode_cursor
from compileboard.app.queries.run.aot import list_aot_graphs
from compileboard.app.web.run.shell import find_run, render_run

blueprint = Blueprint("aot", __name__)

PAGE = 25  # each graph has all its findings on the page


@blueprint.get("/runs/<run_id>/aot")
def show(run_id: str) -> str:
    """Show the findings of a run's graphs, and the graphs one by one."""
    detail, reader = find_run(run_id), get_reader()
    limit = check_limit(request.args.get("limit"), PAGE, 200)
    listing = list_aot_graphs(reader, run_id, request.args.get("cursor"), limit)
    return render_run(
        detail,
        "aot/index.html",
        tab="aot",
        report=report_run(reader, run_id),
        graphs=explain_graphs(reader, run_id, listing.rows),
        listing=listing,
        cursor_before=lambda number: encode_cursor(number - 1),
    )
