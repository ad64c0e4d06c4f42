"""Rows of a run with several processes, here two real ranks, name theirs; others none."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from compileboard.app.reasons import run_queries as graph_breaks
from compileboard.app.reasons import run_queries as recompiles
from compileboard.app.runs import failures
from compileboard.app.stacks.run_queries import list_stack_compiles
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.terminal.run_summary import summarize
from tests.unit.app.explored import import_ranks


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ranks") / "compileboard.db"
    import_ranks(path)
    return path


@pytest.fixture
def ranks(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_reader(database)) as connection:
        yield connection


LISTS: list[Any] = [
    graph_breaks.list_graph_breaks,
    recompiles.list_recompiles,
    recompiles.list_chains,
    failures.list_cache_lookups,
]


def find_run(connection: sqlite3.Connection) -> str:
    return str(connection.execute("select id from runs").fetchone()[0])


@pytest.mark.parametrize("list_rows", LISTS)
def test_a_row_names_its_rank(ranks: sqlite3.Connection, list_rows: Any) -> None:
    rows = list_rows(ranks, find_run(ranks), limit=500).rows
    assert {row.process for row in rows} == {"rank 0", "rank 1"}
    assert all(row.process == f"rank {row.rank}" for row in rows)


def test_compiles_of_stacks_name_their_rank(ranks: sqlite3.Connection) -> None:
    compiles = list_stack_compiles(ranks, find_run(ranks))
    assert {(compiled.rank, compiled.process) for compiled in compiles} == {
        (0, "rank 0"),
        (1, "rank 1"),
    }


def test_the_terminal_names_the_rank_of_a_compile_that_never_finished(
    database: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    copy.write_bytes(database.read_bytes())
    with closing(sqlite3.connect(copy)) as connection, connection:
        run_id = find_run(connection)
        connection.execute(
            "update compiles set outcome = 'started' where id in (select max(id) from compiles)"
        )
        (rank,) = connection.execute("select rank from processes where id = (select process_id "
                                     "from compiles"
                                     " where outcome = 'started')").fetchone()  # fmt: skip
    summary = summarize(str(copy), run_id)
    assert summary is not None
    assert [item.text.partition(" · ")[0] for item in summary.unfinished] == [f"rank {rank}"]


def test_a_run_of_one_process_names_none(tmp_path: Path, database: Path) -> None:
    copy = tmp_path / "copy.db"
    copy.write_bytes(database.read_bytes())
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute(
            "delete from compiles where process_id > (select min(process_id) from compiles)"
        )
    with closing(open_reader(copy)) as connection:
        assert {
            compiled.process for compiled in list_stack_compiles(connection, find_run(connection))
        } == {""}


@pytest.mark.parametrize(
    "rest", ["?tab=breaks&view=each", "?tab=recompiles", "?tab=caches", "/stacks"]
)
def test_pages_name_the_rank_of_a_row(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection, rest: str
) -> None:
    (run_id,) = explored_reader.execute("select id from runs where name = 'train_ddp'").fetchone()
    page = explored_client.get(f"/runs/{run_id}{rest}").text
    assert "<strong>rank 0</strong>" in page and "<strong>rank 1</strong>" in page
