"""Commits and their ancestry along first parents, as far as known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from compileboard.app.queries.engine import Engine

MOST_BETWEEN = 20_000  # two years of a busy repository
MOST_ANCESTRY = 50_000
# Clocks of those who commit differ: what lies between two commits may be older, or newer, than both
# by this much.
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
# Following parents one by one takes four times as long as reading all commits of the time between.
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
    """A time and its commits: equal spans have the same commits."""

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

    A range that is not `known` has a broken chain, or its first commit is no ancestor of its last.
    """

    commits: Sequence[KnownCommit]
    count: int
    known: bool


def find_span(engine: Engine, hashes: Iterable[str | None]) -> CommitSpan | None:
    selected = sorted({digest for digest in hashes if digest})
    ((known_count, oldest_us, newest_us),) = engine.rows(SPAN_SQL, {"hashes": selected})
    if not known_count:  # what the least of nothing is, engines do not agree on
        return None
    times = {"since_us": oldest_us - SLACK_US, "until_us": newest_us + SLACK_US}
    return CommitSpan(*times.values(), *engine.rows(STATE_SQL, times)[0])


def list_ancestry(engine: Engine, span: CommitSpan) -> dict[str, tuple[str | None, int]]:
    return {
        hash_: (parent, time_us)
        for hash_, parent, time_us in _read(engine, span.since_us, span.until_us)
    }


def _read(engine: Engine, since_us: int, until_us: int) -> Iterator[tuple[Any, ...]]:
    return engine.stream(
        ANCESTRY_SQL, {"since_us": since_us, "until_us": until_us, "limit": MOST_ANCESTRY}
    )


def list_commit_range(
    engine: Engine, base_hash: str, new_hash: str, limit: int = 50
) -> CommitRange:
    """List the commits after a base up to and including a new one, along first parents; `limit`
    newest ones.
    """
    if base_hash == new_hash:
        return CommitRange((), 0, True)
    times_us = dict(map(tuple, engine.rows(TIMES_SQL, {"hashes": [base_hash, new_hash]})))
    if new_hash not in times_us:
        return CommitRange((), 0, False)
    since_us = times_us[base_hash] - SLACK_US if base_hash in times_us else -(2**63)
    parents = {
        hash_: parent
        for hash_, parent, _time_us in _read(engine, since_us, times_us[new_hash] + SLACK_US)
    }
    chain: list[str] = []
    commit: str = new_hash
    while (
        commit in parents and len(chain) < MOST_BETWEEN
    ):  # an end also of commits that are their own ancestors
        chain.append(commit)
        commit = parents[commit] or ""
        if commit == base_hash:
            texts = {
                row["hash"]: KnownCommit(**dict(row))
                for row in engine.rows(TEXTS_SQL, {"hashes": chain[:limit]})
            }
            return CommitRange([texts[digest] for digest in chain[:limit]], len(chain), True)
    return CommitRange((), 0, False)
