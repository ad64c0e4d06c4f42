"""The Search page, for all runs or one, and the API's search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from flask import Blueprint, current_app, render_template, request, url_for

from compileboard.app.core.api import PageQuery, operation
from compileboard.app.core.api import find_run as check_run
from compileboard.app.core.db import get_settings, get_store
from compileboard.app.core.fields import Count
from compileboard.app.core.filters import run_url
from compileboard.app.core.page import FilterError, check_limit
from compileboard.app.core.parameters import Parameter
from compileboard.app.runs.shell import find_run, render_run
from compileboard.app.search.model import MOST_HITS, build_search
from compileboard.app.search.queries import SearchGroup, SearchHit, SearchLine
from compileboard.collectors.store.search import KINDS

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


def address_hit(hit: SearchHit) -> str:
    return (address_line(hit, hit.lines[0]) if hit.lines else None) or address_page(hit)


def address_line(hit: SearchHit, line: SearchLine) -> str | None:
    return f"{address_page(hit)}#L{line.line}" if hit.has_lines else None


def address_page(hit: SearchHit) -> str:
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


@dataclass(frozen=True)
class SearchQuery:
    q: Annotated[
        str,
        Parameter(most=0),
        "Words that a text must all have; quotes keep words together, `-word` leaves texts out.",
    ] = ""
    run: Annotated[str | None, Parameter(most=0), "Only in this run: its id, or `latest`."] = None
    kind: Annotated[
        str | None, Parameter(choices=tuple(KINDS)), "Only this kind of texts, page by page."
    ] = None


@dataclass(frozen=True)
class SearchResult:
    """Search results."""

    groups: Annotated[Sequence[SearchGroup], "Kinds of which something was found."]
    run_count: Annotated[Count, "Runs that were looked in."]
    pending_run_count: Annotated[Count, "Those of them that have something not indexed yet."]
    unsearched_run_count: Annotated[Count, "Older runs, besides, that were not looked in."]


@operation("/search")
def get_search(query: SearchQuery, page: PageQuery) -> SearchResult:
    """Return texts of all runs, or of one, that have every word of `q`: some of each kind, or the
    pages of one kind.
    """
    if query.run is not None:
        check_run(query.run)
    if page.cursor and not query.kind:
        raise FilterError(
            "cursor: only the texts of one kind have further pages; give kind as well"
        )
    screen = build_search(get_store(), query.q, query.kind, query.run, page.cursor, page.limit)
    return SearchResult(
        groups=screen.groups,
        run_count=screen.index.run_count,
        pending_run_count=screen.index.pending_count,
        unsearched_run_count=screen.index.unsearched_count,
    )
