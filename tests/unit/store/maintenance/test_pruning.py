"""Pruning: what goes, what stays, who is spared, and what a kill leaves."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.app.cli.main import main
from compileboard.app.server import follow as following
from compileboard.collectors.cli.import_command import import_paths
from compileboard.collectors.logs.log_loader import LoadOptions
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.dashboard import annotate
from compileboard.collectors.store.pruning import PruneRule, list_prunable, measure_used, prune_runs
from compileboard.collectors.store.run_rows import DETAIL, list_own_rows, read_tables
from compileboard.collectors.store.trash import delete_run, restore_run
from compileboard.collectors.store.verification import verify
from tests.unit.app.benched import RUNS, bench_suite
from tests.unit.app.explored import LOGS, explore

KILLED = """
import os, signal, sys
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store import pruning
left = iter(range(3))
def sleep(_s):
    if next(left, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
pruning.time.sleep = sleep
list(pruning.prune_runs(open_writer(sys.argv[1]), pruning.PruneRule(2 ** 60), 2 ** 60))
"""
ALL = PruneRule(2**60)
DAY_US = 86_400_000_000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prune") / "explored.db"
    explore(path)
    with closing(open_writer(path)) as writer:
        bench_suite(writer)
    return path


@pytest.fixture
def database(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(recorded, tmp_path / "team.db"))


@pytest.fixture
def store(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_writer(database)) as connection:
        yield connection


def count(store: sqlite3.Connection, table: str) -> int:
    return int(store.execute(f"select count(*) from {table}").fetchone()[0])


def list_problems(store: sqlite3.Connection) -> list[str]:
    path = store.execute("pragma database_list").fetchone()["file"]
    return [problem for check in verify(path, texts=True) for problem in check.problems]


def prune_all(store: sqlite3.Connection, rule: PruneRule = ALL) -> list[str]:
    return [run.id for run in prune_runs(store, rule, 2**60)]


def test_detail_goes_and_roll_ups_stay(store: sqlite3.Connection) -> None:
    run_count = count(store, "runs")
    own = list_own_rows(read_tables(store))
    gone = {*DETAIL, "repro_storages", "payloads", "search_documents"}
    staying = {table: count(store, table) for table in own.keys() - gone - {"pruned_runs"}}
    used_bytes = measure_used(store)
    assert len(prune_all(store)) == run_count
    assert {table: count(store, table) for table in staying} == staying
    assert {table: count(store, table) for table in gone if count(store, table)} == {}
    assert measure_used(store) < used_bytes * 0.7
    assert list_problems(store) == []
    assert prune_all(store) == []


def test_texts_of_runs_that_stay_and_of_deleted_ones_stay(
    store: sqlite3.Connection, database: Path
) -> None:
    run_ids = [
        row["id"]
        for row in store.execute("select id from runs where suite = 'captures' order by id")
    ]
    annotate(store, run_ids[0], title=None, note=None, pinned=True)
    delete_run(store, run_ids[1])
    before = list(
        map(tuple, store.execute("select * from artifacts where run_id = ?", (run_ids[0],)))
    )
    assert run_ids[0] not in prune_all(store)
    assert (
        list(map(tuple, store.execute("select * from artifacts where run_id = ?", (run_ids[0],))))
        == before
    )
    assert restore_run(store, run_ids[1])
    assert list_problems(store) == []


def test_runs_of_baselines_and_open_incidents_and_running_ones_are_spared(
    store: sqlite3.Connection,
) -> None:
    base, bad, _ = RUNS
    store.execute("insert into baselines values ('main', ?, null, 1, 1, x'')", (base,))
    store.execute(
        """
        insert into incidents (id, direction, state, title, suite, branch, severity,
          lead_change_id, change_count,
          first_bad_run_id, first_us, found_us, changed_us, evidence)
        values ('i', 'worse', 'open', 't', 's', 'b', 1, 'c', 1, ?, 1, 1, 1, '{}')
        """,
        (bad,),
    )
    spared = set(RUNS) - {run.id for run in list_prunable(store, ALL, 2**60)}
    assert spared == {base, bad}
    columns = [
        row["name"]
        for row in store.execute(
            "select name, type, [notnull] from pragma_table_info('series_changes')"
        )
    ]
    row = dict.fromkeys(columns, "") | {
        "id": "c",
        "incident_id": "i",
        "dynamic": 0,
        "batch_size": 0,
        "world_size": 1,
    }
    row |= dict.fromkeys(
        ("before_value", "after_value", "relative", "p_value", "confirmed_us", "noticed_us")
    )
    row |= {
        "first_us": 1,
        "found_us": 1,
        "changed_us": 1,
        "first_run_id": bad,
        "low_run_id": RUNS[2],
    }
    marks = ", ".join(f":{name}" for name in columns)
    store.execute(f"insert into series_changes ({', '.join(columns)}) values ({marks})", row)
    assert not set(RUNS) & {run.id for run in list_prunable(store, ALL, 2**60)}
    store.execute("update incidents set status = 'ignored'")
    assert {bad, RUNS[2]} <= {run.id for run in list_prunable(store, ALL, 2**60)}
    store.execute("update runs set state = 'running', heartbeat_us = 100 where id = ?", (RUNS[2],))
    assert RUNS[2] not in {run.id for run in list_prunable(store, ALL, 50)}


def test_age_suite_and_size_choose_the_oldest_first(store: sqlite3.Connection) -> None:
    started = {
        row["id"]: row["started_us"]
        for row in store.execute("select id, started_us from runs order by 2")
    }
    newest_us = max(started.values())
    assert {run.id for run in list_prunable(store, PruneRule(newest_us), 2**60)} == {
        run_id for run_id, us in started.items() if us < newest_us
    }
    assert all(
        run.suite == "captures" for run in list_prunable(store, PruneRule(2**60, "captures"), 2**60)
    )
    max_bytes = measure_used(store) - 300_000
    pruned = prune_all(store, PruneRule(2**60, None, max_bytes))
    assert 0 < len(pruned) < len(started)
    assert pruned == list(started)[: len(pruned)]
    assert measure_used(store) <= max_bytes
    assert list_problems(store) == []


def test_what_is_imported_again_adds_nothing(store: sqlite3.Connection, database: Path) -> None:
    prune_all(store)
    before = list(map(tuple, store.execute("select * from run_totals order by run_id")))
    lines: list[str] = []
    import_paths(
        [str(LOGS["zoo_recompiles"])], str(database), LoadOptions(), print_line=lines.append
    )
    assert list(map(tuple, store.execute("select * from run_totals order by run_id"))) == before
    assert count(store, "compiles") == 0


def test_a_killed_prune_is_finished_by_the_next(store: sqlite3.Connection, database: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(database)], timeout=60)
    assert done.returncode == -9
    (run_id,) = [
        row["run_id"]
        for row in store.execute("select run_id from pruned_runs where deleted_bytes is null")
    ]
    assert list_problems(store) == []
    assert run_id in prune_all(store)
    assert count(store, "compiles") == 0
    assert (
        store.execute("select count(*) from pruned_runs where deleted_bytes is null").fetchone()[0]
        == 0
    )


def test_the_command_lists_prunes_and_returns_space(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["prune", "--older-than", "1d", "--suite", "captures", "--db", str(database)]
    assert main([*words, "--dry-run"]) == 0
    listed = capsys.readouterr().out
    size = database.stat().st_size
    assert main([*words, "--vacuum"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[:4] == listed.splitlines()[:4]
    assert "would prune 4 runs, about " in listed
    assert "pruned 4 runs, about " in printed
    assert "to the disk" in printed
    assert database.stat().st_size < size
    assert main(["prune", "--max-size", "1GiB", "--db", str(database)]) == 0
    assert capsys.readouterr().out.startswith("pruned 0 runs, about 0 B\n")
    assert main(["prune", "--max-size", "1kB", "--suite", "captures", "--db", str(database)]) == 0
    assert "are still used: no other run may be pruned" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--older-than", "soon"], ["--max-size", "5"], []])
def test_a_rule_that_is_none_prunes_nothing(
    database: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["prune", *words, "--db", str(database)]) == 2
    assert "compileboard: " in capsys.readouterr().err


def test_the_follower_prunes_by_age(
    store: sqlite3.Connection, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "PRUNE_EVERY_S", 0.0)
    now_us = time.time_ns() // 1000
    store.execute(
        "update runs set started_us = :now_us where id = :id", {"now_us": now_us, "id": RUNS[0]}
    )
    store.execute("update runs set started_us = 5 where id = :id", {"id": RUNS[1]})
    following.follow(str(database), "", {}, lambda _s: True, prune_after_days=30)
    pruned = {row["run_id"] for row in store.execute("select run_id from pruned_runs")}
    assert RUNS[1] in pruned
    assert RUNS[0] not in pruned
