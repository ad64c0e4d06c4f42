"""The Stacks page of a run, and its API."""

from __future__ import annotations

from flask import Blueprint, abort, request

from compileboard.app.core.api import PageQuery, operation
from compileboard.app.core.db import get_run_reader
from compileboard.app.core.labels import OUTCOMES, describe_outcome
from compileboard.app.core.page import FilterError, Page, check_whole
from compileboard.app.runs.run_queries import RunDetail
from compileboard.app.runs.shell import find_run, render_run
from compileboard.app.stacks.model import StackFilter, StackFrame, build_stacks, list_stack_frames

blueprint = Blueprint("stacks", __name__)

LISTED = 6  # compiles of one frame
_HIGHEST = 10**15


def read_filter() -> StackFilter:
    args = request.args
    outcome, library = args.get("outcome", ""), args.get("library", "")
    if outcome and outcome not in OUTCOMES:
        raise FilterError(f"outcome: {outcome[:40]!r} is not one of {', '.join(OUTCOMES)}")
    if library not in ("", "shown"):
        raise FilterError(f"library: {library[:40]!r} is not shown")
    rank = check_whole("rank", args.get("rank"), 0, maximum=_HIGHEST) if args.get("rank") else None
    return StackFilter(args.get("q", "").strip()[:200], outcome, rank, bool(library))


@blueprint.get("/runs/<run_id>/stacks")
def show(run_id: str) -> str:
    detail, selection = find_run(run_id), read_filter()
    node, start = (
        check_whole(name, request.args.get(name), 0, maximum=_HIGHEST) for name in ("node", "start")
    )
    screen = build_stacks(get_run_reader(run_id), run_id, selection, node=node, start=start)
    if screen is None:
        abort(
            404,
            (
                f"There is no frame number {node} in this tree; its run was imported anew, or a "
                "filter hides it."
            ),
        )
    return render_run(
        detail,
        "stacks/index.html",
        tab="stacks",
        screen=screen,
        start=start,
        shown_outcomes=[
            (key, describe_outcome(key, detail.run.state == "running").word)
            for key in screen.outcomes
        ],
        shown_ranks=[(str(rank), f"rank {rank}") for rank in screen.ranks],
        given={key: request.args.get(key, "") for key in ("q", "outcome", "rank", "library")},
        filtered=selection.is_narrow,
        listed=LISTED,
    )


@operation("/runs/<run_id>/trie")
def list_trie(detail: RunDetail, page: PageQuery) -> Page[StackFrame]:
    """Return the stack frames of a run's compiles and of records outside them, callers first.

    Compiles without a stack are at frame 0, which has no name.
    """
    return list_stack_frames(get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit)
