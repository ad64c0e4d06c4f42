"""Stacks of compiles as one tree: library frames folded, single callers merged, compiles counted.

Nothing here recurses, because a stack may be 500 frames deep.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

from compileboard.app.core.fields import Count, DurationUs, LineNumber
from compileboard.app.core.labels import OUTCOMES
from compileboard.app.core.page import Page, decode_cursor, make_page
from compileboard.app.stacks.run_queries import (
    RecordOutsideCompile,
    StackCompile,
    StackNode,
    list_codes,
    list_loose_records,
    list_nodes,
    list_stack_compiles,
)
from compileboard.collectors.contract.library_names import is_library_name

_NO_FRAME = StackNode(0, None, "", None, "")

MAX_BLOCKS = 100
DEEPEST = 24
_ENDS = (3, 6)  # frames of a long chain shown at its beginning and end


@dataclass(slots=True)
class StackTreeNode:
    frame: StackNode
    parent: StackTreeNode | None = None
    folded: tuple[StackNode, ...] = ()  # library frames between it and its parent
    children: list[StackTreeNode] = field(default_factory=list)
    compiles: list[StackCompile] = field(default_factory=list)
    records: list[RecordOutsideCompile] = field(
        default_factory=list
    )  # logged here outside any compile
    compile_count: int = 0
    total_us: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)

    @property
    def id(self) -> int:
        return self.frame.id


@dataclass
class StackBlock:
    frames: list[StackTreeNode]
    depth: int
    children: list[StackBlock] = field(default_factory=list)
    hidden: list[StackTreeNode] = field(default_factory=list)

    @property
    def last(self) -> StackTreeNode:
        return self.frames[-1]

    @property
    def shown(self) -> list[StackTreeNode | int]:
        head, tail = _ENDS
        if len(self.frames) <= head + tail + 1:
            return list(self.frames)
        return [*self.frames[:head], len(self.frames) - head - tail, *self.frames[-tail:]]

    @property
    def first(self) -> StackTreeNode:
        return self.frames[0]


@dataclass(frozen=True)
class StackTree:
    root: StackTreeNode
    without_stack: tuple[StackCompile, ...]
    nodes: dict[int, StackTreeNode]


def build_tree(
    nodes: Sequence[StackNode],
    compiles: Iterable[StackCompile],
    records: Iterable[RecordOutsideCompile] = (),
    *,
    library: bool = False,
) -> StackTree:
    """Build the tree of compiles; without `library`, frames of packages are dropped unless a
    compile starts there.
    """
    by_stack: dict[int, list[StackCompile]] = {}
    without: list[StackCompile] = []
    for stack_compile in compiles:
        if stack_compile.stack_id is None:
            without.append(stack_compile)
        else:
            by_stack.setdefault(stack_compile.stack_id, []).append(stack_compile)
    by_id = {node.id: node for node in nodes}
    loose = _group_by_stack(records)
    used = _mark_used(by_id, (*by_stack, *loose))
    root = StackTreeNode(_NO_FRAME)
    at: dict[
        int, tuple[StackTreeNode, tuple[StackNode, ...]]
    ] = {}  # a frame's position, and the frames folded since
    known: dict[tuple[int, str, int | None, str], StackTreeNode] = {}
    order = [root]
    for node in nodes:
        if node.id not in used:
            continue
        above, folded = at.get(node.parent_id or 0, (root, ()))
        own = by_stack.get(node.id)
        if not library and not own and node.id not in loose and is_library_name(node.file):
            at[node.id] = (above, (*folded, node))
            continue
        key = (id(above), node.file, node.line, node.name)
        tree_node = known.get(key)
        if tree_node is None:
            tree_node = known[key] = StackTreeNode(node, above, folded)
            above.children.append(tree_node)
            order.append(tree_node)
        tree_node.compiles.extend(own or ())
        tree_node.records.extend(loose.get(node.id, ()))
        at[node.id] = (tree_node, ())
    for tree_node in reversed(order):  # callees follow their callers, so sums go up
        _sum_up(tree_node)
    return StackTree(root, tuple(without), {tree_node.id: tree_node for tree_node in order})


@dataclass(frozen=True)
class StackOutsideCompile:
    frame: StackNode
    frames: tuple[StackNode, ...]
    records: tuple[RecordOutsideCompile, ...]


def list_loose_stacks(
    nodes: Sequence[StackNode], records: Iterable[RecordOutsideCompile]
) -> list[StackOutsideCompile]:
    by_id = {node.id: node for node in nodes}
    stacks = []
    for stack_id, own in _group_by_stack(records).items():
        frames: list[StackNode] = []
        node = by_id.get(stack_id)
        while node is not None:
            frames.append(node)
            node = by_id.get(node.parent_id or 0)
        inner = next(
            (frame for frame in frames if not is_library_name(frame.file)),
            frames[0] if frames else _NO_FRAME,
        )
        stacks.append(StackOutsideCompile(inner, tuple(reversed(frames)), tuple(own)))
    return stacks


def _group_by_stack(
    records: Iterable[RecordOutsideCompile],
) -> dict[int, list[RecordOutsideCompile]]:
    by_stack: dict[int, list[RecordOutsideCompile]] = {}
    for record in records:
        by_stack.setdefault(record.stack_id, []).append(record)
    return by_stack


def _mark_used(by_id: dict[int, StackNode], ends: Iterable[int]) -> set[int]:
    used: set[int] = set()
    for end in ends:
        node = by_id.get(end)
        while node is not None and node.id not in used:
            used.add(node.id)
            node = by_id.get(node.parent_id) if node.parent_id is not None else None
    return used


def _sum_up(tree_node: StackTreeNode) -> None:
    for stack_compile in tree_node.compiles:
        outcome = stack_compile.outcome
        tree_node.outcomes[outcome] = tree_node.outcomes.get(outcome, 0) + 1
        tree_node.total_us += stack_compile.total_us
    tree_node.compile_count += len(tree_node.compiles)
    if len(tree_node.children) > 1:
        tree_node.children.sort(key=lambda child: (-child.total_us, -child.compile_count, child.id))
    above = tree_node.parent
    if above is not None:
        above.compile_count += tree_node.compile_count
        above.total_us += tree_node.total_us
        for outcome, count in tree_node.outcomes.items():
            above.outcomes[outcome] = above.outcomes.get(outcome, 0) + count


def build_block(top: StackTreeNode, start: int = 0, max_count: int = MAX_BLOCKS) -> StackBlock:
    block = StackBlock(_list_single_callees(top), 0)
    waiting: list[tuple[int, int, StackTreeNode, StackBlock]] = []
    number = 0
    for tree_node in block.last.children[start:]:
        number += 1
        waiting.append((-tree_node.total_us, number, tree_node, block))
    heapq.heapify(waiting)
    for _shown in range(max_count):
        if not waiting:
            break
        _cost, _number, tree_node, parent = heapq.heappop(waiting)
        stack_block = StackBlock(_list_single_callees(tree_node), parent.depth + 1)
        parent.children.append(stack_block)
        if stack_block.depth >= DEEPEST:
            stack_block.hidden = list(stack_block.last.children)
            continue
        for below in stack_block.last.children:
            number += 1
            heapq.heappush(waiting, (-below.total_us, number, below, stack_block))
    for _cost, _number, tree_node, parent in waiting:
        parent.hidden.append(tree_node)
    return block


def _list_single_callees(top: StackTreeNode) -> list[StackTreeNode]:
    chain = [top]
    while len(chain[-1].children) == 1 and not chain[-1].compiles:
        chain.append(chain[-1].children[0])
    return chain


def list_shown_node_ids(block: StackBlock) -> list[int]:
    numbers, waiting = [], [block]
    while waiting:
        current = waiting.pop()
        numbers += [
            tree_node.id for tree_node in current.shown if isinstance(tree_node, StackTreeNode)
        ]
        waiting += current.children
    return numbers


def list_callers(tree_node: StackTreeNode) -> list[StackTreeNode]:
    callers = []
    above = tree_node.parent
    while above is not None and above.id:
        callers.append(above)
        above = above.parent
    return callers[::-1]


def filter_matching(
    nodes: Sequence[StackNode],
    compiles: Sequence[StackCompile],
    *,
    text: str,
    outcome: str,
    rank: int | None,
) -> list[StackCompile]:
    """List the compiles with this outcome and rank whose function or stack contains the text."""
    text = text.lower()
    hits: set[int] = set()
    if text:
        for node in nodes:
            if node.parent_id in hits or text in f"{node.file}:{node.line} {node.name}".lower():
                hits.add(node.id)
    return [
        stack_compile
        for stack_compile in compiles
        if (not outcome or stack_compile.outcome == outcome)
        and (rank is None or stack_compile.rank == rank)
        and (
            not text
            or stack_compile.stack_id in hits
            or text
            in f"{stack_compile.function} {stack_compile.file} {stack_compile.compile_id}".lower()
        )
    ]


@dataclass(frozen=True)
class FrameShare:
    """The part of a bar that one outcome has.

    Units: percent of the bar.
    """

    outcome: str
    count: int
    start: float
    width: float


def list_shares(outcomes: Mapping[str, int]) -> list[FrameShare]:
    """Split a bar among the outcomes present, in the order of the legend."""
    whole, start, shares = sum(outcomes.values()), 0.0, []
    for outcome in sorted(outcomes, key=lambda outcome: _ORDER.get(outcome, len(_ORDER))):
        width = 100 * outcomes[outcome] / whole
        shares.append(FrameShare(outcome, outcomes[outcome], round(start, 2), round(width, 2)))
        start += width
    return shares


_ORDER = {outcome: number for number, outcome in enumerate(OUTCOMES)}


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
    loose: Sequence[StackOutsideCompile]
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
    max_count: int = MAX_BLOCKS,
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
    block = build_block(top, start, max_count=max_count)
    return StacksScreen(
        compiles=compiles,
        matching=matching,
        tree=tree,
        top=top,
        block=block,
        codes=list_codes(reader, list_shown_node_ids(block)),
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
    """Log records that were written below a frame, by name."""

    name: Annotated[str, "Name of the records."]
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
    total_us: Annotated[DurationUs | None, "Time of these compiles."]
    outcomes: Annotated[dict[str, Count], "These compiles by outcome."]
    compile_keys: Annotated[Sequence[int], "`id` of each compile started at this very frame."]
    records: Annotated[
        Sequence[FrameRecords],
        "What was recorded at this very frame outside any compile: export, AOTInductor.",
    ]


def list_stack_frames(
    reader: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 1_000_000
) -> Page[StackFrame]:
    """Return the frames of a run's stacks, callers first. Frame 0 has the compiles without
    a stack.
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
