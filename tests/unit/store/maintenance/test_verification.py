"""`verify` sees a wrong roll-up, a dangling row, a damaged text, a lost deleted run."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.store.connection import open_reader, open_writer
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.store.trash import delete_run, trash_path
from compileboard.collectors.store.verification import list_differences, verify
from tests.unit.app.benched import bench_suite
from tests.unit.app.explored import explore


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verify") / "explored.db"
    explore(path)
    return path


@pytest.fixture
def database(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(recorded, tmp_path / "team.db"))


def find_problems(database: Path) -> dict[str, str]:
    return {
        check.subject: " ".join(check.problems)
        for check in verify(str(database), texts=True)
        if check.problems
    }


def change(database: Path, statement: str) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        assert connection.execute(statement).rowcount > 0


def test_recorded_logs_have_the_roll_ups_that_their_rows_come_to(database: Path) -> None:
    assert find_problems(database) == {}


def test_results_have_the_summaries_that_they_come_to(tmp_path: Path) -> None:
    migrate(tmp_path / "team.db")
    with closing(open_writer(tmp_path / "team.db")) as writer:
        bench_suite(writer)
    assert find_problems(tmp_path / "team.db") == {}
    change(tmp_path / "team.db", "update run_summaries set geomean_speedup = 9")
    assert "run_summaries of run" in find_problems(tmp_path / "team.db")["roll-ups"]


@pytest.mark.parametrize(
    ("table", "counter"),
    [
        ("run_totals", "compile_count"),
        ("run_totals", "compile_us"),
        ("run_totals", "recompile_limit_count"),
        ("run_totals", "restart_count"),
        ("run_totals", "cache_miss_count"),
        ("run_totals", "failed_result_count"),
        ("run_breaks", "break_count"),
        ("run_causes", "recompile_count"),
        ("run_functions", "graph_break_count"),
        ("span_totals", "total_us"),
    ],
)
def test_a_changed_roll_up_is_named(database: Path, table: str, counter: str) -> None:
    change(database, f"update {table} set {counter} = {counter} + 3")
    assert f"{counter} is " in find_problems(database)["roll-ups"]


def test_a_roll_up_without_its_row_is_named(database: Path) -> None:
    change(database, "delete from run_breaks")
    with closing(open_reader(database)) as reader:
        assert any(line.startswith("run_breaks of ") for line in list_differences(reader))


def test_an_orphan_and_a_damaged_text_are_named(database: Path) -> None:
    change(
        database,
        "update artifacts set payload_id = 99999 where id = (select min(id) from artifacts)",
    )
    change(database, "update payloads set body = x'01' where id = (select max(id) from payloads)")
    problems = find_problems(database)
    assert "points to no row of payloads" in problems["references"]
    assert "not what its digest says" in problems["texts"]


def test_a_lost_and_a_damaged_deleted_run_are_named(database: Path) -> None:
    with closing(open_writer(database)) as writer:
        first, second = [
            row["id"] for row in writer.execute("select id from runs order by id limit 2")
        ]
        delete_run(writer, first)
        delete_run(writer, second)
    trash_path(str(database), first).unlink()
    trash_path(str(database), second).write_bytes(b"SQLite format 3\0" + b"x" * 4000)
    problems = find_problems(database)["deleted runs"]
    assert f"run {first}: " in problems
    assert f"run {second}: " in problems


def test_a_damaged_page_is_named(database: Path) -> None:
    with closing(open_writer(database)) as writer:
        page = writer.execute(
            "select rootpage from sqlite_schema where name = 'compiles_run'"
        ).fetchone()[0]
        size = writer.execute("pragma page_size").fetchone()[0]
        writer.execute("pragma wal_checkpoint(truncate)")
    with open(database, "r+b") as file:
        file.seek((page - 1) * size + 8)
        file.write(b"\xff" * 200)
    assert find_problems(database)
