"""The search page: matching texts by kind, with excerpts."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from compileboard.app.core.store import Store
from compileboard.app.search.queries import (
    File,
    IndexState,
    SearchGroup,
    SearchHit,
    SearchLine,
    SearchTerms,
    Term,
    check_kind,
    get_index_state,
    list_newest_sealed,
    read_terms,
    search,
)
from compileboard.collectors.store.connection import StoreError

MAX_LINES = 3
WIDTH = 240  # characters of a line
BEFORE = 60  # Characters shown before the first word.
MAX_PLACES = 100  # Shown places of a term in a text; ten times as many are examined.


def find_lines(text: str, terms: SearchTerms, *, max_count: int = MAX_LINES) -> list[SearchLine]:
    low = text.lower()
    if len(low) != len(text):  # lower case may be longer; positions must be the text's own
        low = "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in text)
    marks: dict[
        int, list[tuple[int, int, int]]
    ] = {}  # by the line's start: begin, end, index of the term
    for number, term in enumerate(terms.included):
        for begin, end in _find_term(low, term):
            marks.setdefault(low.rfind("\n", 0, begin) + 1, []).append((begin, end, number))
    best = sorted(
        marks, key=lambda start: (-len({number for _b, _e, number in marks[start]}), start)
    )[:max_count]
    matched, counted, at = [], 0, 0
    for start in sorted(best):
        counted += text.count("\n", at, start)
        at = start
        stop = text.find("\n", start)
        spans = sorted((begin, end) for begin, end, _number in marks[start])
        matched.append(
            SearchLine(
                counted + 1, tuple(_cut_line(text, start, len(text) if stop < 0 else stop, spans))
            )
        )
    return matched


def _find_term(low: str, term: Term) -> Iterator[tuple[int, int]]:
    words = [word.lower() for word in term.words]
    pattern = r"[\W_]+".join(map(re.escape, words)) + ("" if term.prefix else r"(?![^\W_])")
    whole = re.compile(pattern)
    begin = low.find(words[0])
    tried = yielded = 0
    while tried < 10 * MAX_PLACES and yielded < MAX_PLACES:
        tried += 1
        if begin < 0:
            return
        match = None if begin and low[begin - 1].isalnum() else whole.match(low, begin)
        if match:
            yielded += 1
            yield match.span()
        begin = low.find(words[0], begin + 1)


def _cut_line(
    text: str, start: int, stop: int, spans: list[tuple[int, int]]
) -> Iterator[tuple[str, bool]]:
    while start < spans[0][0] and text[start] in " \t":
        start += 1
    begin = start if stop - start <= WIDTH else max(start, spans[0][0] - BEFORE)
    end = min(max(stop, spans[0][1]), begin + WIDTH)
    at = begin
    if begin > start:
        yield "… ", False
    for left, right in spans:
        left, right = max(left, at), min(right, end)
        if left >= right:
            continue
        if left > at:
            yield text[at:left], False
        yield text[left:right], True
        at = right
    if at < end:
        yield text[at:end], False
    if end < stop:
        yield " …", False


MAX_HITS = 100  # per page: each text is read and searched
MAX_FILES = 50  # Sealed runs to search; they must be opened within:
MAX_SECONDS = 1.0


@dataclass(frozen=True)
class SearchScreen:
    query: str
    kind: str | None
    run_id: str | None
    groups: Sequence[SearchGroup]
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

    Raises FilterError for an invalid kind or cursor, StoreError if the run's file cannot be read.
    """
    query, kind = query.strip(), check_kind(kind)
    terms, limit = read_terms(query), min(limit_count, MAX_HITS)
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
            replace(group, hits=[_add_lines(hit, terms) for hit in group.hits]) for group in groups
        ],
        index=get_index_state(reader, run_id, len(files)),
        has_terms=terms.match is not None,
        is_cut=terms.is_cut,
    )


def _add_lines(hit: SearchHit, terms: SearchTerms) -> SearchHit:
    lines = find_lines(hit.text, terms)
    return replace(
        hit, lines=lines if hit.has_lines else [replace(line, line=None) for line in lines]
    )


def _open_newest(store: Store) -> list[File]:
    files: list[File] = []
    until_s = time.monotonic() + MAX_SECONDS
    for run_id in list_newest_sealed(store.board, MAX_FILES):
        if time.monotonic() >= until_s:
            break
        with suppress(StoreError):  # the run's page shows the error
            files.append((run_id, store.open_run(run_id)))
    return files
