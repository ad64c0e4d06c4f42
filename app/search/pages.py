"""The Search page, for all runs or one, and the API's search."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from flask import Blueprint, current_app, render_template, request, url_for

from compileboard.app.core.api import PageQuery, operation
from compileboard.app.core.api import find_run as check_run
from compileboard.app.core.db import get_clock, get_engine, get_reader, get_settings, get_store
from compileboard.app.core.fields import Count
from compileboard.app.core.filters import run_url
from compileboard.app.core.format import format_plural, format_time
from compileboard.app.core.newest import LATEST
from compileboard.app.core.page import FilterError, check_limit
from compileboard.app.core.parameters import Parameter
from compileboard.app.core.schema import one_of
from compileboard.app.runs.model import list_described_runs
from compileboard.app.runs.queries import RunFilter, get_newest_run
from compileboard.app.runs.rows import RunRow
from compileboard.app.runs.shell import find_run, render_run
from compileboard.app.search.model import MAX_HITS, build_search
from compileboard.app.search.queries import (
    LONGEST,
    SearchGroup,
    SearchHit,
    SearchLine,
    list_models,
    list_suites,
    read_terms,
    search,
)
from compileboard.collectors.store.search import KINDS

blueprint = Blueprint("search", __name__)
MAX_PER_KIND = 5
_SUGGESTED_TEXTS = ("function", "failure", "graph_break", "recompile", "rerecording")
_COMMIT = re.compile(r"[0-9a-fA-F]{4,40}")


@dataclass(frozen=True)
class Suggestion:
    """A page whose name or content matches a text."""

    kind: Annotated[str, one_of(("run", "suite", "model", *_SUGGESTED_TEXTS)), "Kind of page."]
    label: Annotated[str, "Name of the page."]
    detail: Annotated[str, "Distinguishes it from others of that name."]
    address: Annotated[str, "The page's path."]


def find_by_name(text: str) -> list[Suggestion]:
    """List runs by ID, name, title, note, command, commit or branch, suites and models by name."""
    if not text:
        return []
    engine, clock = get_engine(), get_clock()
    selections = [RunFilter(text=text)]
    selections += [RunFilter(commit=text)] if _COMMIT.fullmatch(text) else []
    runs: dict[str, RunRow] = {
        run.id: run
        for selection in selections
        for run in list_described_runs(engine, clock, selection, limit=MAX_PER_KIND).rows
    }
    if text == LATEST and (newest := get_newest_run(engine, clock)):
        runs = {newest.id: newest, **runs}
    named = [
        Suggestion("run", run.shown_name, _describe_run(run), run_url(run.id))
        for run in [*runs.values()][:MAX_PER_KIND]
    ]
    named += [
        Suggestion(
            "suite", suite, format_plural(count, "run"), url_for("overview.index", suite=suite)
        )
        for suite, count in list_suites(engine, text, MAX_PER_KIND)
    ]
    named += [
        Suggestion("model", model, suites, url_for("models.show", model=model))
        for model, suites in list_models(engine, text, MAX_PER_KIND)
    ]
    return sorted(named, key=lambda own: own.label.lower() != text.lower())


def _describe_run(run: RunRow) -> str:
    parts = (run.suite, run.git_commit and run.git_commit[:7], format_time(run.started_us)[:16])
    return " · ".join(part for part in parts if part)


def list_suggestions(text: str) -> list[Suggestion]:
    terms = read_terms(text)
    groups = search(get_reader(), terms, kinds=_SUGGESTED_TEXTS)
    found = {
        (hit.kind, hit.title): Suggestion(hit.kind, hit.title, hit.run_name, make_hit_url(hit))
        for group in groups
        for hit in group.hits
    }
    return [*find_by_name(text), *found.values()]


@blueprint.get("/search")
def index() -> str:
    run_id = request.args.get("run") or None
    detail = find_run(run_id) if run_id else None
    named = [] if run_id or request.args.get("kind") else find_by_name(_read_text())
    return render_template("search/index.html", detail=detail, named=named, **_search(run_id))


def _read_text() -> str:
    return request.args.get("q", "").strip()[:LONGEST]


@blueprint.get("/runs/<run_id>/search")
def show_run(run_id: str) -> str:
    return render_run(find_run(run_id), "search/run.html", tab="search", **_search(run_id))


def _search(run_id: str | None) -> dict[str, Any]:
    args = request.args
    limit_count = check_limit(args.get("limit"), min(get_settings().page_size, 25), MAX_HITS)
    screen = build_search(
        get_store(), args.get("q", ""), args.get("kind"), run_id, args.get("cursor"), limit_count
    )
    return {
        "screen": screen,
        "address_hit": make_hit_url,
        "address_line": make_line_url,
        "has_search": True,
    }


def make_hit_url(hit: SearchHit) -> str:
    return (make_line_url(hit, hit.lines[0]) if hit.lines else None) or make_page_url(hit)


def make_line_url(hit: SearchHit, line: SearchLine) -> str | None:
    return f"{make_page_url(hit)}#L{line.line}" if hit.has_lines else None


def make_page_url(hit: SearchHit) -> str:
    views, run = current_app.view_functions, run_url(hit.run_id)
    if hit.kind == "artifact":
        return f"{run}/artifacts/{hit.ref_id}"
    if hit.kind == "graph_break":
        return url_for("graph_breaks.show", distinct_id=hit.ref_id)
    if hit.kind == "rerecording":
        return url_for("rerecordings.show", reason_id=hit.ref_id)
    if hit.kind == "issue":
        return url_for("failures.show", issue_id=hit.ref_id)
    if hit.kind == "repro":
        return url_for("repros.show", repro_id=hit.ref_id)
    if hit.kind == "result":
        return url_for("models.show_run", run_id=hit.run_id)
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
    """Matches by kind, and the number of runs that were and were not searched."""

    groups: Annotated[Sequence[SearchGroup], "Kinds of which something was found."]
    run_count: Annotated[Count, "Runs that were searched."]
    pending_run_count: Annotated[Count, "Those of them that have something not indexed yet."]
    unsearched_run_count: Annotated[Count, "Older runs that were not searched."]


@operation("/search")
def get_search(query: SearchQuery, page: PageQuery) -> SearchResult:
    """Search all runs, or one, for texts that contain every word of `q`; return the first matches
    of each kind, or with `kind` one page of that kind.
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


@dataclass(frozen=True)
class SuggestionQuery:
    q: Annotated[str, Parameter(most=0), "Text to look for."] = ""


@dataclass(frozen=True)
class SuggestionList:
    """Pages that match a text."""

    suggestions: Annotated[
        Sequence[Suggestion],
        "Runs, suites, models, functions, failures, graph breaks and recompiles.",
    ]


@operation("/suggestions")
def get_suggestions(query: SuggestionQuery) -> SuggestionList:
    """Return pages that match `q`, a few of each kind."""
    return SuggestionList(list_suggestions(query.q.strip()[:LONGEST]))
