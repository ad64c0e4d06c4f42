"""Full-text search in all runs or one, with the matching lines."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from compileboard.app.analysis.search import KIND_WORDS, MatchedLine, find_lines
from compileboard.app.engines.store import Store
from compileboard.app.queries.search import (
    File,
    Hit,
    IndexState,
    check_kind,
    get_index_state,
    list_newest_sealed,
    read_terms,
    search,
)
from compileboard.collectors.store.errors import StoreError

MOST_HITS = 100  # of one page: each text is read and looked through
MOST_FILES = 50  # of sealed runs; opening them has to be done within:
MOST_S = 1.0


@dataclass(frozen=True)
class MatchedText:
    hit: Hit
    lines: Sequence[MatchedLine]


@dataclass(frozen=True)
class SearchResults:
    kind: str
    label: str
    meaning: str
    count: int
    is_more: bool
    hits: Sequence[MatchedText]
    next_cursor: str | None


@dataclass(frozen=True)
class SearchScreen:
    query: str
    kind: str | None
    run_id: str | None
    groups: Sequence[SearchResults]
    index: IndexState
    has_terms: bool
    is_cut: bool


def build_search(
    store: Store,
    query: str,
    kind: str | None,
    run_id: str | None,
    cursor: str | None,
    limit_count: int,
) -> SearchScreen:
    """Find the texts with every word of a query: in one run, or in the main database and the newest
    sealed runs.

    Raises FilterError if the kind or cursor cannot be used, StoreError if the run's file cannot be
    read.
    """
    query, kind = query.strip(), check_kind(kind)
    terms, limit = read_terms(query), min(limit_count, MOST_HITS)
    reader = store.board if run_id is None else store.open_run(run_id)
    files = _open_newest(store) if run_id is None else []
    groups = search(
        reader, terms, run_id=run_id, kind=kind, cursor=cursor, limit=limit, files=files
    )
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
        index=get_index_state(reader, run_id, len(files)),
        has_terms=terms.match is not None,
        is_cut=terms.is_cut,
    )


def _open_newest(store: Store) -> list[File]:
    files: list[File] = []
    until_s = time.monotonic() + MOST_S
    for run_id in list_newest_sealed(store.board, MOST_FILES):
        if time.monotonic() >= until_s:
            break
        with suppress(StoreError):  # the run's own page tells what is wrong with it
            files.append((run_id, store.open_run(run_id)))
    return files
