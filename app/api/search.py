"""Search over the texts of all runs or of one."""

from __future__ import annotations

from typing import Any

from flask import request

from compileboard.app.analysis.search_lines import find_lines
from compileboard.app.api.answer import Answer, find_run, read_cursor, read_limit
from compileboard.app.api.operation import Operation
from compileboard.app.db import get_reader
from compileboard.app.queries import search
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.search_terms import Terms, read_terms

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


def _group(group: search.Group, terms: Terms) -> dict[str, Any]:
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
