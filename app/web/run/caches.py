"""One look-up in a compile cache: what its key is made of, and for a miss what differs from the nearest earlier key."""

from __future__ import annotations

from flask import Blueprint, abort, request

from compileboard.app.analysis import labels
from compileboard.app.analysis.caches.lookups import group_components, read_lookup
from compileboard.app.db import get_reader
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.run.caches import RUNS_BACK, get_lookup
from compileboard.app.web.run.shell import find_run, render_run

blueprint = Blueprint("caches", __name__)

SHOWN = 100  # components of one sort on a page
CHANGES = 200


@blueprint.get("/runs/<run_id>/caches/<int:lookup_id>")
def show_one(run_id: str, lookup_id: int) -> str:
    """Show one look-up; `runs=before` compares a miss with the runs of the same name before this one."""
    detail, runs = find_run(run_id), request.args.get("runs", "")
    if runs not in ("", "before"):
        raise FilterError(f"runs: {runs[:40]!r} is not before")
    lookup = get_lookup(get_reader(), run_id, lookup_id) if lookup_id < 2**62 else None
    if lookup is None:
        abort(404, f"Run {detail.run.shown_name[:80]} has no look-up in a cache with the number {lookup_id}.")
    report = read_lookup(get_reader(), lookup, across=runs == "before")
    diff = report.diff
    return render_run(
        detail,
        "caches/lookup.html",
        tab="caches",
        words=labels,
        it=lookup,
        report=report,
        changes=(*diff.changed, *diff.only_in_miss, *diff.only_in_earlier)[:CHANGES] if diff else (),
        groups=group_components(report.components),
        across=runs == "before",
        most_runs=RUNS_BACK,
        most=SHOWN,
    )
