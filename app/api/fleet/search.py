"""Schemas of what a search finds."""

from __future__ import annotations

from typing import Any

from flask import request

from compileboard.app.analysis.search import find_lines
from compileboard.app.api.answers import Answer, Operation, find_run, read_cursor, read_limit
from compileboard.app.api.schema import (
    COMPILE_ID,
    COMPILE_KEY,
    FUNCTION,
    Schema,
    array_of,
    count,
    flag,
    maybe,
    record,
    ref,
    text,
    whole,
    word,
)
from compileboard.app.db import get_reader
from compileboard.app.queries.fleet import search
from compileboard.app.queries.fleet.search import Terms, read_terms
from compileboard.app.queries.page import FilterError
from compileboard.collectors.store.search_documents import KINDS

KIND = word("What kind of text it is.", KINDS)
SCHEMAS: dict[str, Schema] = {
    "SearchHit": record(
        "One text that has every word.",
        run_id=text("The run's id."),
        run_name=text("The run's title, or its name."),
        kind=KIND,
        ref_id=whole("`id` of what it is the text of: the artifact, distinct graph break, recompile, failure."),
        compile_key=COMPILE_KEY,
        compile_id=COMPILE_ID,
        function=FUNCTION,
        title=text("What it is called."),
        lines=array_of(
            record(
                "A line that has some of the words, cut where it is long.",
                line=maybe(
                    whole("Its number in the artifact's text, from 1; null where the text is not one of lines.")
                ),
                text=text("The line."),
                found=array_of({"type": "string"}, "What of it was sought."),
            ),
            "The three best lines; none where only its title has the words.",
        ),
    ),
    "SearchGroup": record(
        "What was found of one kind.",
        kind=KIND,
        count=count("Texts that were found; at most 500 are counted."),
        is_more=flag("Whether there are more than that."),
        next=maybe(text("`cursor` of the next page of the kind that was asked for.")),
        hits=array_of(
            ref("SearchHit"), "Those put into the index last come first; none of a kind that was not asked for."
        ),
    ),
    "Search": record(
        "What a search found.",
        groups=array_of(ref("SearchGroup"), "Kinds of which something was found."),
        run_count=count("Runs that were looked in."),
        pending_run_count=count("Those of them that have something not indexed yet."),
    ),
}


_HIT = ("run_id", "run_name", "kind", "ref_id", "compile_key", "compile_id", "function", "title")
MOST = 100  # texts of one page: each is read and looked through


def get_search() -> Answer:
    """Find texts that have every word."""
    run_id, kind = request.args.get("run") or None, search.check_kind(request.args.get("kind"))
    if run_id is not None:
        find_run(run_id)
    if read_cursor() and not kind:
        raise FilterError("cursor: only the texts of one kind have further pages; give kind as well")
    reader, terms = get_reader(), read_terms(request.args.get("q", ""))
    groups = search.search(reader, terms, run_id=run_id, kind=kind, cursor=read_cursor(), limit=min(read_limit(), MOST))
    state = search.get_index_state(reader, run_id)
    data = {
        "groups": [_group(group, terms) for group in groups],
        "run_count": state.run_count,
        "pending_run_count": state.pending_count,
    }
    return Answer(data)


def _group(group: search.SearchGroup, terms: Terms) -> dict[str, Any]:
    return {
        "kind": group.kind,
        "count": group.count,
        "is_more": group.is_more,
        "next": group.next,
        "hits": [_hit(hit, terms) for hit in group.hits],
    }


def _hit(hit: search.Hit, terms: Terms) -> dict[str, Any]:
    lines = [
        {
            "line": line.number if hit.has_lines else None,
            "text": "".join(text for text, _marked in line.pieces),
            "found": [text for text, marked in line.pieces if marked],
        }
        for line in find_lines(hit.text, terms)
    ]
    return {name: getattr(hit, name) for name in _HIT} | {"lines": lines}


OPERATIONS = (
    Operation(
        "/search",
        get_search,
        "Search",
        False,
        "Texts of all runs, or of one, that have every word of `q`: some of each kind, or the pages of one kind.",
        ("q_search", "run", "kind_search", "limit", "cursor"),
    ),
)
