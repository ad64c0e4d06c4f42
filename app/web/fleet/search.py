"""Search over everything of all runs, or of one."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Blueprint, current_app, render_template, request, url_for

from compileboard.app.analysis.search import KIND_WORDS, MatchedLine, find_lines
from compileboard.app.db import get_reader, get_settings
from compileboard.app.queries.fleet import search
from compileboard.app.queries.fleet.search import Terms, read_terms
from compileboard.app.queries.page import check_limit
from compileboard.app.web.filters import run_url
from compileboard.app.web.run.shell import find_run, render_run

blueprint = Blueprint("search", __name__)


@dataclass(frozen=True)
class Shown:
    """Hold a hit with its lines and the address of its place."""

    hit: search.Hit
    address: str
    lines: tuple[tuple[MatchedLine, str | None], ...]  # with a line's own address


@dataclass(frozen=True)
class ShownGroup:
    """Hold a kind of texts that were found."""

    kind: str
    label: str
    meaning: str
    count: int
    is_more: bool
    shown: tuple[Shown, ...]
    next: str | None


@blueprint.get("/search")
def index() -> str:
    """Search in all runs, or in one that the query names."""
    run_id = request.args.get("run") or None
    detail = find_run(run_id) if run_id else None
    return render_template("search/index.html", detail=detail, **_find(run_id))


@blueprint.get("/runs/<run_id>/search")
def show_run(run_id: str) -> str:
    """Search in one run."""
    detail = find_run(run_id)
    return render_run(detail, "search/run.html", tab="search", **_find(run_id))


def _find(run_id: str | None) -> dict[str, object]:
    reader, query = get_reader(), request.args.get("q", "").strip()
    kind, terms = search.check_kind(request.args.get("kind")), read_terms(query)
    limit = check_limit(request.args.get("limit"), min(get_settings().page_size, 25), 100)
    groups = search.search(reader, terms, run_id=run_id, kind=kind, cursor=request.args.get("cursor"), limit=limit)
    return {
        "query": query,
        "kind": kind,
        "groups": [_show(group, terms) for group in groups],
        "labels": KIND_WORDS,
        "has_terms": terms.match is not None,
        "is_cut": terms.is_cut,
        "index": search.get_index_state(reader, run_id),
        "run_id": run_id,
        "has_search": True,
    }


def _show(group: search.SearchGroup, terms: Terms) -> ShownGroup:
    label, meaning = KIND_WORDS[group.kind]
    shown = tuple(_show_hit(hit, terms) for hit in group.hits)
    return ShownGroup(group.kind, label, meaning, group.count, group.is_more, shown, group.next)


def _show_hit(hit: search.Hit, terms: Terms) -> Shown:
    address = place_of(hit)
    lines = tuple(
        (line, f"{address}#L{line.number}" if hit.has_lines else None) for line in find_lines(hit.text, terms)
    )
    return Shown(hit, (lines[0][1] if lines else None) or address, lines)


def place_of(hit: search.Hit) -> str:
    """Return the address of the page that shows what was found, the nearest there is."""
    views, run = current_app.view_functions, run_url(hit.run_id)
    if hit.kind == "artifact":
        return f"{run}/artifacts/{hit.ref_id}"
    if hit.kind == "graph_break":
        return url_for("graph_breaks.show", distinct_id=hit.ref_id)
    if hit.kind == "function":
        return url_for("run.show", run_id=hit.run_id, tab="compiles", q=hit.title)
    page = {"frame": "stacks.show", "symbol": "shapes.show"}.get(hit.kind)
    if page in views:
        return url_for(page, run_id=hit.run_id)
    if hit.compile_key is not None:
        return f"{run}/compiles/{hit.compile_key}"
    tab = {"recompile": "recompiles", "failure": "failures", "cache_lookup": "caches"}.get(hit.kind)
    return url_for("run.show", run_id=hit.run_id, tab=tab)
