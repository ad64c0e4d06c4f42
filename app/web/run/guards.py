"""The guards of a run, one set as a tree, and a diff of two sets."""

from __future__ import annotations

from flask import Blueprint, abort, request

from compileboard.app.analysis.guards.tree import (
    build_view,
    filter_tree,
    list_rows,
    number_nodes,
    take_subtree,
)
from compileboard.app.charts.guards import chart_kinds
from compileboard.app.db import get_reader, get_run_reader, get_settings
from compileboard.app.queries.page import FilterError, check_limit
from compileboard.app.queries.run.artifacts import check_artifact_id
from compileboard.app.screens.run.guards import (
    MOST_PLACES,
    GuardSetScreen,
    build_guard_set,
    build_guards,
    compare_guard_sets,
)
from compileboard.app.web.run.shell import find_run, render_run

blueprint = Blueprint("guards", __name__)

ROWS = 600  # of a tree on one page; each subtree has a page of its own
DIFF_ROWS = 200


@blueprint.get("/runs/<run_id>/guards")
def show(run_id: str) -> str:
    detail, sort = find_run(run_id), request.args.get("sort") or "latency"
    limit = check_limit(request.args.get("limit"), get_settings().page_size)
    screen = build_guards(get_run_reader(run_id), run_id, sort, request.args.get("cursor"), limit)
    sums = screen.sums
    return render_run(
        detail,
        "guards/index.html",
        tab="guards",
        has_charts=bool(sums.kinds),
        screen=screen,
        sort=sort,
        roots=sums.roots[:MOST_PLACES],
        chart=chart_kinds(sums.kinds, sums.guard_count) if sums.kinds else None,
    )


def find_set(run_id: str, artifact_id: int, *, of_any: bool = False) -> GuardSetScreen:
    screen = build_guard_set(get_run_reader(run_id), run_id, artifact_id)
    if screen is None and of_any:
        screen = build_guard_set(get_reader(), None, artifact_id)
    if screen is None or screen.artifact is None:
        abort(404, f"There are no guards with the number {artifact_id} here.")
    return screen


@blueprint.get("/runs/<run_id>/guards/<int:artifact_id>")
def show_one(run_id: str, artifact_id: int) -> str:
    detail = find_run(run_id)
    screen = find_set(run_id, artifact_id)
    query, at = request.args.get("q", "").strip()[:200], request.args.get("at", "")
    if at and not (at.isascii() and at.isdigit() and len(at) < 10):
        raise FilterError(f"at: {at[:40]!r} is not the number of a line of this tree")
    matching = filter_tree(screen.tree, query) if screen.tree is not None and query else screen.tree
    part = take_subtree(matching, int(at)) if matching is not None and at else matching
    if at and matching is not None and part is None:
        abort(404, f"These guards have no line number {at}.")
    largest_first = request.args.get("order") == "largest"
    view = (
        build_view(part, 5 if query or at else 3, ROWS, largest_first) if part is not None else None
    )
    return render_run(
        detail,
        "guards/one.html",
        tab="guards",
        screen=screen,
        view=view,
        rows=list_rows(view, number_nodes(matching))
        if view is not None and matching is not None
        else [],
        query=query,
        part=part.nodes[0] if at and part is not None else None,
        largest_first=largest_first,
    )


@blueprint.get("/runs/<run_id>/guards/diff")
def show_diff(run_id: str) -> str:
    """Compare the guards of two compiles: `a` is the earlier artifact, `b` the later one."""
    detail = find_run(run_id)
    before, after = (
        find_set(run_id, check_artifact_id(name, request.args.get(name, "")), of_any=True)
        for name in ("a", "b")
    )
    screen = compare_guard_sets(before, after)
    return render_run(detail, "guards/diff.html", tab="guards", screen=screen, most=DIFF_ROWS)
