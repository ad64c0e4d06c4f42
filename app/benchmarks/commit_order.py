"""Commits and their ancestry along first parents, as far as known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from compileboard.app.core.engine import Engine

MAX_COMMITS_BETWEEN = 20_000  # two years of a busy repository
MAX_ANCESTRY = 50_000
# Committers' clocks differ: a commit between two others may seem older or newer by this much.
SLACK_US = 7 * 86_400_000_000

SPAN_SQL = """
select count(*) as known_count, min(c.time_us) as oldest_us, max(c.time_us) as newest_us
from $each(:hashes) as wanted
$join commits as c on c.hash = wanted.value
"""
STATE_SQL = """
select
  count(*) as commit_count, count(parent_hash) as parent_count,
  coalesce(sum((time_us - :since_us) * 1.0), 0.0) as time_total
from commits
where time_us between :since_us and :until_us
"""
# Following parents one by one takes four times as long as reading all commits between two times.
ANCESTRY_SQL = """
select hash, parent_hash, time_us
from commits
where time_us between :since_us and :until_us
order by time_us desc, hash
limit :limit
"""
TIMES_SQL = "select hash, time_us from commits where hash $in(:hashes)"
TEXTS_SQL = "select hash, author, subject, time_us from commits where hash $in(:hashes)"


class CommitSpan(NamedTuple):
    """A period and its commits. Spans with the same commits are equal."""

    since_us: int
    until_us: int
    commit_count: int
    parent_count: int
    time_total: float


@dataclass(frozen=True)
class KnownCommit:
    hash: str
    author: str | None
    subject: str | None
    time_us: int


@dataclass(frozen=True)
class CommitRange:
    """The commits after one commit up to and including another, newest first; `count` is of all of
    them.

    If it is not `known`, the chain is broken, or its first commit is not an ancestor of its last.
    """

    commits: Sequence[KnownCommit]
    count: int
    known: bool


def find_span(engine: Engine, hashes: Iterable[str | None]) -> CommitSpan | None:
    selected = sorted({digest for digest in hashes if digest})
    ((known_count, oldest_us, newest_us),) = engine.rows(SPAN_SQL, {"hashes": selected})
    if not known_count:  # engines disagree on the minimum of nothing
        return None
    times = {"since_us": oldest_us - SLACK_US, "until_us": newest_us + SLACK_US}
    return CommitSpan(*times.values(), *engine.rows(STATE_SQL, times)[0])


def list_ancestry(engine: Engine, span: CommitSpan) -> dict[str, tuple[str | None, int]]:
    return {
        hash_: (parent, time_us)
        for hash_, parent, time_us in _read_commits(engine, span.since_us, span.until_us)
    }


def _read_commits(engine: Engine, since_us: int, until_us: int) -> Iterator[tuple[Any, ...]]:
    return engine.stream(
        ANCESTRY_SQL, {"since_us": since_us, "until_us": until_us, "limit": MAX_ANCESTRY}
    )


def list_commit_range(
    engine: Engine, base_hash: str, new_hash: str, limit: int = 50
) -> CommitRange:
    """List the newest `limit` commits after a base up to and including a new one, along first
    parents.
    """
    if base_hash == new_hash:
        return CommitRange((), 0, True)
    times_us = dict(map(tuple, engine.rows(TIMES_SQL, {"hashes": [base_hash, new_hash]})))
    if new_hash not in times_us:
        return CommitRange((), 0, False)
    since_us = times_us[base_hash] - SLACK_US if base_hash in times_us else -(2**63)
    parents = {
        hash_: parent
        for hash_, parent, _time_us in _read_commits(
            engine, since_us, times_us[new_hash] + SLACK_US
        )
    }
    chain: list[str] = []
    commit: str = new_hash
    while (
        commit in parents and len(chain) < MAX_COMMITS_BETWEEN
    ):  # stops at commits that are their own ancestors
        chain.append(commit)
        commit = parents[commit] or ""
        if commit == base_hash:
            texts = {
                row["hash"]: KnownCommit(**dict(row))
                for row in engine.rows(TEXTS_SQL, {"hashes": chain[:limit]})
            }
            return CommitRange([texts[digest] for digest in chain[:limit]], len(chain), True)
    return CommitRange((), 0, False)


# First parent and time by hash. First commits, and those where a clone was cut off, have no parent.
Parents = Mapping[str, tuple[str | None, int]]
_Key = tuple[int, int, str]


@dataclass(frozen=True)
class CommitOrder:
    """The position of each commit, and what is unknown about it.

    `unknown` are commits whose parent was never reported; `histories` counts separate chains.
    """

    positions: Mapping[str, int]
    unknown: frozenset[str]
    histories: int


def order_commits(first_seen_us: Mapping[str, int], parents: Parents) -> CommitOrder:
    """Order commits: ancestors before descendants, the others by commit time, or by when they were
    first seen.

    No commit is lost, even if `parents` lacks commits, has unknown ones, or forms cycles.
    """
    nearest, ends = _find_nearest(first_seen_us, parents)
    _break_cycles(nearest)
    keys = {
        commit: (parents[commit][1] if commit in parents else seen_us, seen_us, commit)
        for commit, seen_us in first_seen_us.items()
    }
    positions = {commit: position for position, commit in enumerate(_sort_commits(nearest, keys))}
    known = [commit for commit in first_seen_us if commit in parents]
    oldest_us = min((parents[commit][1] for commit in known), default=0)
    # A chain continues before the oldest requested commit, whether its beginning is known or not.
    first = [ends.get(commit, commit) for commit in known if nearest[commit] is None]
    begun = {commit if parents[commit][1] > oldest_us else None for commit in first}
    return CommitOrder(positions, frozenset(first_seen_us) - frozenset(known), len(begun))


def _find_nearest(
    selected: Iterable[str], parents: Parents
) -> tuple[dict[str, str | None], dict[str, str]]:
    starts = set(selected)
    nearest: dict[str, str | None] = {}
    ends: dict[str, str] = {}
    nearest_by_commit: dict[str, tuple[str | None, str]] = {}  # Includes every commit on the way.
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


def _break_cycles(nearest: dict[str, str | None]) -> None:
    """Treat one commit of each cycle as a first one. Git makes no cycles, but a hostile database
    may.
    """
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


def _sort_commits(nearest: Mapping[str, str | None], keys: Mapping[str, _Key]) -> list[str]:
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
