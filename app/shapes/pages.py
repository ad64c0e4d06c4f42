"""The Symbolic shapes page of a run, and its API."""

from __future__ import annotations

from flask import Blueprint, request

from compileboard.app.core.api import PageQuery, operation
from compileboard.app.core.db import get_run_reader
from compileboard.app.core.page import Page, check_limit
from compileboard.app.runs.run_queries import RunDetail
from compileboard.app.runs.shell import find_run, render_run
from compileboard.app.shapes.model import ShapeCompileRow, build_run_shapes
from compileboard.app.shapes.model import list_shapes as list_compiles

blueprint = Blueprint("shapes", __name__)

COMPILES = 6
MOST = 100


@blueprint.get("/runs/<run_id>/shapes")
def show(run_id: str) -> str:
    detail, limit = find_run(run_id), check_limit(request.args.get("limit"), COMPILES, MOST)
    screen = build_run_shapes(get_run_reader(run_id), run_id, request.args.get("cursor"), limit)
    return render_run(detail, "shapes/index.html", tab="shapes", screen=screen)


@operation("/runs/<run_id>/shapes")
def list_shapes(detail: RunDetail, page: PageQuery) -> Page[ShapeCompileRow]:
    """List a run's symbolic shapes by compile: the meaning of each symbol, the code that fixed or
    guarded it, and its fix.
    """
    return list_compiles(get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit)
