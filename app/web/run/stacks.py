"""The Stacks page of a run: where its compiles were started from, as one tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from flask import Blueprint, abort, request

from compileboard.app.analysis.compiles import ENDINGS
from compileboard.app.analysis.labels import Word
from compileboard.app.analysis.stacks import (
    StackTree,
    StackTreeNode,
    build_tree,
    describe_ending,
    filter_matching,
    is_library_name,
    lay_out,
    list_callers,
    list_frames,
    list_loose_stacks,
    list_shares,
    name_ending,
)
from compileboard.app.db import get_reader
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.run.stacks import (
    StackCompile,
    list_codes,
    list_loose_records,
    list_nodes,
    list_stack_compiles,
)
from compileboard.app.web.run.shell import find_run, render_run

blueprint = Blueprint("stacks", __name__)

LISTED = 6  # compiles of one frame


def _read_number(name: str) -> int | None:
    given = request.args.get(name, "")
    if given and not (given.isascii() and given.isdigit() and len(given) < 16):
        raise FilterError(f"{name}: {given[:40]!r} is not a whole number")
    return int(given) if given else None


def read_wanted() -> dict[str, Any]:
    """Read the filters of the tree from the address.

    Raises: FilterError if one has a value that cannot be used.
    """
    ending, library = request.args.get("ending", ""), request.args.get("library", "")
    if ending and ending not in ENDINGS:
        raise FilterError(f"ending: {ending[:40]!r} is not one of {', '.join(ENDINGS)}")
    if library not in ("", "shown"):
        raise FilterError(f"library: {library[:40]!r} is not shown")
    return {
        "text": request.args.get("q", "").strip()[:200],
        "ending": ending,
        "rank": _read_number("rank"),
        "library": bool(library),
    }


def _pick(tree: StackTree) -> tuple[StackTreeNode, int]:
    number, start = _read_number("node"), _read_number("start") or 0
    top = tree.places.get(number or 0)
    if top is None:
        abort(404, f"There is no frame number {number} in this tree; its run was imported anew, or a filter hides it.")
    return top, start


@blueprint.get("/runs/<run_id>/stacks")
def show(run_id: str) -> str:
    """Show the tree of a run's stacks, or a subtree of it."""
    detail, reader, wanted = find_run(run_id), get_reader(), read_wanted()
    nodes, compiles = list_nodes(reader, run_id), list_stack_compiles(reader, run_id)
    library = wanted.pop("library")
    kept = filter_matching(nodes, compiles, **wanted)
    tree = build_tree(nodes, kept, library=library)
    top, start = _pick(tree)
    block = lay_out(top, start)
    ranks = sorted({it.rank for it in compiles if it.rank is not None})
    return render_run(
        detail,
        "stacks/index.html",
        tab="stacks",
        block=block,
        callers=list_callers(top),
        top=top,
        start=start,
        tree=tree,
        compiles=compiles,
        kept=kept,
        loose=list_loose_stacks(nodes, list_loose_records(reader, run_id)),
        codes=list_codes(reader, list_frames(block)),
        endings=_count(compiles),
        shown_endings=[(ending, word.word) for ending, word, _number in _count(compiles)],
        ranks=ranks,
        shown_ranks=[(str(rank), f"rank {rank}") for rank in ranks],
        given={key: request.args.get(key, "") for key in ("q", "ending", "rank", "library")},
        filtered=bool(wanted["text"] or wanted["ending"] or wanted["rank"] is not None),
        recorded_count=len(nodes),
        describe=describe_ending,
        name_ending=name_ending,
        list_shares=list_shares,
        is_library=is_library_name,
        listed=LISTED,
    )


def _count(compiles: Sequence[StackCompile]) -> list[tuple[str, Word, int]]:
    counts = Counter(map(name_ending, compiles))
    return [
        (ending, describe_ending(ending), counts[ending])
        for ending in [*ENDINGS, *(counts.keys() - ENDINGS.keys())]
        if counts[ending]
    ]
