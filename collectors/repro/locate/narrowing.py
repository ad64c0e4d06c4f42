"""Searches that ask whether a changed graph still fails. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class GraphEdit:
    cut: int | None = None  # number of calls
    exposed: tuple[str, ...] = ()  # nodes


def find_shortest_failing(count: int, fails: Callable[[int], bool]) -> int | None:
    """Return the shortest failing number of first calls, or None if the whole graph passes."""
    if not fails(count):
        return None
    passing, failing = 0, count
    while failing - passing > 1:
        middle = (passing + failing) // 2
        if fails(middle):
            failing = middle
        else:
            passing = middle
    return failing


def find_hidden(names: Sequence[str], fails: Callable[[tuple[str, ...]], bool]) -> list[str]:
    """Return the nodes whose values must not be returned for the graph to fail, in order.

    `fails` gets the additional outputs. With none of them the graph fails.
    """
    exposed: set[str] = set()
    size = len(names)
    while size:
        rest = [name for name in names if name not in exposed]
        for start in range(0, len(rest), size):
            part = rest[start : start + size]
            if fails(tuple(name for name in names if name in exposed or name in part)):
                exposed.update(part)
        size = size // 2 if size > 1 else 0
    return [name for name in names if name not in exposed]
