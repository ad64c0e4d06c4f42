"""The list of runs, and forms to rename, annotate, pin and delete a run."""

from __future__ import annotations

from flask import Blueprint, abort, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from compileboard.app.db import get_clock, get_engine, get_reader, get_settings, writing
from compileboard.app.engines.run_files import list_lost_files
from compileboard.app.queries.fleet import runs
from compileboard.app.queries.fleet.runs import FILTERS
from compileboard.app.queries.page import check_limit
from compileboard.app.screens.fleet.runs import build_runs, read_runs_filters
from compileboard.app.web.filters import is_local_path, run_url
from compileboard.collectors.store.dashboard.annotations import annotate
from compileboard.collectors.store.dashboard.trash import delete_run

blueprint = Blueprint("runs", __name__)

# What a select offers beside the table's headings, for readers on a phone.
SORTS = (
    ("started", "newest first"),
    ("started.asc", "oldest first"),
    ("duration", "longest first"),
    ("compiles", "most compiles"),
    ("recompiles", "most recompiles"),
    ("breaks", "most graph breaks"),
    ("compile_time", "most compile time"),
)
_MORE = ("host", "gpu", "torch", "commit", "since", "until")


@blueprint.get("/runs")
def index() -> str:
    engine = get_engine()
    limit_count = check_limit(request.args.get("limit"), get_settings().page_size)
    filters = read_runs_filters(request.args, limit_count)
    screen = build_runs(engine, filters, get_clock())
    return render_template(
        "runs/index.html",
        screen=screen,
        given={key: request.args.get(key, "") for key in FILTERS},
        filtered=any(request.args.get(key) for key in FILTERS),
        more_given=any(request.args.get(key) for key in _MORE),
        choices=runs.list_choices(engine),
        states=runs.STATES,
        sorts=SORTS,
        deleted=request.args.get("done") == "deleted",
        live=screen.is_live,
        lost_files=list_lost_files(get_reader(), [listed.run.id for listed in screen.runs]),
    )


@blueprint.post("/runs/<run_id>/annotate")
def change(run_id: str) -> Response:
    pinned = request.form.get("pinned")
    if pinned not in (None, "0", "1"):
        abort(400, f"pinned: {pinned[:40]!r} is neither 0 nor 1.")
    title, note = request.form.get("title"), request.form.get("note")
    try:
        with writing("run.annotate", run_id, _describe_change(title, note, pinned)) as connection:
            changed = annotate(
                connection,
                run_id,
                title=title,
                note=note,
                pinned=None if pinned is None else pinned == "1",
            )
    except ValueError as error:
        abort(400, f"Nothing was changed: {error}.")
    if not changed:
        abort(404, f"There is no run {run_id[:80]}.")
    return redirect(_way_back(run_url(run_id)), 303)


@blueprint.get("/runs/<run_id>/delete")
def confirm_delete(run_id: str) -> str:
    run = runs.get_run(get_engine(), run_id)
    if run is None:
        abort(404, f"There is no run {run_id[:80]}.")
    is_running = get_clock().is_running(run.state, run.heartbeat_us)
    return render_template("runs/delete.html", run=run, is_running=is_running)


@blueprint.post("/runs/<run_id>/delete")
def delete(run_id: str) -> Response:
    with writing("run.delete", run_id) as connection:
        deleted = delete_run(connection, run_id)
    if not deleted:
        abort(404, f"There is no run {run_id[:80]}; it may have been deleted already.")
    return redirect(url_for("runs.index", done="deleted"), 303)


def _describe_change(title: str | None, note: str | None, pinned: str | None) -> str:
    changes = [] if pinned is None else ["pinned" if pinned == "1" else "unpinned"]
    changes += [] if title is None else [f"title: {title.strip()[:200] or 'none'}"]
    return ", ".join([*changes, *([] if note is None else ["note"])])


def _way_back(otherwise: str) -> str:
    back = request.form.get("back", "")
    return back if is_local_path(back) else otherwise
