"""Deleted runs: out of every table at once, back as they were for a week, then gone."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.imports.many_rows import write_log
from compileboard.collectors.cli.import_command import import_paths
from compileboard.collectors.fixes.fix import SourceLines
from compileboard.collectors.logs.log_loader import LoadOptions
from compileboard.collectors.store.connection import StoreError, open_writer
from compileboard.collectors.store.run_causes import save_source_lines
from compileboard.collectors.store.run_rows import read_tables
from compileboard.collectors.store.trash import (
    WEEK_US,
    CannotRestore,
    delete_run,
    prune_trash,
    restore_run,
    trash_path,
)
from tests.tools.make_db import DATA
from tests.unit.app.explored import LOGS, explore

REBUILT = ("search_documents", "search_runs", "sqlite_sequence", "removed_runs", "publications")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trash") / "explored.db"
    explore(path)
    coverage = DATA / "upstream" / "made" / "coverage.csv"
    import_paths([str(coverage)], str(path), LoadOptions(), print_line=lambda _line: None)
    with closing(open_writer(path)) as connection:
        for run_id in list_runs(connection)[:2]:  # the same lines of two runs are one row
            save_source_lines(
                connection, run_id, [SourceLines("train.py", 7, ("x = net(x)", "print(x)"))]
            )
    return path


@pytest.fixture
def store(recorded: Path, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    shutil.copy(recorded, tmp_path / "team.db")
    with closing(open_writer(tmp_path / "team.db")) as connection:
        yield connection


def list_runs(store: sqlite3.Connection) -> list[str]:
    return [row["id"] for row in store.execute("select id from runs order by id")]


def read_all(store: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    names = [name for name in read_tables(store) if name not in REBUILT]
    columns = {
        name: [column for column in read_tables(store)[name].columns if column != "pub"]
        for name in names
    }
    return {
        name: sorted(
            map(tuple, store.execute(f"select {', '.join(columns[name])} from {name}")), key=repr
        )
        for name in names
    }


def test_a_restored_run_is_as_it_was(store: sqlite3.Connection) -> None:
    before, runs = read_all(store), list_runs(store)
    assert all(delete_run(store, run_id) for run_id in runs)
    assert list_runs(store) == []
    assert all(restore_run(store, run_id) for run_id in runs)
    assert read_all(store) == before
    assert store.execute("pragma foreign_key_check").fetchall() == []
    assert store.execute("select count(*) from removed_runs").fetchone()[0] == 0


def test_a_span_of_no_compile_comes_back(store: sqlite3.Connection) -> None:
    run_id = store.execute(
        "select run_id from lanes join spans on lane_id = lanes.id limit 1"
    ).fetchone()[0]
    own = "lane_id in (select id from lanes where run_id = ?)"
    store.execute(
        f"update spans set compile_key = null where id = (select min(id) from spans where {own})",
        (run_id,),
    )
    before = read_all(store)["spans"]
    delete_run(store, run_id)
    restore_run(store, run_id)
    assert read_all(store)["spans"] == before


def tell(store: sqlite3.Connection, run_id: str) -> list[tuple[object, ...]]:
    """Describe a run by its rows and those that they point to, whatever their numbers are."""
    queries = (
        "select c.compile_id, f.name, s.name, s.line from compiles as c"
        " left join functions as f on f.id = c.function_id left join stack_nodes as s"
        " on s.id = c.stack_id where c.run_id = ?",
        "select a.sequence, p.digest, c.compile_id from artifacts as a left join payloads as p "
        "on p.id = a.payload_id"
        " left join compiles as c on c.id = a.compile_key where a.run_id = ?",
        "select d.fingerprint, b.break_count, f.name from run_breaks as b"
        " join distinct_breaks as d on d.id = b.distinct_id left join functions as f"
        " on f.id = d.function_id where b.run_id = ?",
        "select n.name, s.begin_us, l.thread from spans as s join span_names as n on n.id = "
        "s.name_id"
        " join lanes as l on l.id = s.lane_id where l.run_id = ?",
        "select s.model, r.experiment, v.name, v.value from results as r join series as s on "
        "s.id = r.series_id"
        " join result_values as v on v.result_id = r.id where r.run_id = ?",
    )
    return sorted(
        (tuple(row) for sql in queries for row in store.execute(sql, (run_id,))), key=repr
    )


def test_a_run_comes_back_beside_others_that_took_its_numbers(
    store: sqlite3.Connection, tmp_path: Path
) -> None:
    runs = list_runs(store)
    before = {run_id: tell(store, run_id) for run_id in runs}
    assert all(len(rows) > 3 for rows in before.values())
    for run_id in runs:
        delete_run(store, run_id)
    import_paths(
        [str(DATA / "trace" / "torch2.13-guards.log.xz")],
        str(tmp_path / "team.db"),
        LoadOptions(),
        print_line=print,
    )
    (other,) = list_runs(store)
    other_before = tell(store, other)
    for run_id in runs:
        restore_run(store, run_id)
    assert {run_id: tell(store, run_id) for run_id in runs} == before
    assert tell(store, other) == other_before
    assert store.execute("pragma foreign_key_check").fetchall() == []


def test_a_run_is_gone_for_good_after_a_week_and_not_before(store: sqlite3.Connection) -> None:
    run_id, restored_id = list_runs(store)[:2]
    delete_run(store, run_id, now_us=0)
    delete_run(store, restored_id, now_us=10)
    assert prune_trash(store, now_us=WEEK_US - 1) == []
    assert prune_trash(store, now_us=WEEK_US) == [run_id]
    with pytest.raises(CannotRestore, match="for good"):
        restore_run(store, run_id)
    before = store.execute("select count(*) from payloads").fetchone()[0]
    assert restore_run(store, restored_id)  # with the texts that both had
    assert store.execute("pragma foreign_key_check").fetchall() == []
    assert store.execute("select count(*) from payloads").fetchone()[0] == before > 0


def test_a_run_that_was_imported_again_is_not_restored_over(
    store: sqlite3.Connection, tmp_path: Path
) -> None:
    run_id = store.execute("select id from runs where name = 'zoo_graph_breaks'").fetchone()[0]
    delete_run(store, run_id)
    options = LoadOptions(again=True)
    import_paths(
        [str(LOGS["zoo_graph_breaks"])], str(tmp_path / "team.db"), options, print_line=print
    )
    assert run_id in list_runs(store)
    assert not restore_run(store, run_id)  # nothing of that id is deleted any more
    prune_trash(store)
    assert not trash_path(str(tmp_path / "team.db"), run_id).exists()


@pytest.mark.parametrize("damage", ["empty", "cut", "other", "garbled"])
def test_a_damaged_file_of_the_trash_is_named_and_stays(
    store: sqlite3.Connection, tmp_path: Path, damage: str
) -> None:
    run_id = list_runs(store)[0]
    delete_run(store, run_id)
    path = trash_path(str(tmp_path / "team.db"), run_id)
    whole = path.read_bytes()
    half = len(whole) // 2
    garbled = whole[:4096] + b"\xff" * 8192 + whole[4096 + 8192 :]
    path.write_bytes(
        {"empty": b"", "cut": whole[:half], "other": b"x" * 5000, "garbled": garbled}[damage]
    )
    with pytest.raises(CannotRestore, match=f"{path.name} is damaged"):
        restore_run(store, run_id)
    path.write_bytes(whole)
    assert restore_run(store, run_id)


def test_a_run_stays_where_the_trash_cannot_be_written(
    store: sqlite3.Connection, tmp_path: Path
) -> None:
    run_id = list_runs(store)[0]
    (tmp_path / "team.db-trash").write_text("in the way")
    with pytest.raises(StoreError, match="so the run was not deleted"):
        delete_run(store, run_id)
    assert run_id in list_runs(store)


def test_what_a_cut_off_deletion_left_is_taken_away(
    store: sqlite3.Connection, tmp_path: Path
) -> None:
    path = trash_path(str(tmp_path / "team.db"), list_runs(store)[0])
    path.parent.mkdir()
    path.write_bytes(b"half")
    path.with_suffix(".new").write_bytes(b"half")
    prune_trash(store)
    assert list(path.parent.iterdir()) == []


def count_steps(tmp_path: Path, kind: str, record_count: int) -> int:
    """Count, in hundreds, what SQLite does to delete a run beside one three times as large."""
    database = tmp_path / f"{record_count}.db"
    for number, name in enumerate(("deleted", "staying")):
        log = tmp_path / f"{name}.log.gz"
        most = record_count * (1 + 2 * number)
        write_log(log, kind, max_bytes=1 << 30, max_records=most, first=number * 100_000)
        import_paths(
            [str(log)],
            str(database),
            LoadOptions(name=name),
            print_line=lambda _line: None,
            index=False,
        )
    steps: list[None] = []
    with closing(open_writer(database)) as store:
        (run_id,) = store.execute("select id from runs where name = 'deleted'").fetchone()
        store.set_progress_handler(lambda: steps.append(None), 100)
        assert delete_run(store, run_id)
    return len(steps)


@pytest.mark.parametrize(("kind", "few"), [("stacks", 2), ("spans", 400), ("compiles", 200)])
def test_deletion_is_as_long_as_the_run_is_large(tmp_path: Path, kind: str, few: int) -> None:
    assert count_steps(tmp_path, kind, 4 * few) < 6 * count_steps(tmp_path, kind, few)


def test_a_stacks_frames_are_deleted_one_by_one(store: sqlite3.Connection) -> None:
    """A cascade from the outermost frame of a stack of 500 takes eight times as long."""
    statements: list[str] = []
    node = "select run_id from stack_nodes where parent_id is not null"
    (run_id,) = store.execute(node).fetchone()
    depths = {row["id"]: row["depth"] for row in store.execute("select id, depth from stack_nodes")}
    store.set_trace_callback(statements.append)
    delete_run(store, run_id)
    deleted = [
        int(statement.rpartition(" = ")[2])
        for statement in statements
        if statement.startswith("delete from stack_nodes")
    ]
    assert deleted == sorted(deleted, key=lambda stack_id: -depths[stack_id]) and len(deleted) > 3
