from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from compileboard.app.clickhouse import passes, tables
from compileboard.app.clickhouse.client import SETTINGS, EngineUnavailable
from compileboard.app.clickhouse.passes import ForeignBoard, Publisher, publish_changes
from compileboard.app.clickhouse.publisher import ROLLUPS
from compileboard.app.clickhouse.run_files import find_lost_files
from compileboard.app.core.db import get_publication_state
from compileboard.collectors.store.connection import write_transaction
from compileboard.collectors.store.dashboard import annotate
from compileboard.collectors.store.ingest.commit_history import StoredCommit, save_commits
from compileboard.collectors.store.leases import PUBLISH, try_acquire_lease
from compileboard.collectors.store.reopening import reopen_run
from compileboard.collectors.store.runs import publish_run
from compileboard.collectors.store.sealed_files import list_run_files, list_sealed_runs, run_folder
from compileboard.collectors.store.trash import database_path, delete_run, restore_run
from tests.unit.app.clickhouse.databases import OneClient, empty_database, open_database
from tests.unit.app.clickhouse.publication.boards import assert_same, change_run, read_engine, write
from tests.unit.store.sealed.sealed_board import NOW_US as SEALED_US
from tests.unit.store.sealed.sealed_board import seal_all

pytestmark = pytest.mark.clickhouse
NOW_US = 1_795_420_000_000_000
MINUTE_US = 60_000_000


def _publish(client: Any) -> Publisher:
    return Publisher(OneClient(client, Path("in-process")))


def _ids(board: sqlite3.Connection) -> list[str]:
    return [row["id"] for row in board.execute("select id from runs order by id")]


def test_a_pass_publishes_what_changed_and_nothing_twice(
    client: Any, board: sqlite3.Connection
) -> None:
    publisher = _publish(client)
    assert publisher.run_pass(board, NOW_US).whole_count == 3
    assert publisher.run_pass(board, NOW_US) == passes.PassOutcome()
    assert_same(client, board)
    annotate(board, _ids(board)[0], title="Slow", pinned=True)
    assert publisher.run_pass(board, NOW_US) == passes.PassOutcome(row_count=1)
    change_run(board, _ids(board)[1])
    assert publisher.run_pass(board, NOW_US) == passes.PassOutcome(
        row_count=1
    )  # it may change again at once
    assert publisher.run_pass(board, NOW_US) == passes.PassOutcome(whole_count=1)
    assert_same(client, board)
    assert publisher.run_pass(board, NOW_US) == passes.PassOutcome()


def test_a_deleted_run_goes_at_once_and_comes_back(client: Any, board: sqlite3.Connection) -> None:
    publisher = _publish(client)
    publisher.run_pass(board, NOW_US)
    run_id = _ids(board)[-1]
    delete_run(board, run_id)
    assert publisher.run_pass(board, NOW_US).removed_count == 1
    assert_same(client, board)
    assert board.execute("select count(*) from published_runs").fetchone()[0] == 2
    restore_run(board, run_id)
    assert publisher.run_pass(board, NOW_US).whole_count == 1
    assert_same(client, board)


@pytest.mark.nightly
def test_roll_ups_of_a_live_run_come_ever_less_often(
    client: Any, board: sqlite3.Connection
) -> None:
    publisher = _publish(client)
    run_id = _ids(board)[0]
    whole = []
    for minute in range(16):
        now_us = NOW_US + minute * MINUTE_US
        change_run(board, run_id)
        board.execute(
            "update runs set state = 'running', heartbeat_us = ? where id = ?", (now_us, run_id)
        )
        outcome = publisher.run_pass(board, now_us)
        assert outcome.whole_count + outcome.row_count == (3 if minute == 0 else 1)
        whole += [minute] * (outcome.whole_count - (2 if minute == 0 else 0))
        (counts,) = client.query(
            "select compile_count from runs where id = %(id)s", {"id": run_id}, SETTINGS
        ).result_rows
        assert (
            counts[0]
            == board.execute(
                "select compile_count from run_totals where run_id = ?", (run_id,)
            ).fetchone()[0]
        )
    assert whole == [1, 3, 7, 15]
    board.execute("update runs set state = 'finished', ended_us = ? where id = ?", (now_us, run_id))
    change_run(board, run_id)
    assert [publisher.run_pass(board, now_us).whole_count for _ in range(2)] == [0, 1]
    assert_same(client, board)


