"""Cache lookups of a run: the nearest earlier key of a miss, and lookups grouped by what
differs.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import orjson

from compileboard.app.analysis.caches.keys import (
    KeyDiff,
    compare_keys,
    explain_component,
    nearest_earlier,
    order_component,
)
from compileboard.collectors.store.payloads import Component, parse_components

Entry = TypeVar("Entry")
_CANDIDATES = 4  # compared component by component, out of those that share the most whole lines
_GRAPH = "gm"  # the component that is the graph's code
_CALL = re.compile(r"= ([A-Za-z_][\w.]*)\(")
# Of the calls. In captures of torch 2.11 two compiles of one function share 0.67 to 1.00, two
# models that go through one wrapper of their library 0.28 to 0.53, and a forward and its backward
# graph 0.51.
_LEAST_ALIKE = 0.6


@dataclass(frozen=True)
class ComponentGroup:
    name: str
    explanation: str
    components: tuple[Component, ...]


def read_lines(text: str) -> list[str]:
    """Read a key's components as whole lines: 0.2 ms for 600 of them, against 3 ms to parse
    them.
    """
    try:
        payload = orjson.loads(text)
    except ValueError:
        return []
    lines = payload.get("components") or payload.get("lines") if isinstance(payload, dict) else None
    if isinstance(lines, str):
        return lines.splitlines()
    return lines if isinstance(lines, list) else []


def _count_shared(sought: frozenset[str], lines: list[str]) -> int:
    try:
        return len(sought.intersection(lines))
    except TypeError:  # damage: something in the list is no text and cannot be in a set
        return len(sought.intersection(line for line in lines if isinstance(line, str)))


def _find_graph(components: Sequence[Component]) -> Component | None:
    return next((component for component in components if component.name == _GRAPH), None)


def _count_calls(code: str) -> Counter[str]:
    return Counter(
        name if name.startswith("torch.") else name.rpartition(".")[2]
        for name in _CALL.findall(code)
    )


def measure_likeness(first_graph: str, second_graph: str) -> float:
    """Return the share of the larger graph's calls that both have; 1 if neither calls anything."""
    first, second = _count_calls(first_graph), _count_calls(second_graph)
    whole = max(first.total(), second.total())
    return (first & second).total() / whole if whole else 1.0


def _is_comparable(components: Sequence[Component], other: Sequence[Component]) -> bool:
    graph, other_graph = _find_graph(components), _find_graph(other)
    if graph is None or other_graph is None or graph.value == other_graph.value:
        return True
    return measure_likeness(graph.value, other_graph.value) >= _LEAST_ALIKE


def find_nearest(
    components: Sequence[Component], text: str, earlier: Iterable[tuple[Entry, str]]
) -> tuple[Entry, KeyDiff] | None:
    """Return the earlier key with the fewest differing components, the latest of equals, and its
    difference.

    Keys are ranked by the lines they share with the missed one; the best few are then compared by
    component.
    """
    sought = frozenset(line for line in read_lines(text) if isinstance(line, str))
    if not sought or not components:
        return None
    best: list[tuple[int, int, Entry, str]] = []
    for number, (entry, key_text) in enumerate(earlier):
        lines = read_lines(key_text)
        if not lines:
            continue
        differing = len(sought) + len(lines) - 2 * _count_shared(sought, lines)
        item = (-differing, number, entry, key_text)
        (heapq.heappush if len(best) < _CANDIDATES else heapq.heappushpop)(best, item)
    best.sort(key=lambda candidate: candidate[1])
    parsed = [(entry, parse_components(text) or []) for _differing, _number, entry, text in best]
    keys = [(entry, key) for entry, key in parsed if _is_comparable(components, key)]
    nearest = nearest_earlier(components, (key for _entry, key in keys))
    return (
        None if nearest is None else (keys[nearest][0], compare_keys(components, keys[nearest][1]))
    )


def group_components(components: Iterable[Component]) -> list[ComponentGroup]:
    groups: dict[str, list[Component]] = {}
    for component in sorted(components, key=lambda component: order_component(component.name)):
        groups.setdefault(component.name.partition("[")[0], []).append(component)
    return [
        ComponentGroup(name, explain_component(name), tuple(items))
        for name, items in groups.items()
    ]


def summarize_diff(diff: KeyDiff, most: int = 3) -> str:
    changes = [
        change.summary for change in (*diff.changed, *diff.only_in_miss, *diff.only_in_earlier)
    ]
    left_out = f", and {len(changes) - most} more" if len(changes) > most else ""
    return (
        "; ".join(changes[:most]) + left_out
        if changes
        else "nothing: the same key was queried before"
    )
