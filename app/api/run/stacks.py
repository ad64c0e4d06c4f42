"""Frames of the tree of stacks."""

from __future__ import annotations

from compileboard.app.api.answers import PageQuery, operation
from compileboard.app.db import get_run_reader
from compileboard.app.queries.page import Page
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.screens.run.stacks import StackFrame, list_stack_frames


@operation("/runs/<run_id>/trie")
def list_trie(detail: RunDetail, page: PageQuery) -> Page[StackFrame]:
    """Return where a run's compiles, and records outside them, came from: the frames of their
    stacks, callers first.

    Compiles without a stack are at frame 0, which has no name.
    """
    return list_stack_frames(get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit)
