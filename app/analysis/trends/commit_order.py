"""Order commits so that each comes after its known ancestors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

# First parent and time by hash; a first commit, and one where a clone was cut off, has no parent.
Parents = Mapping[str, tuple[str | None, int]]
_Key = tuple[int, int, str]


@dataclass(frozen=True)
class CommitOrder:
    """The position of each commit, and what is unknown about it.

    `unknown` are commits whose parent was never reported; `histories` counts chains that nothing
    known connects.
    """

    positions: Mapping[str, int]
    unknown: frozenset[str]
    histories: int


def order_commits(first_seen_us: Mapping[str, int], parents: Parents) -> CommitOrder:
    """Order commits: an ancestor before its descendants, the rest by the commit's time, else when
    it was first seen.

    Parents may lack commits, name unknown ones, or form cycles: no commit is lost.
    """
    nearest, ends = _find_nearest(first_seen_us, parents)
    _cut_circles(nearest)
    keys = {
        commit: (parents[commit][1] if commit in parents else seen_us, seen_us, commit)
        for commit, seen_us in first_seen_us.items()
    }
    positions = {commit: position for position, commit in enumerate(_sort(nearest, keys))}
    known = [commit for commit in first_seen_us if commit in parents]
    oldest_us = min((parents[commit][1] for commit in known), default=0)
    # A chain goes on before the oldest commit that is asked for, whether its beginning is at hand
    # or not.
    first = [ends.get(commit, commit) for commit in known if nearest[commit] is None]
    begun = {commit if parents[commit][1] > oldest_us else None for commit in first}
    return CommitOrder(positions, frozenset(first_seen_us) - frozenset(known), len(begun))


def _find_nearest(
    selected: Iterable[str], parents: Parents
) -> tuple[dict[str, str | None], dict[str, str]]:
    starts = set(selected)
    nearest: dict[str, str | None] = {}
    ends: dict[str, str] = {}
    nearest_by_commit: dict[str, tuple[str | None, str]] = {}  # of every commit on the way
    for start in sorted(starts):
        path: dict[str, None] = {}
        at = last = start
        while at in parents and at not in path and at not in nearest_by_commit:
            path[at] = None
            last, at = at, parents[at][0] or ""
            if at in starts:
                break
        before = (at, last) if at in starts and path else nearest_by_commit.get(at, (None, last))
        nearest_by_commit.update(dict.fromkeys(path, before))
        nearest[start], ends[start] = before if before[0] != start else (None, start)
    return nearest, ends


def _cut_circles(nearest: dict[str, str | None]) -> None:
    """Treat one commit of each cycle as a first one; git makes none, a hostile database may."""
    done: set[str] = set()
    for start in sorted(nearest):
        path: set[str] = set()
        at: str | None = start
        last = start
        while at is not None and at not in done:
            if at in path:
                nearest[last] = None
                break
            path.add(at)
            last, at = at, nearest[at]
        done |= path


def _sort(nearest: Mapping[str, str | None], keys: Mapping[str, _Key]) -> list[str]:
    children: dict[str | None, list[str]] = {}
    for commit, before in nearest.items():
        children.setdefault(before, []).append(commit)
    downwards = list(children.get(None, ()))
    for commit in downwards:
        downwards += children.get(commit, ())
    earliest = dict(keys)
    for commit in reversed(downwards):
        before = nearest[commit]
        if before is not None:
            earliest[before] = min(earliest[before], earliest[commit])
    ready = [(earliest[commit], keys[commit], commit) for commit in children.get(None, ())]
    heapify(ready)
    ordered = []
    while ready:
        _earliest, _key, other_commit = heappop(ready)
        ordered.append(other_commit)
        for child in children.get(other_commit, ()):
            heappush(ready, (earliest[child], keys[child], child))
    return ordered
