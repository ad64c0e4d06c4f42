"""The page of a run with one address per tab, and its configuration texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Blueprint, abort, render_template, request

from compileboard.app.analysis import labels
from compileboard.app.db import get_run_reader, get_settings
from compileboard.app.queries.page import FilterError, check_content_id, check_limit
from compileboard.app.queries.run.compiles import CompileFilter
from compileboard.app.queries.run_rows import RunRow
from compileboard.app.screens.run.caches import build_caches
from compileboard.app.screens.run.compiles import build_compiles
from compileboard.app.screens.run.environment import (
    build_config,
    build_environment,
    build_processes,
)
from compileboard.app.screens.run.graph_breaks import build_distinct_breaks, build_graph_breaks
from compileboard.app.screens.run.recompiles import build_recompiles
from compileboard.app.screens.run.run import FIRST_BARS, build_failures, build_summary
from compileboard.app.web.run.shell import find_run, render_run

blueprint = Blueprint("run", __name__)


def _summary(run: RunRow) -> dict[str, Any]:
    screen = build_summary(get_run_reader(run.id), run)
    return {"screen": screen, "first_bars": FIRST_BARS}


def _compiles(run: RunRow) -> dict[str, Any]:
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


def _breaks(run: RunRow) -> dict[str, Any]:
    reader, cursor = get_run_reader(run.id), request.args.get("cursor")
    limit, distinct = check_limit(request.args.get("limit"), 20), request.args.get("distinct", "")
    each = bool(distinct) or request.args.get("view") == "each"
    if each:
        distinct_id = check_content_id("distinct", distinct) if distinct else None
        screen = build_graph_breaks(reader, run.id, cursor, limit, distinct_id=distinct_id)
    else:
        screen = build_distinct_breaks(reader, run.id, cursor, limit)
    return {"screen": screen, "each": each, "distinct": distinct}


def _recompiles(run: RunRow) -> dict[str, Any]:
    return {"screen": build_recompiles(get_run_reader(run.id), run, request.args.get("cursor"))}


def _failures(run: RunRow) -> dict[str, Any]:
    return {"screen": build_failures(get_run_reader(run.id), run.id, request.args.get("cursor"))}


def _caches(run: RunRow) -> dict[str, Any]:
    return {
        "screen": build_caches(
            get_run_reader(run.id), run.id, request.args.get("cursor"), get_settings().page_size
        )
    }


def _environment(run: RunRow) -> dict[str, Any]:
    return {"screen": build_environment(get_run_reader(run.id), run.id, compare=True)}


def _processes(run: RunRow) -> dict[str, Any]:
    return {"screen": build_processes(get_run_reader(run.id), run.id)}


FILLS: dict[str, Callable[[RunRow], dict[str, Any]]] = {
    "": _summary,
    "compiles": _compiles,
    "breaks": _breaks,
    "recompiles": _recompiles,
    "failures": _failures,
    "caches": _caches,
    "environment": _environment,
    "processes": _processes,
}

# What a file of results says nothing of, by tab; it may have graph breaks.
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
