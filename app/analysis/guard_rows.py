"""A tree of guards as a page writes it: searched, cut to one subtree, and laid out row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from compileboard.app.analysis.guard_tree import GuardView, ViewNode
from compileboard.collectors.payloads import GuardNode, GuardTree, walk


@dataclass(frozen=True)
class TreeRow:
    """Hold one step of writing a tree: a branch begins, a leaf stands, a branch ends.

    `number` names the row's node in an address.
    """

    step: Literal["branch", "leaf", "end"]
    it: ViewNode
    number: int


def filter_tree(tree: GuardTree, text: str) -> GuardTree:
    """Keep the lines of a tree that have a text, capitals aside, with the managers above them."""
    wanted = text.lower()
    kept: list[list[GuardNode]] = [[]]
    for depth, node in reversed(list(walk(tree))):
        while len(kept) <= depth + 1:
            kept.append([])
        children = kept[depth + 1]
        if children or _has_text(node, wanted):
            kept[depth].append(replace(node, children=tuple(reversed(children))))
        kept[depth + 1] = []
    return replace(tree, nodes=tuple(reversed(kept[0])))


def _has_text(node: GuardNode, wanted: str) -> bool:
    said = (node.guard_type, node.source, node.code, node.user_line, node.file, node.function, node.value_type)
    return any(wanted in it.lower() for it in said if it)


def number_nodes(tree: GuardTree) -> dict[int, int]:
    """Number the nodes of a tree in torch's order, by their identity."""
    return {id(node): number for number, (_depth, node) in enumerate(walk(tree))}


def take_subtree(tree: GuardTree, number: int) -> GuardTree | None:
    """Return the tree of one node alone, None where no node has that number."""
    for place, (_depth, node) in enumerate(walk(tree)):
        if place == number:
            return replace(tree, nodes=(node,))
    return None


def list_rows(view: GuardView, numbers: Mapping[int, int]) -> list[TreeRow]:
    """Lay out a prepared tree as begins, leaves and ends: a template that called itself would go too deep."""
    rows: list[TreeRow] = []
    stack: list[tuple[bool, ViewNode]] = [(True, it) for it in reversed(view.nodes)]
    while stack:
        begins, it = stack.pop()
        number = numbers[id(it.node)]
        if not begins:
            rows.append(TreeRow("end", it, number))
        elif it.children or it.hidden_count:
            rows.append(TreeRow("branch", it, number))
            stack.append((False, it))
            stack.extend((True, child) for child in reversed(it.children))
        else:
            rows.append(TreeRow("leaf", it, number))
    return rows
