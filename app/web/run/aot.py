"""The AOTAutograd page of a run."""

from __future__ import annotations

from flask import Blueprint, request

from compileboard.app.db import get_run_reader
from compileboard.app.queries.page import check_limit, encode_cursor
from compileboard.app.screens.run.aot import build_aot
from compileboard.app.web.run.shell import find_run, render_run

blueprint = Blueprint("aot", __name__)

PAGE = 25  # each graph has all its findings on the page


@blueprint.get("/runs/<run_id>/aot")
def show(run_id: str) -> str:
    detail, limit = find_run(run_id), check_limit(request.args.get("limit"), PAGE, 200)
    screen = build_aot(get_run_reader(run_id), run_id, request.args.get("cursor"), limit)
    return render_run(
        detail,
        "aot/index.html",
        tab="aot",
        screen=screen,
        cursor_before=lambda number: encode_cursor(number - 1),
    )
