"""The AOTAutograd page of a run, and its API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from flask import Blueprint, request

from compileboard.app.aot.model import AotGraphRow, WrapperReport, build_aot
from compileboard.app.core.api import PageQuery, operation
from compileboard.app.core.db import get_run_reader
from compileboard.app.core.page import check_limit, encode_cursor
from compileboard.app.runs.run_queries import RunDetail
from compileboard.app.runs.shell import find_run, render_run

blueprint = Blueprint("aot", __name__)

PAGE = 25  # each graph is shown with all its findings


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


@dataclass(frozen=True)
class AotReport(WrapperReport):
    """What AOTAutograd's wrappers do in a run, and one page of its graphs."""

    graphs: Annotated[Sequence[AotGraphRow], "One page of graphs, as they were compiled."]
    next: Annotated[str | None, "`cursor` of the next page of graphs, null on the last."]


@operation("/runs/<run_id>/aot")
def get_aot(detail: RunDetail, page: PageQuery) -> AotReport:
    """Return what AOTAutograd recorded about a run's graphs, and what its wrappers do per call."""
    screen = build_aot(get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit)
    return AotReport(**vars(screen.report), graphs=screen.graphs, next=screen.next)
