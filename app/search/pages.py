"""The Search page, for all runs or one."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, current_app, render_template, request, url_for

from compileboard.app.core.db import get_settings, get_store
from compileboard.app.core.filters import run_url
from compileboard.app.core.page import check_limit
from compileboard.app.runs.shell import find_run, render_run
from compileboard.app.search.model import MOST_HITS, MatchedLine, MatchedText, build_search
from compileboard.app.search.queries import Hit

blueprint = Blueprint("search", __name__)


@blueprint.get("/search")
def index() -> str:
    run_id = request.args.get("run") or None
    detail = find_run(run_id) if run_id else None
    return render_template("search/index.html", detail=detail, **_search(run_id))


@blueprint.get("/runs/<run_id>/search")
def show_run(run_id: str) -> str:
    return render_run(find_run(run_id), "search/run.html", tab="search", **_search(run_id))


def _search(run_id: str | None) -> dict[str, Any]:
    args = request.args
    limit_count = check_limit(args.get("limit"), min(get_settings().page_size, 25), MOST_HITS)
    screen = build_search(
        get_store(), args.get("q", ""), args.get("kind"), run_id, args.get("cursor"), limit_count
    )
    return {
        "screen": screen,
        "address_hit": address_hit,
        "address_line": address_line,
        "has_search": True,
    }


def address_hit(match: MatchedText) -> str:
    return (address_line(match.hit, match.lines[0]) if match.lines else None) or address_page(
        match.hit
    )


def address_line(hit: Hit, line: MatchedLine) -> str | None:
    return f"{address_page(hit)}#L{line.number}" if hit.has_lines else None


def address_page(hit: Hit) -> str:
    views, run = current_app.view_functions, run_url(hit.run_id)
    if hit.kind == "artifact":
        return f"{run}/artifacts/{hit.ref_id}"
    if hit.kind == "graph_break":
        return url_for("graph_breaks.show", distinct_id=hit.ref_id)
    if hit.kind == "repro":
        return url_for("repros.show", repro_id=hit.ref_id)
    if hit.kind == "function":
        return url_for("run.show", run_id=hit.run_id, tab="compiles", q=hit.title)
    page = {"frame": "stacks.show", "symbol": "shapes.show"}.get(hit.kind)
    if page in views:
        return url_for(page, run_id=hit.run_id)
    if hit.compile_key is not None:
        return f"{run}/compiles/{hit.compile_key}"
    tab = {"recompile": "recompiles", "failure": "failures", "cache_lookup": "caches"}.get(hit.kind)
    return url_for("run.show", run_id=hit.run_id, tab=tab)