@pytest.mark.nightly
def test_months_are_summed_once_they_are_quiet(client: Any, board: sqlite3.Connection) -> None:
    publisher = _publish(client)
    publisher.run_pass(board, NOW_US)
    assert publisher.rebuild_months(board, NOW_US) == []
    months = publisher.rebuild_months(board, NOW_US + passes.QUIET_US, max_count=12)
    assert months
    assert client.query("select count() from break_months").result_rows != [(0,)]
    assert_same(client, board)
    change_run(board, _ids(board)[0])
    publisher.run_pass(board, NOW_US + passes.QUIET_US)
    clean = {row[0] for row in client.query("select month from clean_months").result_rows}
    assert clean < set(months)
    assert _publish(client).rebuild_months(board, NOW_US, max_count=12) == sorted(
        set(months) - clean
    )
    assert_same(client, board)


@pytest.mark.nightly
def test_a_month_whose_runs_are_deleted_has_no_sums(client: Any, board: sqlite3.Connection) -> None:
    publisher = _publish(client)
    publisher.run_pass(board, NOW_US)
    later_us = NOW_US + passes.QUIET_US
    months = publisher.rebuild_months(board, later_us, max_count=12)
    for run_id in _ids(board):
        delete_run(board, run_id)
    publisher.run_pass(board, later_us)
    assert publisher.rebuild_months(board, later_us + passes.QUIET_US, max_count=12) == months
    assert client.query("select count() from break_months").result_rows == [(0,)]
    assert_same(client, board)


@pytest.mark.nightly
def test_a_run_whose_file_is_lost_is_listed_and_published_whole_when_it_is_back(
    client: Any, board: sqlite3.Connection
) -> None:
    _publish(client).run_pass(board, NOW_US)
    totals = client.query(
        "select id, compile_count from runs order by id", settings=SETTINGS
    ).result_rows
    first, *_others = seal_all(board)
    board.execute("update published_runs set version = 2 * version + 100")
    empty_database(client)
    (file,) = list_run_files(database_path(board), first)
    packed = file.read_bytes()
    for content in (None, packed[:-1] + b"x"):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        publisher = _publish(client)
        for _ in range(2):
            (refused,) = publisher.run_pass(board, NOW_US).refused
            assert str(file) in str(refused)
        assert (
            client.query(
                "select id, compile_count from runs order by id", settings=SETTINGS
            ).result_rows
            == totals
        )
        assert client.query(
            "select count() from results where run_id = %(id)s", {"id": first}
        ).result_rows == [(0,)]
        assert first in find_lost_files(board) and len(find_lost_files(board)) == 1
    file.write_bytes(packed)
    assert publisher.run_pass(board, NOW_US) == passes.PassOutcome(whole_count=1)
    assert find_lost_files(board) == {}
    reopen_all(board)
    assert_same(client, board)


def reopen_all(board: sqlite3.Connection) -> None:
    with write_transaction(board):
        assert all(reopen_run(board, run.run_id) for run in list_sealed_runs(board))


@pytest.mark.nightly
def test_what_no_run_names_is_swept(client: Any, board: sqlite3.Connection) -> None:
    publisher = _publish(client)
    for _ in range(3):
        change_run(board, _ids(board)[0])
        publisher.run_pass(board, NOW_US, everything=True)
    delete_run(board, _ids(board)[1])
    publisher.run_pass(board, NOW_US)
    assert publisher.delete_unused_rollups(board, NOW_US) > 0
    assert publisher.delete_unused_rollups(board, NOW_US) == 0
    for table, rows in (("results", "results_rows"), ("run_breaks", "run_break_kinds_rows")):
        sql = f"select count(distinct run_id) from {table}"
        there = f"select uniqExact({'run_id' if table == 'results' else 'pub'}) from {rows}"
        assert client.query(there).result_rows == [tuple(board.execute(sql).fetchone())]
    assert client.query("select count() from results_rows").result_rows == [
        tuple(board.execute("select count(*) from results").fetchone())
    ]
    assert_same(client, board)


@pytest.mark.nightly
def test_a_board_restored_from_an_older_backup_is_published_again(
    client: Any, board: sqlite3.Connection, tmp_path: Path
) -> None:
    _publish(client).run_pass(board, NOW_US)
    staying, later, deleted = _ids(board)
    with sqlite3.connect(tmp_path / "older.db") as older:
        board.backup(older)
    older.close()
    change_run(board, later)
    _publish(client).run_pass(board, NOW_US)
    with write(tmp_path / "older.db") as restored:
        for _ in range(20):  # its numbers have come past those of the board that is deleted
            change_run(restored, staying)
        delete_run(restored, deleted)
        outcome = _publish(client).run_pass(restored, NOW_US)
        assert (outcome.whole_count, outcome.removed_count) == (2, 1)
        assert_same(client, restored)


