"""The guards of a run: how many, of which kinds, what checking them takes; one set as a tree; two sets compared."""

from __future__ import annotations

from flask import Blueprint, abort, request

from compileboard.app.analysis.guards.breakdown import advise, describe_kind, list_origins, sum_guards
from compileboard.app.analysis.guards.diff import compare_guards
from compileboard.app.analysis.guards.tree import (
    build_view,
    explain_cost,
    filter_tree,
    list_rows,
    number_nodes,
    take_subtree,
)
from compileboard.app.charts.guards import chart_kinds
from compileboard.app.db import get_reader, get_settings
from compileboard.app.queries.page import FilterError, check_limit
from compileboard.app.queries.run import guards
from compileboard.app.queries.run.artifacts import Artifact, check_artifact_id, get_artifact
from compileboard.app.queries.run.guards import GuardSet
from compileboard.app.web.run.shell import find_run, render_run
from compileboard.collectors.store.payloads import GuardTree, parse_guards

blueprint = Blueprint("guards", __name__)

ROOTS_SHOWN = 20
ROWS = 600  # of a tree on one page; each subtree has a page of its own
DIFF_ROWS = 200


@blueprint.get("/runs/<run_id>/guards")
def show(run_id: str) -> str:
    """Show what a run's guards come to, and its sets of guards."""
    detail, reader = find_run(run_id), get_reader()
    sort = request.args.get("sort") or "latency"
    limit = check_limit(request.args.get("limit"), get_settings().page_size)
    listing = guards.list_guard_sets(reader, run_id, sort, request.args.get("cursor"), limit)
    totals = guards.get_totals(reader, run_id)
    sums = sum_guards(guards.list_summaries(reader, run_id))
    origins = list_origins(sums)
    return render_run(
        detail,
        "guards/index.html",
        tab="guards",
        has_charts=bool(sums.kinds),
        listing=listing,
        sort=sort,
        totals=totals,
        sums=sums,
        roots=sums.roots[:ROOTS_SHOWN],
        origins=origins,
        advice=advise(origins, totals.median_us),
        chart=chart_kinds(sums.kinds, sums.guard_count) if sums.kinds else None,
        describe_kind=describe_kind,
    )


def read_set(run_id: str | None, artifact_id: int) -> tuple[GuardSet, Artifact, GuardTree | None]:
    """Return a set of a run, or of any run, with its tree, None where none is kept; or answer that there is none."""
    it = guards.get_guard_set(get_reader(), run_id, artifact_id)
    artifact = get_artifact(get_reader(), it.run_id, artifact_id) if it is not None else None
    if it is None or artifact is None:
        abort(404, f"There are no guards with the number {artifact_id} here.")
    return it, artifact, parse_guards(artifact.text) if artifact.text is not None else None


@blueprint.get("/runs/<run_id>/guards/<int:artifact_id>")
def show_one(run_id: str, artifact_id: int) -> str:
    """Show the guards of one compile as a tree; `q` searches it, `at` shows one subtree whole."""
    detail = find_run(run_id)
    it, artifact, whole = read_set(run_id, artifact_id)
    wanted, at = request.args.get("q", "").strip()[:200], request.args.get("at", "")
    if at and not (at.isascii() and at.isdigit() and len(at) < 10):
        raise FilterError(f"at: {at[:40]!r} is not the number of a line of this tree")
    found = filter_tree(whole, wanted) if whole is not None and wanted else whole
    part = take_subtree(found, int(at)) if found is not None and at else found
    if at and found is not None and part is None:
        abort(404, f"These guards have no line number {at}.")
    largest_first = request.args.get("order") == "largest"
    view = build_view(part, 5 if wanted or at else 3, ROWS, largest_first) if part is not None else None
    whole_count = it.guard_count or 0
    return render_run(
        detail,
        "guards/one.html",
        tab="guards",
        artifact=artifact,
        it=it,
        previous=guards.get_previous_set(get_reader(), artifact.compile_key),
        view=view,
        rows=list_rows(view, number_nodes(found)) if view is not None and found is not None else [],
        whole_count=whole_count,
        cost=explain_cost(whole.latency_us, whole_count) if whole is not None else None,
        wanted=wanted,
        at=at,
        part=part.nodes[0] if at and part is not None else None,
        largest_first=largest_first,
        describe_kind=describe_kind,
    )


@blueprint.get("/runs/<run_id>/guards/diff")
def show_diff(run_id: str) -> str:
    """Compare the guards of two compiles: `a` is the earlier artifact, `b` the later one."""
    detail = find_run(run_id)
    sides = [check_artifact_id(name, request.args.get(name, "")) for name in ("a", "b")]
    (before, _a, old), (after, _b, new) = (read_set(None, number) for number in sides)
    return render_run(
        detail,
        "guards/diff.html",
        tab="guards",
        before=before,
        after=after,
        diff=compare_guards(old, new) if old is not None and new is not None else None,
        most=DIFF_ROWS,
        describe_kind=describe_kind,
    )
