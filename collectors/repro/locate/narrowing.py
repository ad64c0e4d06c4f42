"""Searches over a graph that ask whether a changed one still fails. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class GraphEdit:
    """What is changed of a graph before it is tried: its first calls alone, and values that it returns besides."""

    cut: int | None = None  # number of calls
    exposed: tuple[str, ...] = ()  # nodes


def find_shortest_failing(count: int, fails: Callable[[int], bool]) -> int | None:
    """Return the number of first calls that fail where one fewer passes; None if not even all of them fail."""
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

    `fails` is asked with the nodes whose values are returned besides. Returning none of them fails.
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
