"""Where a run's compiles were started from: their stacks as one tree, or a part of it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from compileboard.app.analysis.compiles import ENDINGS, name_ending
from compileboard.app.analysis.labels import Word
from compileboard.app.analysis.stacks import (
    MOST_BLOCKS,
    LooseStack,
    StackBlock,
    StackTree,
    StackTreeNode,
    build_tree,
    describe_ending,
    filter_matching,
    lay_out,
    list_callers,
    list_frames,
    list_loose_stacks,
)
from compileboard.app.queries.run.stacks import (
    StackCompile,
    list_codes,
    list_loose_records,
    list_nodes,
    list_stack_compiles,
)


@dataclass(frozen=True)
class StackFilter:
    """Which compiles the tree is of, and whether frames of libraries are in it."""

    text: str = ""
    ending: str = ""
    rank: int | None = None
    library: bool = False

    @property
    def is_narrow(self) -> bool:
        """Return True where it leaves compiles out."""
        return bool(self.text or self.ending or self.rank is not None)


@dataclass(frozen=True)
class StacksScreen:
    """The tree of a run's stacks below one frame. `matching` are those of `compiles` that the filter lets through."""

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
        """List the frames above, outermost first."""
        return list_callers(self.top)

    @cached_property
    def endings(self) -> list[tuple[str, Word, int]]:
        """List how compiles ended, and how many, in the order of the legend."""
        counts = Counter(map(name_ending, self.compiles))
        known = [*ENDINGS, *(counts.keys() - ENDINGS.keys())]
        return [(ending, describe_ending(ending), counts[ending]) for ending in known if counts[ending]]

    @property
    def ranks(self) -> list[int]:
        """List the ranks that compiled something."""
        return sorted({row.rank for row in self.compiles if row.rank is not None})


def build_stacks(
    reader: sqlite3.Connection,
    run_id: str,
    wanted: StackFilter | None = None,
    *,
    node: int = 0,
    start: int = 0,
    most: int = MOST_BLOCKS,
) -> StacksScreen | None:
    """Read the tree of a run's stacks below a frame; None where the tree has no such frame."""
    wanted = wanted or StackFilter()
    nodes, compiles = list_nodes(reader, run_id), list_stack_compiles(reader, run_id)
    matching = filter_matching(nodes, compiles, text=wanted.text, ending=wanted.ending, rank=wanted.rank)
    tree = build_tree(nodes, matching, library=wanted.library)
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
    """Read the tree of a run's stacks with every frame of it, also of records outside any compile."""
    return build_tree(
        list_nodes(reader, run_id),
        list_stack_compiles(reader, run_id),
        list_loose_records(reader, run_id),
        library=True,
    )
