"""Frames of the tree of stacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.analysis.compiles import ENDINGS
from compileboard.app.analysis.rows import no_stack_row, stack_row
from compileboard.app.api.answers import PageQuery, operation
from compileboard.app.db import get_reader
from compileboard.app.queries.fields import Count, DurationUs, LineNumber
from compileboard.app.queries.page import Page, decode_cursor, encode_cursor
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.queries.run.stacks import list_codes
from compileboard.app.screens.run.stacks import read_stack_tree

_ENDINGS_HELP = f"How those ended: {', '.join(f'`{ending}`' for ending in ENDINGS)}."


@dataclass(frozen=True)
class FrameRecords:
    """Records of one name."""

    name: Annotated[str, "Its name."]
    record_count: Annotated[Count, "Records of that name."]
    artifact_id: Annotated[int | None, "`id` of the first one's artifact; null for symbolic shapes."]


@dataclass(frozen=True)
class StackFrame:
    """One frame of the stacks of compiles and of records outside them, shared by all that came through it."""

    id: Annotated[int, "Number of the frame; 0 stands for compiles that have no stack."]
    parent_id: Annotated[int | None, "The frame that called it, with a smaller `id`; null at the top."]
    file: Annotated[str, "Its file: path in the repository, or module path."]
    line: LineNumber
    name: Annotated[str, "Name of the function."]
    code: Annotated[str | None, "That line of the code; null with `--no-source`, and where torch gave none."]
    is_library: Annotated[bool, "Whether the file is Python's, torch's or a well-known package's."]
    compile_count: Annotated[Count, "Compiles started here and below."]
    total_us: Annotated[DurationUs | None, "Their time."]
    endings: Annotated[dict[str, Count], _ENDINGS_HELP]
    compile_keys: Annotated[list[int], "The compiles that this very frame is: not those below."]
    records: Annotated[
        list[FrameRecords], "What was recorded at this very frame outside any compile: export, AOTInductor."
    ]


@operation("/runs/<run_id>/trie")
def list_trie(detail: RunDetail, page: PageQuery) -> Page[StackFrame]:
    """Return where a run's compiles and the records outside them came from: the frames of their stacks, callers first.

    Compiles without a stack are at frame 0, which has no name.
    """
    reader, limit = get_reader(), page.limit
    after = int((decode_cursor(page.cursor, int) or (-1,))[0])
    tree = read_stack_tree(reader, detail.run.id)
    nodes = [node for number, node in tree.nodes.items() if number > max(after, 0)][: limit + 1]
    frames = [no_stack_row(tree.without_stack)] if after < 0 and tree.without_stack else []
    codes = list_codes(reader, (node.id for node in nodes[:limit]))
    frames += [stack_row(node, codes.get(node.id)) for node in nodes]
    end = encode_cursor(frames[limit - 1]["id"]) if len(frames) > limit else None
    return Page(tuple(_make_frame(frame) for frame in frames[:limit]), end)


def _make_frame(frame: dict[str, Any]) -> StackFrame:
    records = [FrameRecords(**record) for record in frame["records"]]
    return StackFrame(**frame | {"records": records})
