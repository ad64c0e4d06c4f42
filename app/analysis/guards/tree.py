"""The guards of one compile, prepared for display."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from compileboard.app.format import format_duration, format_plural
from compileboard.collectors.store.payloads import GuardNode, GuardTree, is_check, walk


@dataclass(frozen=True)
class ViewNode:
    """One row of the tree: a manager (the last of a chain without branches) or a single guard.

    Units: share_ratio is the subtree's share of all guards by count; torch times no single guard.
    """

    node: GuardNode
    steps: tuple[str, ...]
    guard_count: int
    share_ratio: float
    is_open: bool
    hidden_count: int = 0
    children: tuple[ViewNode, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class GuardView:
    nodes: tuple[ViewNode, ...]
    guard_count: int
    hidden_count: int
    cost: str


@dataclass
class _Row:
    node: GuardNode
    steps: tuple[str, ...]
    depth: int
    children: list[_Row] = field(default_factory=list)
    hidden_count: int = 0


def build_view(
    tree: GuardTree, open_depth: int = 3, limit: int = 2_000, largest_first: bool = False
) -> GuardView:
    counts = _count_subtrees(tree)
    total = sum(counts[id(node)] for node in tree.nodes)
    rows, roots, hidden = _choose_rows(tree, counts, limit, largest_first)
    views: dict[int, ViewNode] = {}
    for row in reversed(rows):  # children come after their parents
        guard_count = counts[id(row.node)]
        views[id(row)] = ViewNode(
            node=row.node,
            steps=row.steps,
            guard_count=guard_count,
            share_ratio=guard_count / total if total else 0.0,
            is_open=row.depth < open_depth and bool(row.children),
            hidden_count=row.hidden_count,
            children=tuple(views.pop(id(child)) for child in row.children),
        )
    return GuardView(
        tuple(views[id(row)] for row in roots), total, hidden, explain_cost(tree.latency_us, total)
    )


def explain_cost(latency_us: float | None, guard_count: int) -> str:
    number = format_plural(guard_count, "guard")
    if latency_us is None:
        return f"{number}; this record has no time for them."
    return (
        f"Checking the set of {number} took {format_duration(latency_us)}, measured once by "
        "torch after the compile. "
        "It times no single guard: shares are by count, an estimate."
    )


def _count_subtrees(tree: GuardTree) -> dict[int, int]:
    order: list[GuardNode] = []
    stack = list(tree.nodes)
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(node.children)
    counts: dict[int, int] = {}
    for node in reversed(order):
        counts[id(node)] = int(is_check(node)) + sum(counts[id(child)] for child in node.children)
    return counts


def _fold(node: GuardNode, depth: int) -> _Row:
    steps = []
    while node.kind == "manager" and len(node.children) == 1 and node.children[0].kind == "manager":
        steps.append(node.source or node.guard_type or "")
        node = node.children[0]
    return _Row(node, tuple(steps), depth)


def _choose_rows(
    tree: GuardTree, counts: dict[int, int], limit: int, largest_first: bool
) -> tuple[list[_Row], list[_Row], int]:
    def in_order(nodes: tuple[GuardNode, ...]) -> list[GuardNode]:
        return sorted(nodes, key=lambda node: -counts[id(node)]) if largest_first else list(nodes)

    taken = in_order(tree.nodes)[:limit]
    left_out = sum(counts[id(node)] for node in in_order(tree.nodes)[limit:])
    roots = [_fold(node, 0) for node in taken]
    rows, waiting = list(roots), deque(roots)
    while waiting:
        row = waiting.popleft()
        for child in in_order(row.node.children):
            if len(rows) >= limit:
                row.hidden_count += counts[id(child)]
                continue
            below = _fold(child, row.depth + 1)
            row.children.append(below)
            rows.append(below)
            waiting.append(below)
        left_out += row.hidden_count
    return rows, roots, left_out


@dataclass(frozen=True)
class TreeRow:
    step: Literal["branch", "leaf", "end"]
    view: ViewNode
    number: int


def filter_tree(tree: GuardTree, text: str) -> GuardTree:
    sought = text.lower()
    levels: list[list[GuardNode]] = [[]]
    for depth, node in reversed(list(walk(tree))):
        while len(levels) <= depth + 1:
            levels.append([])
        children = levels[depth + 1]
        if children or _has_text(node, sought):
            levels[depth].append(replace(node, children=tuple(reversed(children))))
        levels[depth + 1] = []
    return replace(tree, nodes=tuple(reversed(levels[0])))


def _has_text(node: GuardNode, sought: str) -> bool:
    texts = (
        node.guard_type,
        node.source,
        node.code,
        node.user_line,
        node.file,
        node.function,
        node.value_type,
    )
    return any(sought in text.lower() for text in texts if text)


def number_nodes(tree: GuardTree) -> dict[int, int]:
    return {id(node): number for number, (_depth, node) in enumerate(walk(tree))}


def take_subtree(tree: GuardTree, number: int) -> GuardTree | None:
    for position, (_depth, node) in enumerate(walk(tree)):
        if position == number:
            return replace(tree, nodes=(node,))
    return None


def list_rows(view: GuardView, numbers: Mapping[int, int]) -> list[TreeRow]:
    """List a prepared tree flat: a recursive template would go too deep."""
    rows: list[TreeRow] = []
    stack: list[tuple[bool, ViewNode]] = [(True, node) for node in reversed(view.nodes)]
    while stack:
        begins, node = stack.pop()
        number = numbers[id(node.node)]
        if not begins:
            rows.append(TreeRow("end", node, number))
        elif node.children or node.hidden_count:
            rows.append(TreeRow("branch", node, number))
            stack.append((False, node))
            stack.extend((True, child) for child in reversed(node.children))
        else:
            rows.append(TreeRow("leaf", node, number))
    return rows
