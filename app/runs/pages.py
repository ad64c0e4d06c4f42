"""The page of a run, with one address per tab, and its configuration texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Blueprint, abort, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from compileboard.app.caches.model import build_caches
from compileboard.app.clickhouse.run_files import find_lost_files
from compileboard.app.compiles.page_model import build_compiles
from compileboard.app.compiles.run_queries import CompileFilter
from compileboard.app.core import labels
from compileboard.app.core.db import (
    get_clock,
    get_engine,
    get_reader,
    get_run_reader,
    get_settings,
    writing,
)
from compileboard.app.core.filters import is_local_path, run_url
from compileboard.app.core.newest import MAY_CHANGE
from compileboard.app.core.page import FilterError, check_content_id, check_limit
from compileboard.app.reasons.model import (
    build_distinct_breaks,
    build_graph_breaks,
    build_recompiles,
)
from compileboard.app.runs import queries as runs
from compileboard.app.runs.failures import list_failures
from compileboard.app.runs.model import (
    FIRST_BARS,
    build_config,
    build_environment,
    build_processes,
    build_summary,
    list_described_runs,
)
from compileboard.app.runs.queries import DEFAULT_ORDER, FILTERS, read_run_filter
from compileboard.app.runs.rows import RunRow
from compileboard.app.runs.shell import find_run, render_run
from compileboard.collectors.store.dashboard import annotate
from compileboard.collectors.store.trash import delete_run

blueprint = Blueprint("run", __name__)
FAILURES_LIMIT = 20


def _build_summary_tab(run: RunRow) -> dict[str, Any]:
    screen = build_summary(get_run_reader(run.id), run)
    return {"screen": screen, "first_bars": FIRST_BARS}


def _build_compiles_tab(run: RunRow) -> dict[str, Any]:
    sort = request.args.get("sort") or "started.asc"
    recompiled = {"": None, "yes": True, "no": False}.get(request.args.get("recompiled", ""), "bad")
    if isinstance(recompiled, str):
        raise FilterError("recompiled: expected yes or no")
    selection = CompileFilter(
        outcome=request.args.get("outcome") or None,
        text=request.args.get("q", "").strip()[:200],
        recompiled=recompiled,
    )
    limit = check_limit(request.args.get("limit"), get_settings().page_size)
    screen = build_compiles(
        get_run_reader(run.id),
        run,
        selection,
        sort=sort,
        cursor=request.args.get("cursor"),
        limit=limit,
    )
    return {
        "screen": screen,
        "sort": sort,
        "filtered": bool(selection.outcome or selection.text or recompiled is not None),
        "given": {
            key: request.args.get(key, "") for key in ("q", "outcome", "recompiled", "columns")
        },
        "outcomes": [
            (key, labels.describe_outcome(key, run.state == "running").word)
            for key in screen.outcomes
        ],
    }


def _build_breaks_tab(run: RunRow) -> dict[str, Any]:
    reader, cursor = get_run_reader(run.id), request.args.get("cursor")
    limit, distinct = check_limit(request.args.get("limit"), 20), request.args.get("distinct", "")
    each = bool(distinct) or request.args.get("view") == "each"
    if each:
        distinct_id = check_content_id("distinct", distinct) if distinct else None
        screen = build_graph_breaks(reader, run.id, cursor, limit, distinct_id=distinct_id)
    else:
        screen = build_distinct_breaks(reader, run.id, cursor, limit)
    return {"screen": screen, "each": each, "distinct": distinct}


def _build_recompiles_tab(run: RunRow) -> dict[str, Any]:
    return {"screen": build_recompiles(get_run_reader(run.id), run, request.args.get("cursor"))}


def _build_failures_tab(run: RunRow) -> dict[str, Any]:
    cursor = request.args.get("cursor")
    return {"listed": list_failures(get_run_reader(run.id), run.id, cursor, FAILURES_LIMIT)}


def _build_caches_tab(run: RunRow) -> dict[str, Any]:
    return {
        "screen": build_caches(
            get_run_reader(run.id), run.id, request.args.get("cursor"), get_settings().page_size
        )
    }


def _build_environment_tab(run: RunRow) -> dict[str, Any]:
    return {"screen": build_environment(get_run_reader(run.id), run.id, compare=True)}


def _build_processes_tab(run: RunRow) -> dict[str, Any]:
    return {"screen": build_processes(get_run_reader(run.id), run.id)}


FILLS: dict[str, Callable[[RunRow], dict[str, Any]]] = {
    "": _build_summary_tab,
    "compiles": _build_compiles_tab,
    "breaks": _build_breaks_tab,
    "recompiles": _build_recompiles_tab,
    "failures": _build_failures_tab,
    "caches": _build_caches_tab,
    "environment": _build_environment_tab,
    "processes": _build_processes_tab,
}

# Tabs that a result file has nothing for; it may have graph breaks.
_UNSEEN = {
    "compiles": "compiles",
    "breaks": "graph breaks",
    "recompiles": "recompiles",
    "failures": "exceptions",
    "caches": "caches",
}


@blueprint.get("/runs/<run_id>")
def show(run_id: str) -> str:
    detail, tab = find_run(run_id), request.args.get("tab", "")
    fill = FILLS.get(tab)
    if fill is None:
        known = ", ".join(key for key in FILLS if key)
        raise FilterError(f"tab: {tab[:40]!r} is not one of {known}")
    run = detail.run
    is_unseen = (
        run.has_only_results and tab in _UNSEEN and not (tab == "breaks" and run.graph_break_count)
    )
    return render_run(
        detail,
        "run/index.html",
        tab=tab,
        tab_file="run/_not_recorded.html" if is_unseen else f"run/_{tab or 'summary'}.html",
        tab_subject=_UNSEEN.get(tab),
        **fill(run),
    )


@blueprint.get("/runs/<run_id>/configs/<config_hash>")
def show_config(run_id: str, config_hash: str) -> str:
    run = find_run(run_id).run
    screen = build_config(get_run_reader(run_id), run_id, config_hash)
    if screen is None:
        abort(404, f"Run {run.shown_name[:80]} has no configuration text {config_hash[:40]}.")
    query = request.args.get("q", "").strip().lower()
    settings = screen.list_settings(query)
    return render_template(
        "run/config.html", run=run, screen=screen, settings_shown=settings, query=query
    )


list_blueprint = Blueprint("runs", __name__)

# Choices for readers on a phone, where table headings are hidden.
SORTS = (
    ("started", "newest first"),
    ("started.asc", "oldest first"),
    ("duration", "longest first"),
    ("compiles", "most compiles"),
    ("recompiles", "most recompiles"),
    ("breaks", "most graph breaks"),
    ("rerecordings", "most CUDA graphs recorded again"),
    ("compile_time", "most compile time"),
)
_UNFOLDED = ("q", "name", "suite", "tag", "state")


@list_blueprint.get("/runs")
def index() -> str:
    engine = get_engine()
    limit_count = check_limit(request.args.get("limit"), get_settings().page_size)
    selected, order = read_run_filter(request.args), request.args.get("sort") or DEFAULT_ORDER
    cursor = request.args.get("cursor")
    listed = list_described_runs(
        engine, get_clock(), selected, sort=order, cursor=cursor, limit=limit_count
    )
    is_whole = not cursor and listed.next is None
    return render_template(
        "runs/index.html",
        listed=listed,
        run_count=len(listed.rows) if is_whole else runs.count_runs(engine, selected),
        sort=order,
        given={key: request.args.get(key, "") for key in FILTERS},
        filtered=any(request.args.get(key) for key in FILTERS),
        more_given=any(request.args.get(key) for key in FILTERS if key not in _UNFOLDED),
        choices=runs.list_choices(engine),
        states=runs.STATES,
        sorts=SORTS,
        deleted=request.args.get("done") == "deleted",
        live=any(run.standing.word in MAY_CHANGE for run in listed.rows),
        lost_files=find_lost_files(get_reader(), [run.id for run in listed.rows]),
    )


@list_blueprint.post("/runs/<run_id>/annotate")
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
    return redirect(_return_url(run_url(run_id)), 303)


@list_blueprint.get("/runs/<run_id>/delete")
def confirm_delete(run_id: str) -> str:
    run = runs.get_run(get_engine(), run_id)
    if run is None:
        abort(404, f"There is no run {run_id[:80]}.")
    is_running = get_clock().is_running(run.state, run.heartbeat_us)
    return render_template("runs/delete.html", run=run, is_running=is_running)


@list_blueprint.post("/runs/<run_id>/delete")
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


def _return_url(otherwise: str) -> str:
    back = request.form.get("back", "")
    return back if is_local_path(back) else otherwise
