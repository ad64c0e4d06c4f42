"""Stacks of compiles as one tree: library frames folded away, chains of single callers drawn together, sums a subtree.

Nothing here recurses: a stack may be 500 frames deep.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from compileboard.app.analysis.compiles import ENDINGS, name_ending
from compileboard.app.analysis.labels import Word
from compileboard.app.queries.run.stacks import LooseRecord, StackCompile, StackNode

# Packages whose frames say how torch and its neighbours call each other, not where the program is.
_PACKAGES = frozenset(
    [
        "accelerate",
        "deepspeed",
        "diffusers",
        "functorch",
        "ignite",
        "IPython",
        "ipykernel",
        "joblib",
        "lightning",
        "lightning_fabric",
        "numpy",
        "pluggy",
        "_pytest",
        "pytest",
        "pytorch_lightning",
        "ray",
        "timm",
        "torch",
        "torchao",
        "torchaudio",
        "torchgen",
        "torchtune",
        "torchvision",
        "transformers",
        "triton",
    ]
)
_NO_FRAME = StackNode(0, None, "", None, "")

MOST_BLOCKS = 100
DEEPEST = 24
_ENDS = (3, 6)  # of a long chain these many frames are shown at its beginning and at its end


@dataclass(slots=True)
class StackTreeNode:
    """Hold one frame of the tree that is shown, with the sums of all that was compiled at it and below.

    Units: microseconds.
    """

    frame: StackNode
    parent: StackTreeNode | None = None
    folded: tuple[StackNode, ...] = ()  # library frames between its parent and it
    children: list[StackTreeNode] = field(default_factory=list)
    compiles: list[StackCompile] = field(default_factory=list)
    records: list[LooseRecord] = field(default_factory=list)  # written here outside any compile
    compile_count: int = 0
    total_us: int = 0
    endings: dict[str, int] = field(default_factory=dict)

    @property
    def id(self) -> int:
        """Return the number of its frame, 0 for the root."""
        return self.frame.id


@dataclass
class StackBlock:
    """Hold a chain of frames of which each called only the next; `hidden` counts places below that are not laid out."""

    places: list[StackTreeNode]
    depth: int
    children: list[StackBlock] = field(default_factory=list)
    hidden: list[StackTreeNode] = field(default_factory=list)

    @property
    def last(self) -> StackTreeNode:
        """Return the innermost frame: its compiles are the block's, its children those of the block."""
        return self.places[-1]

    @property
    def shown(self) -> list[StackTreeNode | int]:
        """List the frames that a page shows, and in place of the others their number."""
        head, tail = _ENDS
        if len(self.places) <= head + tail + 1:
            return list(self.places)
        return [*self.places[:head], len(self.places) - head - tail, *self.places[-tail:]]

    @property
    def first(self) -> StackTreeNode:
        """Return the outermost frame: its sums are the block's."""
        return self.places[0]


@dataclass(frozen=True)
class StackTree:
    """Hold the tree: its root stands above the outermost frames; `without_stack` are compiles that have none."""

    root: StackTreeNode
    without_stack: tuple[StackCompile, ...]
    places: dict[int, StackTreeNode]


def is_library_name(file: str) -> bool:
    """Say whether a file, as the store names it, is a package's or Python's own and not the user's."""
    head, slash, _rest = file.partition("/")
    if not slash:
        return head.removesuffix(".py") in sys.stdlib_module_names or file.startswith("<frozen")
    return head in _PACKAGES or head in sys.stdlib_module_names


def describe_ending(ending: str) -> Word:
    """Return the word for how a compile ended."""
    return ENDINGS.get(ending) or Word(ending, "quiet", "")


def build_tree(
    nodes: Sequence[StackNode],
    compiles: Iterable[StackCompile],
    records: Iterable[LooseRecord] = (),
    *,
    library: bool = False,
) -> StackTree:
    """Build the tree of what was compiled; without `library`, frames of packages go, unless a compile starts there.

    Frames that are the same once those are gone become one. `records` outside any compile keep their frames too.
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
    at: dict[int, tuple[StackTreeNode, tuple[StackNode, ...]]] = {}  # a frame's place, and what was folded since
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
        place = known.get(key)
        if place is None:
            place = known[key] = StackTreeNode(node, above, folded)
            above.children.append(place)
            order.append(place)
        place.compiles.extend(own or ())
        place.records.extend(loose.get(node.id, ()))
        at[node.id] = (place, ())
    for place in reversed(order):  # what is called comes after its caller: sums go up
        _sum_up(place)
    return StackTree(root, tuple(without), {place.id: place for place in order})


@dataclass(frozen=True)
class LooseStack:
    """Hold one stack from which records outside any compile were written; `place` is the innermost user's frame."""

    place: StackNode
    frames: tuple[StackNode, ...]
    records: tuple[LooseRecord, ...]


