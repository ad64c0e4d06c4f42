"""Commits and what came before them, along first parents, as far as the database was told."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST_STEPS = 50_000  # five years of a busy repository
MOST_BETWEEN = 20_000  # two years of it
# Clocks of those who commit differ; a walk ends where commits are older than what it looks for by more than this.
SLACK_US = 30 * 86_400_000_000

ANCESTRY_SQL = """
with recursive wanted (hash) as (
  select distinct value from json_each(:hashes)
), reach (since_us) as (
  select min(c.time_us) - :slack_us
  from wanted as w
  cross join commits as c on c.hash = w.hash
), walk (hash, parent_hash, time_us) as (
  select c.hash, c.parent_hash, c.time_us
  from wanted as w
  cross join commits as c on c.hash = w.hash
  union
  select c.hash, c.parent_hash, c.time_us
  from walk as k
  cross join commits as c on c.hash = k.parent_hash
  where c.time_us >= (select since_us from reach)
  limit :limit
)
select hash, parent_hash, time_us
from walk
"""
RANGE_SQL = """
with recursive walk (hash, parent_hash, time_us, author, subject, step) as (
  select c.hash, c.parent_hash, c.time_us, c.author, c.subject, 1
  from commits as c
  where c.hash = :new
  union all
  select c.hash, c.parent_hash, c.time_us, c.author, c.subject, k.step + 1
  from walk as k
  cross join commits as c on c.hash = k.parent_hash
  where k.parent_hash <> :base
    and c.time_us >= :since_us
  limit :limit
)
select hash, parent_hash, time_us, author, subject
from walk
order by step
"""
TIME_SQL = "select time_us from commits where hash = :hash"


@dataclass(frozen=True)
class KnownCommit:
    """Hold one commit."""

    hash: str
    author: str | None
    subject: str | None
    time_us: int


@dataclass(frozen=True)
class CommitRange:
    """Hold the commits after one commit up to and with another, the newest first; `count` is of all of them.

    Not `known` is a range whose chain is broken, or whose first commit is no ancestor of its last: it has no commits.
    """

    commits: Sequence[KnownCommit]
    count: int
    known: bool


@dataclass(frozen=True)
class KnownParent:
    """Hold whom a commit comes after; `parent_hash` is None of a first commit and where a clone was cut off."""

    parent_hash: str | None
    time_us: int


def list_ancestry(
    connection: sqlite3.Connection, hashes: Iterable[str], limit: int = MOST_STEPS
) -> dict[str, KnownParent]:
    """Return first parents by hash, of the given commits and of all that lie between them."""
    values = {"hashes": json.dumps(sorted(set(hashes))), "slack_us": SLACK_US, "limit": limit}
    return {row[0]: KnownParent(row[1], row[2]) for row in connection.execute(ANCESTRY_SQL, values)}


def list_commit_range(connection: sqlite3.Connection, base_hash: str, new_hash: str, limit: int = 50) -> CommitRange:
    """List what came after a base commit up to and with a new one, along first parents.

    `limit` is how many of the newest are returned; `count` is of all.
    """
    if base_hash == new_hash:
        return CommitRange((), 0, True)
    row = connection.execute(TIME_SQL, {"hash": base_hash}).fetchone()
    since_us = row[0] - SLACK_US if row else -(2**63)
    values = {"base": base_hash, "new": new_hash, "since_us": since_us, "limit": MOST_BETWEEN}
    rows = connection.execute(RANGE_SQL, values).fetchall()
    if not rows or rows[-1]["parent_hash"] != base_hash:
        return CommitRange((), 0, False)
    commits = [KnownCommit(it["hash"], it["author"], it["subject"], it["time_us"]) for it in rows[:limit]]
    return CommitRange(commits, len(rows), True)