def test_an_engine_that_lost_its_tables_is_filled_again(
    client: Any, board: sqlite3.Connection, chdb_folder: Path
) -> None:
    _publish(client).run_pass(board, NOW_US)
    empty = open_database(chdb_folder)
    tables.create_tables(empty)
    assert _publish(empty).run_pass(board, NOW_US).whole_count == 3
    assert_same(empty, board)


def test_a_sealed_run_is_published_from_its_file(
    client: Any, board: sqlite3.Connection, chdb_folder: Path
) -> None:
    _publish(client).run_pass(board, NOW_US)
    expected = {table: read_engine(client, board, table) for table in ROLLUPS}
    sealed = seal_all(board)
    empty = open_database(chdb_folder)
    tables.create_tables(empty)
    publisher = _publish(empty)
    assert publisher.run_pass(board, SEALED_US).whole_count == len(sealed) == 3
    assert {table: read_engine(empty, board, table) for table in ROLLUPS} == expected
    annotate(board, sealed[0], note="No file is needed for this.")
    shutil.rmtree(run_folder(database_path(board)))
    assert publisher.run_pass(board, SEALED_US) == passes.PassOutcome(row_count=1)
    publish_run(board, sealed[0])
    (error,) = publisher.run_pass(board, SEALED_US, everything=True).refused
    assert "is missing" in str(error)


def test_two_boards_do_not_share_a_database(client: Any, board: sqlite3.Connection) -> None:
    _publish(client).run_pass(board, NOW_US)
    board.execute("update engine_publications set board_id = 'another'")
    with pytest.raises(
        ForeignBoard, match="has the runs of another dashboard; name an empty database"
    ):
        _publish(client).run_pass(board, NOW_US)


def test_what_waits_is_counted_while_clickhouse_is_away(
    client: Any, board: sqlite3.Connection
) -> None:
    assert get_publication_state(board) is None
    publisher = _publish(client)
    publisher.run_pass(board, NOW_US)
    client.command("rename table runs to away")
    change_run(board, _ids(board)[0])
    with pytest.raises(EngineUnavailable, match="lacks a table or a column"):
        publisher.run_pass(board, NOW_US)
    state = get_publication_state(board)
    assert state is not None
    assert state.waiting_count == 1
    assert "lacks a table" in str(state.error)
    client.command("rename table away to runs")
    publisher.run_pass(board, NOW_US + MINUTE_US)
    state = get_publication_state(board)
    assert state is not None
    assert (state.waiting_count, state.passed_us, state.error) == (0, NOW_US + MINUTE_US, None)
    assert_same(client, board)


def test_a_clash_holds_up_its_own_run_alone(client: Any, board: sqlite3.Connection) -> None:
    (thing,) = board.execute("select distinct_id from run_breaks limit 1").fetchone()
    with_it = [
        row[0]
        for row in board.execute("select run_id from run_breaks where distinct_id = ?", (thing,))
    ]
    client.insert(
        "distinct_breaks",
        [(thing, "other", "", "[]", 0)],
        ["id", "fingerprint", "reason", "hints", "version"],
    )
    publisher = _publish(client)
    outcome = publisher.run_pass(board, NOW_US)
    assert (len(outcome.refused), outcome.whole_count) == (len(with_it), 3 - len(with_it))
    assert len(publisher.run_pass(board, NOW_US).refused) == len(with_it)
    state = get_publication_state(board)
    assert state is not None
    assert state.waiting_count == len(with_it)
    assert "the id" in str(state.error)


def test_commits_are_those_of_the_board(client: Any, board: sqlite3.Connection) -> None:
    publisher = _publish(client)
    sql = "select hash, parent_hash, time_us, author, subject from commits order by hash"
    shallow = StoredCommit("b" * 40, None, 2, "Ada", "second")
    for commits in (
        [shallow],
        [shallow._replace(parent_hash="a" * 40), StoredCommit("a" * 40, None, 1, None, "first")],
    ):
        save_commits(board, commits)
        change_run(board, _ids(board)[0])
        publisher.run_pass(board, NOW_US)
        assert client.query(sql, settings=SETTINGS).result_rows == [
            tuple(row) for row in board.execute(sql)
        ]
    board.execute("delete from commits")
    change_run(board, _ids(board)[0])
    publisher.run_pass(board, NOW_US)
    assert client.query(sql, settings=SETTINGS).result_rows == []


def test_one_process_publishes_at_a_time(client: Any, board: sqlite3.Connection) -> None:
    path = board.execute("pragma database_list").fetchone()[2]
    publisher = _publish(client)
    lease = try_acquire_lease(path, PUBLISH)
    assert lease is not None
    with lease:
        assert publish_changes(path, publisher, NOW_US) is None
    outcome = publish_changes(path, publisher, NOW_US)
    assert outcome is not None
    assert outcome.whole_count == 3
