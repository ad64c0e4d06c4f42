"""One lookup in a compile cache."""

from __future__ import annotations

from flask import Blueprint, abort, request

from compileboard.app.db import get_run_reader, get_store
from compileboard.app.queries.page import FilterError
from compileboard.app.screens.run.caches import build_lookup
from compileboard.app.web.run.shell import find_run, render_run

blueprint = Blueprint("caches", __name__)

SHOWN = 100  # components of one sort on a page
CHANGES = 200


@blueprint.get("/runs/<run_id>/caches/<int:lookup_id>")
def show_one(run_id: str, lookup_id: int) -> str:
    detail, runs = find_run(run_id), request.args.get("runs", "")
    if runs not in ("", "before"):
        raise FilterError(f"runs: {runs[:40]!r} is not before")
    across = runs == "before"
    screen = (
        build_lookup(get_run_reader(run_id), run_id, lookup_id, get_store() if across else None)
        if lookup_id < 2**62
        else None
    )
    if screen is None:
        abort(
            404,
            f"Run {detail.run.shown_name[:80]} has no cache lookup with the number {lookup_id}.",
        )
    return render_run(
        detail,
        "caches/lookup.html",
        tab="caches",
        screen=screen,
        across=across,
        most_changes=CHANGES,
        most=SHOWN,
    )
