"""Commits and what came before them, along first parents, as far as the database was told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from compileboard.app.queries.engine import Engine, get_row

MOST_BETWEEN = 20_000  # two years of a busy repository
MOST_ANCESTRY = 50_000
# Clocks of those who commit differ: what lies between two commits may be older, or newer, than both by this much.
SLACK_US = 7 * 86_400_000_000

SPAN_SQL = """
select min(c.time_us) as oldest_us, max(c.time_us) as newest_us
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
RANGE_SQL = """
with recursive walk (hash, parent_hash, time_us, author, subject, step) as (
  select c.hash, c.parent_hash, c.time_us, c.author, c.subject, 1
  from commits as c
  where c.hash = :new
  union all
  select c.hash, c.parent_hash, c.time_us, c.author, c.subject, k.step + 1
  from walk as k
  $join commits as c on c.hash = k.parent_hash
  where k.parent_hash <> :base
    and c.time_us >= :since_us
  limit :limit
)
select hash, parent_hash, time_us, author, subject
from walk
order by step
"""
TIME_SQL = "select time_us from commits where hash = :hash"


class CommitSpan(NamedTuple):
    """A time and the commits of it: two that are equal have the same commits.

    Commits are only added, or get the parent that a clone was cut off from.
    """

    since_us: int
    until_us: int
    commit_count: int
    parent_count: int
    time_total: float


@dataclass(frozen=True)
class KnownCommit:
    """One commit."""

    hash: str
    author: str | None
    subject: str | None
    time_us: int


@dataclass(frozen=True)
class CommitRange:
    """The commits after one commit up to and with another, the newest first; `count` is of all of them.

    Not `known` is a range whose chain is broken, or whose first commit is no ancestor of its last: it has no commits.
    """

    commits: Sequence[KnownCommit]
    count: int
    known: bool


def find_span(engine: Engine, hashes: Iterable[str | None]) -> CommitSpan | None:
    """Find the time that the given commits and those between them are of; None where none of them is known."""
    selected = sorted({digest for digest in hashes if digest})
    ((oldest_us, newest_us),) = engine.rows(SPAN_SQL, {"hashes": selected})
    if oldest_us is None:
        return None
    times = {"since_us": oldest_us - SLACK_US, "until_us": newest_us + SLACK_US}
    return CommitSpan(*times.values(), *engine.rows(STATE_SQL, times)[0])


def list_ancestry(engine: Engine, span: CommitSpan, limit: int = MOST_ANCESTRY) -> dict[str, tuple[str | None, int]]:
    """Return first parent and time by hash, of the commits of a span."""
    values = {"since_us": span.since_us, "until_us": span.until_us, "limit": limit}
    return {hash_: (parent_hash, time_us) for hash_, parent_hash, time_us in engine.stream(ANCESTRY_SQL, values)}


def list_commit_range(engine: Engine, base_hash: str, new_hash: str, limit: int = 50) -> CommitRange:
    """List what came after a base commit up to and with a new one, along first parents.

    `limit` is how many of the newest are returned; `count` is of all.
    """
    if base_hash == new_hash:
        return CommitRange((), 0, True)
    row = get_row(engine, TIME_SQL, {"hash": base_hash})
    since_us = row[0] - SLACK_US if row else -(2**63)
    values = {"base": base_hash, "new": new_hash, "since_us": since_us, "limit": MOST_BETWEEN}
    rows = engine.rows(RANGE_SQL, values)
    if not rows or rows[-1]["parent_hash"] != base_hash:
        return CommitRange((), 0, False)
    commits = [KnownCommit(row["hash"], row["author"], row["subject"], row["time_us"]) for row in rows[:limit]]
    return CommitRange(commits, len(rows), True)
