from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compileboard.app.clickhouse import tables
from compileboard.app.clickhouse.publisher import (
    THINGS,
    IdClash,
    RunSnapshot,
    find_clashes,
    insert_rollups,
    insert_rows,
    insert_things,
    list_measured,
    read_run,
    renew_newest,
    utc_month,
)
from compileboard.collectors.store.dashboard import annotate
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate
from tests.tools.make_db import DATA, record_events
from tests.unit.app.clickhouse.databases import open_database
from tests.unit.app.clickhouse.publication.boards import (
    ACROSS,
    NOT_THERE,
    assert_same,
    list_names,
    read_both,
    record_board,
    write,
)

pytestmark = pytest.mark.clickhouse


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = tmp_path_factory.mktemp("board") / "board.db"
    record_board(path, 8)
    with write(path) as connection:
        first, second, *_ = (
            row["id"] for row in connection.execute("select id from runs order by id")
        )
        annotate(connection, first, title="Baseline ⚑", note="tab\t, 'quote' and \\", pinned=True)
        graphs = "torch2.11-cuda-graphs-another_output.jsonl.xz"
        record_events(Ingestor(connection), DATA / "events" / graphs)
        connection.execute(
            "insert into run_tags values (?, 'team', 'compilers'), (?, 'k:v', '')", (first, second)
        )
        yield connection


@pytest.fixture(scope="module")
def client(chdb_folder: Path, board: sqlite3.Connection) -> Any:
    client = open_database(chdb_folder)
    tables.create_tables(client)
    for pub, (run_id,) in enumerate(
        board.execute("select id from runs order by pub").fetchall(), 1
    ):
        insert_run(client, _read(board, run_id), pub)
    return client


def insert_run(client: Any, snapshot: RunSnapshot, pub: int) -> None:
    for clash in find_clashes(client, [snapshot]).values():
        raise clash
    insert_things(client, [snapshot], pub)
    insert_rollups(client, [(snapshot, pub)])
    insert_rows(client, [(snapshot, pub, pub)])
    renew_newest(client, [snapshot.run_id], list_measured(snapshot), pub)


def _read(board: sqlite3.Connection, run_id: str) -> RunSnapshot:
    snapshot = read_run(board, run_id)
    assert snapshot is not None
    return snapshot


@pytest.mark.parametrize("table", [*ACROSS, *THINGS])
def test_a_table_has_the_rows_and_columns_of_sqlite(
    client: Any, board: sqlite3.Connection, table: str
) -> None:
    names = list_names(board, table)
    columns = [row[0] for row in client.query(f"describe table {table}").result_rows]
    assert [name for name in columns if name not in NOT_THERE.get(table, ())][: len(names)] == names
    there, here = read_both(client, board, f"select {', '.join(names)} from {table}")
    assert there == here
    assert here


def test_a_run_that_is_published_again_counts_once(client: Any, board: sqlite3.Connection) -> None:
    run_id = board.execute("select run_id from results order by id desc limit 1").fetchone()[
        "run_id"
    ]
    insert_run(client, _read(board, run_id), 1000)
    assert_same(client, board)


def test_a_clash_of_ids_is_refused(client: Any, board: sqlite3.Connection) -> None:
    run_id = board.execute("select run_id from run_breaks limit 1").fetchone()["run_id"]
    snapshot = _read(board, run_id)
    assert snapshot.things is not None
    first, *_ = snapshot.things["distinct_breaks"]
    with pytest.raises(
        IdClash, match=f"{run_id} is not published: in distinct_breaks the id {first[0]} is of"
    ):
        insert_run(
            client,
            replace(snapshot, things={"distinct_breaks": [(first[0], "other", *first[2:])]}),
            2000,
        )
    assert_same(client, board)


def test_a_run_that_is_not_there_has_no_snapshot(tmp_path: Path) -> None:
    migrate(tmp_path / "empty.db")
    with closing(sqlite3.connect(tmp_path / "empty.db")) as connection:
        assert read_run(connection, "01ARZ3NDEKTSV4RRFFQ69G5FAV") is None


def test_the_month_of_any_time_is_known() -> None:
    times = {0: 197001, 1_795_000_000_000_000: 202611, 2**63 - 1: 999912, -(2**63): 101}
    assert {time_us: utc_month(time_us) for time_us in times} == times


def test_every_table_syncs_what_is_inserted(client: Any) -> None:
    tables.create_tables(client)
    tables.create_tables(client)  # again: nothing is made twice
    sql = (
        "select name, engine_full from system.tables where database = currentDatabase() and "
        "engine like '%MergeTree'"
    )
    engines = dict(client.query(sql).result_rows)
    assert {"runs", "results_rows", "break_months_new"} <= set(engines)
    assert {
        name for name, engine in engines.items() if "fsync_after_insert = 1" not in engine
    } == set()
    assert "min_compress_block_size = 8192" in engines["results_rows"]
