"""Search: the texts of all runs, or of one, that have every word, with the lines that have them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.app.analysis.search import KIND_WORDS, MatchedLine, find_lines
from compileboard.app.queries.search import Hit, IndexState, check_kind, get_index_state, read_terms, search

MOST_HITS = 100  # of one page: each text is read and looked through


@dataclass(frozen=True)
class MatchedText:
    """A text that was found, with its lines that have the words."""

    hit: Hit
    lines: Sequence[MatchedLine]


@dataclass(frozen=True)
class SearchResults:
    """What was found of one kind of text; `is_more` says that there is more than `count`."""

    kind: str
    label: str
    meaning: str
    count: int
    is_more: bool
    hits: Sequence[MatchedText]
    next_cursor: str | None


@dataclass(frozen=True)
class SearchScreen:
    """What was found of each kind, and in how many runs was looked; `is_cut` says that words were left out."""

    query: str
    kind: str | None
    run_id: str | None
    groups: Sequence[SearchResults]
    index: IndexState
    has_terms: bool
    is_cut: bool


def build_search(
    reader: sqlite3.Connection, query: str, kind: str | None, run_id: str | None, cursor: str | None, limit_count: int
) -> SearchScreen:
    """Build what has every word of a query.

    Raises: FilterError if the kind or the cursor cannot be used.
    """
    query, kind = query.strip(), check_kind(kind)
    terms = read_terms(query)
    groups = search(reader, terms, run_id=run_id, kind=kind, cursor=cursor, limit=min(limit_count, MOST_HITS))
    return SearchScreen(
        query=query,
        kind=kind,
        run_id=run_id,
        groups=[
            SearchResults(
                group.kind,
                *KIND_WORDS[group.kind],
                group.count,
                group.is_more,
                [MatchedText(hit, tuple(find_lines(hit.text, terms))) for hit in group.hits],
                group.next,
            )
            for group in groups
        ],
        index=get_index_state(reader, run_id),
        has_terms=terms.match is not None,
        is_cut=terms.is_cut,
    )
