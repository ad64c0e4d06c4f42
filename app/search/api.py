"""Search results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from compileboard.app.core.api import PageQuery, find_run, operation
from compileboard.app.core.db import get_store
from compileboard.app.core.fields import CompileId, CompileKey, Count, FunctionName, RunId
from compileboard.app.core.page import FilterError
from compileboard.app.core.parameters import Parameter
from compileboard.app.core.schema import one_of
from compileboard.app.search.model import MatchedLine, build_search
from compileboard.app.search.queries import Hit
from compileboard.collectors.store.results import fill
from compileboard.collectors.store.search import KINDS

KindOfText = Annotated[str, one_of(KINDS), "What kind of text it is."]


@dataclass(frozen=True)
class SearchQuery:
    q: Annotated[
        str,
        Parameter(most=0),
        "Words that a text must all have; quotes keep words together, `-word` leaves texts out.",
    ] = ""
    run: Annotated[str | None, Parameter(most=0), "Only in this run: its id."] = None
    kind: Annotated[
        str | None, Parameter(choices=tuple(KINDS)), "Only this kind of texts, page by page."
    ] = None


@dataclass(frozen=True)
class SearchLine:
    """A line that has some of the words, cut where it is long."""

    line: Annotated[
        int | None,
        "Its number in the artifact's text, from 1; null where the text is not one of lines.",
    ]
    text: Annotated[str, "The line."]
    found: Annotated[list[str], "What of it was sought."]


@dataclass(frozen=True)
class SearchHit:
    """One text that has every word."""

    run_id: RunId
    run_name: Annotated[str, "The run's title, or its name."]
    kind: KindOfText
    ref_id: Annotated[
        int | str, "`id` of what it is the text of: the artifact, graph break, recompile, failure."
    ]
    compile_key: CompileKey
    compile_id: CompileId
    function: FunctionName
    title: Annotated[str, "What it is called."]
    lines: Annotated[
        list[SearchLine], "The three best lines; none where only its title has the words."
    ]


@dataclass(frozen=True)
class SearchGroupJson:
    """Results of one kind."""

    kind: KindOfText
    count: Annotated[Count, "Texts that were found; at most 500 are counted."]
    is_more: Annotated[bool, "Whether there are more than that."]
    next: Annotated[str | None, "`cursor` of the next page of the kind that was asked for."]
    hits: Annotated[
        list[SearchHit],
        "Those put into the index last come first; none of a kind that was not asked for.",
    ]


@dataclass(frozen=True)
class SearchResult:
    """Search results."""

    groups: Annotated[list[SearchGroupJson], "Kinds of which something was found."]
    run_count: Annotated[Count, "Runs that were looked in."]
    pending_run_count: Annotated[Count, "Those of them that have something not indexed yet."]
    unsearched_run_count: Annotated[Count, "Older runs, besides, that were not looked in."]


@operation("/search")
def get_search(query: SearchQuery, page: PageQuery) -> SearchResult:
    """Return texts of all runs, or of one, that have every word of `q`: some of each kind, or the
    pages of one kind.
    """
    if query.run is not None:
        find_run(query.run)
    if page.cursor and not query.kind:
        raise FilterError(
            "cursor: only the texts of one kind have further pages; give kind as well"
        )
    screen = build_search(get_store(), query.q, query.kind, query.run, page.cursor, page.limit)
    return SearchResult(
        groups=[
            SearchGroupJson(
                kind=group.kind,
                count=group.count,
                is_more=group.is_more,
                next=group.next_cursor,
                hits=[_make_hit(matched.hit, matched.lines) for matched in group.hits],
            )
            for group in screen.groups
        ],
        run_count=screen.index.run_count,
        pending_run_count=screen.index.pending_count,
        unsearched_run_count=screen.index.unsearched_count,
    )


def _make_hit(hit: Hit, lines: Sequence[MatchedLine]) -> SearchHit:
    written = [
        SearchLine(
            line=line.number if hit.has_lines else None,
            text="".join(text for text, _marked in line.pieces),
            found=[text for text, marked in line.pieces if marked],
        )
        for line in lines
    ]
    return fill(SearchHit, vars(hit) | {"lines": written})
