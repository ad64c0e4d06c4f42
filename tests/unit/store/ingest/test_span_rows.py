"""Spans of a lane: none of one depth overlap, and totals by name are their sums."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.store.connection import open_writer
from tests.unit.app.explored import explore

TOTALS = "select * from span_totals order by lane_id, name_id"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path: Path = tmp_path_factory.mktemp("spans") / "spans.db"
    explore(path, payloads=False)
    with closing(open_writer(path)) as connection:
        yield connection


def test_spans_of_one_depth_follow_one_another(store: sqlite3.Connection) -> None:
    overlapping = """
    select count(*) from spans as s join spans as p on p.lane_id = s.lane_id and p.depth = s.depth
    where p.begin_us < s.begin_us and p.begin_us + p.duration_us > s.begin_us
      and s.instant + p.instant = 0
    """
    assert store.execute(overlapping).fetchone()[0] == 0
    assert store.execute("select max(depth) from spans").fetchone()[0] > 5


def test_exclusive_times_add_up_to_the_outermost_spans(store: sqlite3.Connection) -> None:
    summed = store.execute("select sum(exclusive_us), sum(span_count) from span_totals").fetchone()
    outermost = store.execute("select sum(duration_us) from spans where depth = 0").fetchone()[0]
    assert tuple(summed) == (outermost, store.execute("select count(*) from spans").fetchone()[0])
