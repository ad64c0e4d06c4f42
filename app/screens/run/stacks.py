"""The stacks that a run's compiles started from, as one tree."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from compileboard.app.analysis.labels import OUTCOMES
from compileboard.app.analysis.stacks import (
    MOST_BLOCKS,
    LooseStack,
    StackBlock,
    StackTree,
    StackTreeNode,
    build_tree,
    filter_matching,
    is_library_name,
    lay_out,
    list_callers,
    list_frames,
    list_loose_stacks,
)
from compileboard.app.queries.fields import Count, DurationUs, LineNumber
from compileboard.app.queries.page import Page, decode_cursor, make_page
from compileboard.app.queries.run.stacks import (
    StackCompile,
    StackNode,
    list_codes,
    list_loose_records,
    list_nodes,
    list_stack_compiles,
)


@dataclass(frozen=True)
class StackFilter:
    text: str = ""
    outcome: str = ""
    rank: int | None = None
    library: bool = False

    @property
    def is_narrow(self) -> bool:
        return bool(self.text or self.outcome or self.rank is not None)


@dataclass(frozen=True)
class StacksScreen:
    compiles: Sequence[StackCompile]
    matching: Sequence[StackCompile]
    tree: StackTree
    top: StackTreeNode
    block: StackBlock
    codes: Mapping[int, str]
    loose: Sequence[LooseStack]
    recorded_count: int

    @property
    def callers(self) -> list[StackTreeNode]:
        return list_callers(self.top)

    @cached_property
    def outcomes(self) -> dict[str, int]:
        """Count the compiles by outcome, in the order of the legend."""
        counts = Counter(row.outcome for row in self.compiles)
        return {outcome: counts[outcome] for outcome in OUTCOMES if counts[outcome]}

    @property
    def ranks(self) -> list[int]:
        return sorted({row.rank for row in self.compiles if row.rank is not None})


def build_stacks(
    reader: sqlite3.Connection,
    run_id: str,
    selection: StackFilter | None = None,
    *,
    node: int = 0,
    start: int = 0,
    most: int = MOST_BLOCKS,
) -> StacksScreen | None:
    selection = selection or StackFilter()
    nodes, compiles = list_nodes(reader, run_id), list_stack_compiles(reader, run_id)
    matching = filter_matching(
        nodes, compiles, text=selection.text, outcome=selection.outcome, rank=selection.rank
    )
    tree = build_tree(nodes, matching, library=selection.library)
    top = tree.nodes.get(node)
    if top is None:
        return None
    block = lay_out(top, start, most=most)
    return StacksScreen(
        compiles=compiles,
        matching=matching,
        tree=tree,
        top=top,
        block=block,
        codes=list_codes(reader, list_frames(block)),
        loose=list_loose_stacks(nodes, list_loose_records(reader, run_id)),
        recorded_count=len(nodes),
    )


def read_stack_tree(reader: sqlite3.Connection, run_id: str) -> StackTree:
    return build_tree(
        list_nodes(reader, run_id),
        list_stack_compiles(reader, run_id),
        list_loose_records(reader, run_id),
        library=True,
    )


@dataclass(frozen=True)
class FrameRecords:
    """Records of one name."""

    name: Annotated[str, "Its name."]
    record_count: Annotated[Count, "Records of that name."]
    artifact_id: Annotated[
        int | None, "`id` of the first one's artifact; null for symbolic shapes."
    ]


@dataclass(frozen=True)
class StackFrame:
    """One stack frame, shared by all compiles and records below it."""

    id: Annotated[int, "Number of the frame; 0 stands for compiles that have no stack."]
    parent_id: Annotated[
        int | None, "The frame that called it, with a smaller `id`; null at the top."
    ]
    file: Annotated[str, "Its file: path in the repository, or module path."]
    line: LineNumber
    name: Annotated[str, "Name of the function."]
    code: Annotated[
        str | None, "That line of the code; null with `--no-source`, and where torch gave none."
    ]
    is_library: Annotated[bool, "Whether the file is Python's, torch's or a well-known package's."]
    compile_count: Annotated[Count, "Compiles started here and below."]
    total_us: Annotated[DurationUs | None, "Their time."]
    outcomes: Annotated[dict[str, Count], "Those by outcome."]
    compile_keys: Annotated[Sequence[int], "The compiles that this very frame is: not those below."]
    records: Annotated[
        Sequence[FrameRecords],
        "What was recorded at this very frame outside any compile: export, AOTInductor.",
    ]


def list_stack_frames(
    reader: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 1_000_000
) -> Page[StackFrame]:
    """Return the frames of a run's stacks, callers first; frame 0 holds the compiles without a
    stack.
    """
    after = int((decode_cursor(cursor, int) or (-1,))[0])
    tree = read_stack_tree(reader, run_id)
    nodes = [node for number, node in tree.nodes.items() if number > max(after, 0)][: limit + 1]
    codes = list_codes(reader, (node.id for node in nodes[:limit]))
    frames = [_make_frame(node, codes.get(node.id)) for node in nodes]
    if after < 0 and tree.without_stack:
        compiles = [row._replace(stack_id=0) for row in tree.without_stack]
        nowhere = build_tree([StackNode(0, None, "", None, "")], compiles).root.children[0]
        frames.insert(0, _make_frame(nowhere, None))
    return make_page(frames, limit, lambda frame: (frame.id,))


def _make_frame(node: StackTreeNode, code: str | None) -> StackFrame:
    return StackFrame(
        id=node.id,
        parent_id=node.frame.parent_id,
        file=node.frame.file,
        line=node.frame.line,
        name=node.frame.name,
        code=code,
        is_library=is_library_name(node.frame.file),
        compile_count=node.compile_count,
        total_us=node.total_us or None,
        outcomes=node.outcomes,
        compile_keys=[row.key for row in node.compiles],
        records=[
            FrameRecords(record.name, record.record_count, record.artifact_id)
            for record in node.records
        ],
    )
