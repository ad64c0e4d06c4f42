"""An odd value in a bundle is left out and counted; the rows that have it, and the bundle itself,
stay as they are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.contract.events import CacheLookedUp, Event, ProcessStarted, RunStarted
from compileboard.collectors.store.bundles import merge_bundle, write_bundle
from compileboard.collectors.store.connection import NotAStore, open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection

EVENTS: list[Event] = [RunStarted("r", 0, 5, "R", "run"), ProcessStarted("p", 0, 6, "R", 42)]
EVENTS += [CacheLookedUp("p", number, 7, time_taken_us=5, time_saved_us=6) for number in (1, 2)]


@pytest.fixture
def board(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_writer(tmp_path / "board.db")) as connection:
        migrate_connection(connection)
        yield connection


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    with closing(open_writer(tmp_path / "own.db")) as connection:
        migrate_connection(connection)
        Ingestor(connection).ingest("R", EVENTS)
        write_bundle(connection, ["R"], str(tmp_path / "run.bundle"))
    return tmp_path / "run.bundle"


def change(bundle: Path, statement: str) -> None:
    with closing(sqlite3.connect(bundle, isolation_level=None)) as connection:
        connection.execute(statement)


def rejects(board: sqlite3.Connection) -> list[tuple[object, ...]]:
    return [
        tuple(row)
        for row in board.execute("select file_name, kind, reject_count, example from run_rejects")
    ]


def test_a_number_beyond_the_range_is_left_out_of_its_row(
    board: sqlite3.Connection, bundle: Path
) -> None:
    change(bundle, f"update cache_lookups set time_taken_us = {2**62} where sequence = 1")
    before = bundle.read_bytes()
    assert [run.state for run in merge_bundle(board, str(bundle))] == ["new"]
    rows = board.execute("select time_taken_us, time_saved_us from cache_lookups order by sequence")
    assert [tuple(row) for row in rows] == [(None, 6), (5, 6)]
    assert rejects(board) == [("bundle", "bad_field", 1, f"cache_lookups.time_taken_us is {2**62}")]
    assert bundle.read_bytes() == before


@pytest.mark.parametrize(
    ("value", "kept"), [(2**43, 2**43), (2**43 + 1, 0), (-(2**43), -(2**43)), (-(2**63), 0)]
)
def test_a_column_that_is_never_null_has_0(
    board: sqlite3.Connection, bundle: Path, value: int, kept: int
) -> None:
    change(bundle, f"update run_totals set compile_us = {value}")
    assert [run.state for run in merge_bundle(board, str(bundle))] == ["new"]
    assert board.execute("select compile_us from run_totals").fetchone()[0] == kept
    assert len(rejects(board)) == (kept == 0)


def test_facts_that_are_no_json_are_none_and_odd_columns_count_together(
    board: sqlite3.Connection, bundle: Path
) -> None:
    change(bundle, "update runs set facts = '../x'")
    change(bundle, f"update cache_lookups set time_taken_us = {2**60}, time_saved_us = {-(2**60)}")
    list(merge_bundle(board, str(bundle)))
    assert board.execute("select facts from runs").fetchone()[0] == "{}"
    assert [row[2] for row in rejects(board)] == [5]


@pytest.mark.parametrize("row_id", [-1, -(2**63), 2**53 + 1, 2**63 - 1])
def test_a_bundle_with_an_id_that_leaves_no_next_one_is_refused(
    board: sqlite3.Connection, bundle: Path, row_id: int
) -> None:
    change(bundle, f"update cache_lookups set id = {row_id} where sequence = 1")
    with pytest.raises(NotAStore, match="cache_lookups"):
        list(merge_bundle(board, str(bundle)))
    assert board.execute("select count(*) from runs").fetchone()[0] == 0


def test_a_bundle_that_is_in_order_counts_nothing(board: sqlite3.Connection, bundle: Path) -> None:
    list(merge_bundle(board, str(bundle)))
    assert rejects(board) == []


def test_numbers_that_are_summed_are_smaller(board: sqlite3.Connection, bundle: Path) -> None:
    change(bundle, f"update cache_lookups set time_taken_us = {2**44}, time_us = {2**52}")
    list(merge_bundle(board, str(bundle)))
    rows = board.execute("select time_taken_us, time_us from cache_lookups")
    assert {tuple(row) for row in rows} == {(None, 2**52)}
