"""Ancestry and ranges of commits: nothing is claimed of a chain that is not whole."""

from __future__ import annotations

import sqlite3

import pytest

from compileboard.app.benchmarks import commit_order as commits
from compileboard.app.benchmarks.commit_order import list_commit_range
from compileboard.app.core.engine import SqliteEngine
from compileboard.app.core.run_cache import cached_ancestry
from compileboard.collectors.store.ingest.commit_history import StoredCommit, save_commits
from tests.unit.app.clickhouse.published import OpenEngine
from tests.unit.app.plan import list_scans

DAY_US = 86_400_000_000


def add_chain(
    store: sqlite3.Connection,
    count: int,
    *,
    name: str = "c",
    parent: str | None = None,
    day: int = 0,
) -> None:
    before = [parent, *(f"{name}{n}" for n in range(count))]
    rows = [
        StoredCommit(f"{name}{n}", before[n], (day + n) * DAY_US, "Ann", f"{name} {n}")
        for n in range(count)
    ]
    save_commits(store, rows)


def test_a_range_is_what_came_after_base_newest_first(
    open_engine: OpenEngine, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    add_chain(store, 10)
    commit_range = list_commit_range(open_engine(reader), "c3", "c7", limit=2)
    assert [commit.subject for commit in commit_range.commits] == ["c 7", "c 6"]
    assert (commit_range.count, commit_range.known) == (4, True)
    assert list_commit_range(open_engine(reader), "c5", "c5").known


@pytest.mark.parametrize(
    "pair", [("c7", "c3"), ("gone", "c3"), ("c3", "gone"), ("side1", "c9"), ("c1", "late2")]
)
def test_a_range_that_cannot_be_walked_is_not_known(
    open_engine: OpenEngine,
    store: sqlite3.Connection,
    reader: sqlite3.Connection,
    pair: tuple[str, str],
) -> None:
    add_chain(store, 10)
    add_chain(store, 2, name="side", parent="c4", day=5)
    add_chain(store, 3, name="late", parent="never-told", day=90)
    commit_range = list_commit_range(open_engine(reader), *pair)
    assert (list(commit_range.commits), commit_range.count, commit_range.known) == ([], 0, False)


def test_a_base_that_only_its_child_names_is_enough(
    open_engine: OpenEngine, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    add_chain(store, 3, parent="base")
    assert [
        commit.hash for commit in list_commit_range(open_engine(reader), "base", "c2").commits
    ] == [
        "c2",
        "c1",
        "c0",
    ]


def test_ancestry_is_of_the_time_between_those_that_are_asked_for(
    open_engine: OpenEngine, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    add_chain(store, 400)
    ancestry = cached_ancestry(open_engine(reader), ["c350", "c300", "unknown", None])
    assert {f"c{n}" for n in range(300, 351)} <= set(ancestry)
    assert {"c280", "c370", "unknown"}.isdisjoint(ancestry)
    assert ancestry["c350"] == ("c349", 350 * DAY_US)
    assert (
        cached_ancestry(open_engine(reader), [])
        == cached_ancestry(open_engine(reader), ["unknown"])
        == {}
    )


def test_ancestry_is_read_again_when_more_is_known(
    open_engine: OpenEngine, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    save_commits(store, [StoredCommit("c2", None, 2 * DAY_US, None, None)])
    assert cached_ancestry(open_engine(reader), ["c2"]) == {"c2": (None, 2 * DAY_US)}
    save_commits(store, [StoredCommit("c2", "c1", 2 * DAY_US, None, None)])
    assert cached_ancestry(open_engine(reader), ["c2"])["c2"][0] == "c1"
    save_commits(store, [StoredCommit("c1", None, DAY_US, None, None)])
    assert set(cached_ancestry(open_engine(reader), ["c2"])) == {"c1", "c2"}
    assert cached_ancestry(open_engine(reader), ["c2"]) is cached_ancestry(
        open_engine(reader), ["c2"]
    )


def test_commits_that_are_their_own_ancestors_end_the_walk(
    open_engine: OpenEngine, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    save_commits(
        store, [StoredCommit("a", "b", 1, None, None), StoredCommit("b", "a", 1, None, None)]
    )
    assert set(cached_ancestry(open_engine(reader), ["a"])) == {"a", "b"}
    assert not list_commit_range(open_engine(reader), "x", "a").known


@pytest.mark.parametrize(
    "sql",
    [
        commits.SPAN_SQL,
        commits.STATE_SQL,
        commits.ANCESTRY_SQL,
        commits.TIMES_SQL,
        commits.TEXTS_SQL,
    ],
)
def test_no_question_reads_all_commits(reader: sqlite3.Connection, sql: str) -> None:
    values = {
        "hashes": "[]",
        "since_us": 0,
        "until_us": 1,
        "limit": 1,
        "base": "a",
        "new": "b",
        "hash": "a",
    }
    plan = [row["detail"] for row in SqliteEngine(reader).rows(f"explain query plan {sql}", values)]
    assert any(
        "USING PRIMARY KEY" in step or "commits_time (time_us>? AND time_us<?)" in step
        for step in plan
    ), plan
    assert list_scans(reader, sql, values) == set()
