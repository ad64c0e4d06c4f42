"""The Symbolic shapes page of a run."""

from __future__ import annotations

from flask import Blueprint, request

from compileboard.app.db import get_run_reader
from compileboard.app.queries.page import check_limit
from compileboard.app.screens.run.shapes import build_run_shapes
from compileboard.app.web.run.shell import find_run, render_run

blueprint = Blueprint("shapes", __name__)

COMPILES = 6
MOST = 100


@blueprint.get("/runs/<run_id>/shapes")
def show(run_id: str) -> str:
    detail, limit = find_run(run_id), check_limit(request.args.get("limit"), COMPILES, MOST)
    screen = build_run_shapes(get_run_reader(run_id), run_id, request.args.get("cursor"), limit)
    return render_run(detail, "shapes/index.html", tab="shapes", screen=screen)
