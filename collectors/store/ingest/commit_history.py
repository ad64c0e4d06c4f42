"""Store the first-parent history of repositories.

Commits belong to a repository, not to a run: they are kept while any run has a commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from compileboard.collectors.store.connection import read_value

# A shallow clone does not know its oldest commit's parent; a deeper one that comes later does.
SAVE = """
insert into commits (hash, parent_hash, time_us, author, subject)
values (:hash, :parent_hash, :time_us, :author, :subject)
on conflict (hash) do update set parent_hash = excluded.parent_hash
where commits.parent_hash is null
  and excluded.parent_hash is not null
"""
COUNT = "select count(*) from commits"


class StoredCommit(NamedTuple):
    hash: str
    parent_hash: str | None
    time_us: int
    author: str | None
    subject: str | None


def save_commits(connection: sqlite3.Connection, commits: Iterable[StoredCommit]) -> None:
    connection.executemany(SAVE, (commit._asdict() for commit in commits))


def count_commits(connection: sqlite3.Connection) -> int:
    return int(read_value(connection, COUNT))