def list_loose_stacks(nodes: Sequence[StackNode], records: Iterable[LooseRecord]) -> list[LooseStack]:
    """Gather records outside any compile by their stacks, in the order in which the stacks were first seen."""
    by_id = {node.id: node for node in nodes}
    found = []
    for stack_id, own in _group_by_stack(records).items():
        frames: list[StackNode] = []
        node = by_id.get(stack_id)
        while node is not None:
            frames.append(node)
            node = by_id.get(node.parent_id or 0)
        place = next((frame for frame in frames if not is_library_name(frame.file)), frames[0] if frames else _NO_FRAME)
        found.append(LooseStack(place, tuple(reversed(frames)), tuple(own)))
    return found


def _group_by_stack(records: Iterable[LooseRecord]) -> dict[int, list[LooseRecord]]:
    by_stack: dict[int, list[LooseRecord]] = {}
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


def _sum_up(place: StackTreeNode) -> None:
    for one in place.compiles:
        ending = name_ending(one)
        place.endings[ending] = place.endings.get(ending, 0) + 1
        place.total_us += one.total_us
    place.compile_count += len(place.compiles)
    if len(place.children) > 1:
        place.children.sort(key=lambda child: (-child.total_us, -child.compile_count, child.id))
    above = place.parent
    if above is not None:
        above.compile_count += place.compile_count
        above.total_us += place.total_us
        for ending, count in place.endings.items():
            above.endings[ending] = above.endings.get(ending, 0) + count


def lay_out(top: StackTreeNode, start: int = 0, most: int = MOST_BLOCKS) -> StackBlock:
    """Lay out what one page shows of a subtree: the blocks that took longest; `start` passes over the top's first."""
    block = StackBlock(_chain(top), 0)
    waiting: list[tuple[int, int, StackTreeNode, StackBlock]] = []
    number = 0
    for place in block.last.children[start:]:
        number += 1
        waiting.append((-place.total_us, number, place, block))
    heapq.heapify(waiting)
    for _shown in range(most):
        if not waiting:
            break
        _cost, _number, place, parent = heapq.heappop(waiting)
        stack_block = StackBlock(_chain(place), parent.depth + 1)
        parent.children.append(stack_block)
        if stack_block.depth >= DEEPEST:
            stack_block.hidden = list(stack_block.last.children)
            continue
        for below in stack_block.last.children:
            number += 1
            heapq.heappush(waiting, (-below.total_us, number, below, stack_block))
    for _cost, _number, place, parent in waiting:
        parent.hidden.append(place)
    return block


def _chain(place: StackTreeNode) -> list[StackTreeNode]:
    """Follow a place down as long as it only calls one other and nothing was compiled at it."""
    found = [place]
    while len(found[-1].children) == 1 and not found[-1].compiles:
        found.append(found[-1].children[0])
    return found


def list_frames(block: StackBlock) -> list[int]:
    """List the numbers of the frames that are shown of a block and of those below it."""
    found, waiting = [], [block]
    while waiting:
        current = waiting.pop()
        found += [place.id for place in current.shown if isinstance(place, StackTreeNode)]
        waiting += current.children
    return found


def list_callers(place: StackTreeNode) -> list[StackTreeNode]:
    """List the frames above a place, outermost first."""
    found = []
    above = place.parent
    while above is not None and above.id:
        found.append(above)
        above = above.parent
    return found[::-1]


def filter_matching(
    nodes: Sequence[StackNode], compiles: Sequence[StackCompile], *, text: str, ending: str, rank: int | None
) -> list[StackCompile]:
    """Keep the compiles with this ending and rank that have the text in their function or in a frame of their stack."""
    text = text.lower()
    hits: set[int] = set()
    if text:
        for node in nodes:
            if node.parent_id in hits or text in f"{node.file}:{node.line} {node.name}".lower():
                hits.add(node.id)
    return [
        stack_compile
        for stack_compile in compiles
        if (not ending or name_ending(stack_compile) == ending)
        and (rank is None or stack_compile.rank == rank)
        and (
            not text
            or stack_compile.stack_id in hits
            or text in f"{stack_compile.function} {stack_compile.file} {stack_compile.compile_id}".lower()
        )
    ]


@dataclass(frozen=True)
class FrameShare:
    """Hold one ending's part of a bar.

    Units: percent of the bar.
    """

    ending: str
    count: int
    start: float
    width: float


def list_shares(endings: Mapping[str, int]) -> list[FrameShare]:
    """Split a bar among the endings that came, in the order of the legend."""
    whole, start, found = sum(endings.values()), 0.0, []
    for ending in sorted(endings, key=lambda ending: _ORDER.get(ending, len(_ORDER))):
        width = 100 * endings[ending] / whole
        found.append(FrameShare(ending, endings[ending], round(start, 2), round(width, 2)))
        start += width
    return found


_ORDER = {ending: number for number, ending in enumerate(ENDINGS)}
