"""Sealing: what goes into a run's file and comes back, what is refused, and what a kill leaves."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from compileboard.app.clickhouse.run_files import SealingPass, seal_ended_runs
from compileboard.app.core.settings import load_settings
from compileboard.collectors.contract.events import Event
from compileboard.collectors.store import pruning, sealing
from compileboard.collectors.store.codec import pack_large
from compileboard.collectors.store.connection import StoreError, open_writer, write_transaction
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.large_runs import reopen_run_of_database
from compileboard.collectors.store.leases import PUBLISH, try_acquire_lease
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.reopening import reopen_run
from compileboard.collectors.store.repros import ReproResult, list_results, load_repro, save_result
from compileboard.collectors.store.run_rows import DETAIL, ROLLUPS
from compileboard.collectors.store.sealed_files import (
    get_sealed_run,
    list_run_files,
)
from compileboard.collectors.store.sealing import NotSealable, list_sealable, seal_run
from compileboard.collectors.store.search import list_pending
from compileboard.collectors.store.stream_lines import StreamLines, read_lines
from compileboard.collectors.store.stream_rows import Stream, get_stream, save_text
from compileboard.collectors.store.stream_writer import StreamWriter
from compileboard.collectors.store.trash import delete_run, prune_trash, restore_run
from compileboard.collectors.store.verification import verify
from compileboard.collectors.wire.lines import dump_line
from tests.unit.app.benched import MLP, RUNS, bench_suite
from tests.unit.app.explored import explore
from tests.unit.app.repros.captured import COMPILE_REPRO, capture_repros
from tests.unit.app.repros.captured import RUN as REPRO_RUN
from tests.unit.store.ingest.test_ingest import recorded_events
from tests.unit.store.sealed.sealed_board import (
    NOW_US,
    copy_board,
    publish_all,
    read_rows,
    seal_all,
)

KILLED = """
import os, signal, sys
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store import pruning
from compileboard.collectors.store import sealing
pruning.ROWS_AT_ONCE = 50
left = iter(range(1))
pruning.time.sleep = lambda _s: next(left, None) is None and os.kill(os.getpid(), signal.SIGKILL)
sealing.seal_run(open_writer(sys.argv[1]), sys.argv[2], now_us=int(sys.argv[3]))
"""


_COMPILES = """
select c.compile_id, c.outcome, c.total_us, c.graph_break_count, m.kind, m.duration_us, g.line
from compiles as c
left join compilations as m on m.compile_key = c.id
left join graph_breaks as g on g.compile_key = c.id
where c.run_id = 'R'
order by 1, 5, 7
"""
_IDS = "select run_id, min(id), max(id) from results group by run_id"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("seal") / "explored.db"
    explore(path)
    with closing(open_writer(path)) as writer:
        bench_suite(writer)
        capture_repros(writer)
    return path


@pytest.fixture
def board(recorded: Path, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(copy_board(recorded, tmp_path)) as connection:
        yield connection


def list_problems(board: sqlite3.Connection) -> list[str]:
    path = board.execute("pragma database_list").fetchone()["file"]
    return [problem for check in verify(path, texts=True) for problem in check.problems]


def reopen(board: sqlite3.Connection, run_id: str) -> bool:
    with write_transaction(board):
        return reopen_run(board, run_id)


def test_detail_and_roll_ups_go_and_come_back(board: sqlite3.Connection) -> None:
    before = read_rows(board)
    run_ids = seal_all(board)
    after = read_rows(board)
    changed = {name for name in before if after[name] != before[name]}
    assert changed == {
        name
        for name in (*DETAIL, *ROLLUPS, "payloads", "repros", "sealed_runs")
        if before[name] or after[name]
    }
    assert [name for name in (*DETAIL, *ROLLUPS) if after[name]] == []
    assert list_problems(board) == []
    assert (list_sealable(board, NOW_US), list_pending(board)) == ([], [])
    assert all(reopen(board, run_id) for run_id in run_ids)
    assert read_rows(board) == before
    assert set(list_pending(board)) == set(run_ids)
    assert list_problems(board) == []


def test_the_runs_to_seal_are_listed_without_reading_sealed_ones(board: sqlite3.Connection) -> None:
    seen: list[str] = []
    board.set_trace_callback(seen.append)
    list_sealable(board, NOW_US)
    board.set_trace_callback(None)
    left, others = (
        [row["detail"] for row in board.execute(f"explain query plan {sql}")] for sql in seen[:2]
    )
    assert left == ["SCAN sealed_runs USING INDEX sealed_runs_left"]
    assert (
        others[0] == "SCAN p" and "IN-OPERATOR" in others[1] and others[2].startswith("SEARCH r ")
    )


def test_what_is_new_of_a_sealed_run_is_as_if_it_never_was(tmp_path: Path) -> None:
    events = recorded_events()
    dumps = []
    for name, halves in (
        ("whole", [events]),
        ("sealed", [events[: len(events) // 2], events[len(events) // 2 :]]),
    ):
        (tmp_path / name).mkdir()
        with closing(open_writer(tmp_path / name / "board.db")) as board:
            migrate_connection(board)
            ingestor = Ingestor(board)
            for half in halves:
                if half is not halves[0]:
                    board.execute("update runs set heartbeat_us = 1")
                    assert seal_all(board) == ["R"]
                ingestor.ingest("R", half, now_us=5)
                assert get_sealed_run(board, "R") is None
            board.execute("update runs set pub = 0, heartbeat_us = 0")
            dumps.append(read_rows(board))
            assert list_problems(board) == []
    assert dumps[0] == dumps[1]


def test_a_run_that_may_change_stays(board: sqlite3.Connection, tmp_path: Path) -> None:
    publish_all(board)
    first, second, third, fourth = (
        row["id"] for row in board.execute("select id from runs order by id limit 4")
    )
    board.execute(
        "update runs set state = 'running', heartbeat_us = ? where id = ?", (NOW_US - 5, first)
    )
    board.execute("update runs set pub = pub + 1 where id = ?", (second,))
    board.execute(
        "update published_runs set rows_us = ? where run_id = ?", (NOW_US - 500_000_000, third)
    )
    board.execute("insert into pruned_runs values (?, 5, null)", (fourth,))
    assert not {first, second, third, fourth} & set(list_sealable(board, NOW_US))
    for run_id, reason in (
        (first, "is running"),
        (second, "not published"),
        (third, "changed"),
        (fourth, "pruned"),
    ):
        with pytest.raises(NotSealable, match=reason):
            seal_run(board, run_id, now_us=NOW_US)
    assert not (tmp_path / "runs").exists()


def test_a_run_that_changes_while_its_file_is_written_stays(
    board: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_all(board)
    before = read_rows(board)
    pack = sealing.pack_run_file

    def change(database: str, source: Path, name: str) -> object:
        with closing(open_writer(database)) as other:
            other.execute("update runs set pub = pub + 1 where id = ?", (RUNS[0],))
        return pack(database, source, name)

    monkeypatch.setattr(sealing, "pack_run_file", change)
    with pytest.raises(NotSealable, match="not published as it is"):
        seal_run(board, RUNS[0], now_us=NOW_US)
    monkeypatch.undo()
    board.execute("update runs set pub = pub - 1 where id = ?", (RUNS[0],))
    assert read_rows(board) == before


@pytest.mark.parametrize(
    "step", ["pack_run_file", "_mark_sealed", "remove_run_files", "delete_detail", "delete_texts"]
)
def test_what_stops_at_any_step_is_finished_by_the_next(
    board: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def stop(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    before = read_rows(board)
    publish_all(board)
    (run_id,) = board.execute(
        "select run_id from run_totals order by compile_count desc limit 1"
    ).fetchone()
    monkeypatch.setattr(sealing, step, stop)
    with pytest.raises(KeyboardInterrupt):
        seal_run(board, run_id, now_us=NOW_US)
    monkeypatch.undo()
    assert list_problems(board) == []
    assert run_id in list_sealable(board, NOW_US)
    seal_run(board, run_id, now_us=NOW_US)
    sealed = get_sealed_run(board, run_id)
    assert sealed is not None and sealed.is_emptied
    assert len(list_run_files(str(tmp_path / "board.db"), run_id)) == 1
    assert (
        board.execute("select count(*) from compiles where run_id = ?", (run_id,)).fetchone()[0]
        == 0
    )
    reopen(board, run_id)
    board.execute("delete from published_runs")
    assert read_rows(board) == before


def test_a_killed_process_leaves_what_the_next_finishes(
    board: sqlite3.Connection, tmp_path: Path
) -> None:
    before = read_rows(board)
    publish_all(board)
    (run_id,) = board.execute(
        "select run_id from run_totals order by compile_count desc limit 1"
    ).fetchone()
    words = [sys.executable, "-c", KILLED, str(tmp_path / "board.db"), run_id, str(NOW_US)]
    assert subprocess.run(words, timeout=60).returncode == -9
    sealed = get_sealed_run(board, run_id)
    assert sealed is not None and not sealed.is_emptied
    assert list_problems(board) == []
    reopen(board, run_id)  # what is new of it came before the next pass
    assert read_rows(board) == before


def test_rows_that_come_back_while_the_detail_goes_stay(
    board: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_rows(board)
    publish_all(board)
    (run_id,) = board.execute(
        "select run_id from run_totals order by compile_count desc limit 1"
    ).fetchone()
    path, sleep = board.execute("pragma database_list").fetchone()["file"], pruning.time.sleep

    def reopen_meanwhile(_seconds: float) -> None:
        monkeypatch.setattr(pruning.time, "sleep", sleep)
        with closing(open_writer(path)) as other:
            assert reopen(other, run_id)

    monkeypatch.setattr(pruning.time, "sleep", reopen_meanwhile)
    seal_run(board, run_id, now_us=NOW_US)
    assert get_sealed_run(board, run_id) is None
    assert read_rows(board) == before


def test_no_result_has_the_id_of_a_sealed_one(board: sqlite3.Connection) -> None:
    (last_id,) = board.execute("select max(id) from results").fetchone()
    delete_run(board, RUNS[0])
    seal_all(board)
    Ingestor(board).ingest("new", [replace(MLP, process_id="new")])
    assert restore_run(board, RUNS[0])
    assert reopen(board, RUNS[1])
    ids = {run_id: (first, last) for run_id, first, last in board.execute(_IDS)}
    assert ids["new"] == (last_id + 1, last_id + 1)
    assert ids[RUNS[0]][0] == last_id + 2
    assert ids[RUNS[1]][1] <= last_id


def test_a_damaged_or_lost_file_is_told_and_nothing_is_stored(
    board: sqlite3.Connection, tmp_path: Path
) -> None:
    seal_all(board, RUNS[0])
    before = read_rows(board)
    (path,) = list_run_files(str(tmp_path / "board.db"), RUNS[0])
    packed = path.read_bytes()
    for content, words in (
        (packed[:-100] + bytes(100), "is damaged"),
        (packed[:500], "is damaged"),
        (None, "is missing"),
    ):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(StoreError, match=words):
            Ingestor(board).ingest(RUNS[0], [replace(MLP, process_id="new")])
        assert read_rows(board) == before
        if content is None:
            path.write_bytes(packed)
    Ingestor(board).ingest(RUNS[0], [replace(MLP, process_id="new", model="new")])
    assert get_sealed_run(board, RUNS[0]) is None


def test_a_result_of_a_repro_reopens_its_run(board: sqlite3.Connection) -> None:
    seal_all(board, REPRO_RUN)
    assert load_repro(board, COMPILE_REPRO).program
    save_result(board, COMPILE_REPRO, ReproResult("minify", "done", 1.0, 1, 2, program="x = 1"))
    assert get_sealed_run(board, REPRO_RUN) is None
    assert list_results(board, COMPILE_REPRO)[0].program is not None
    assert (
        board.execute("select count(*) from repros where compile_key is not null").fetchone()[0] > 0
    )
    assert list_problems(board) == []


def test_a_deleted_run_keeps_its_file_until_it_is_deleted_for_good(
    board: sqlite3.Connection, tmp_path: Path
) -> None:
    before = read_rows(board)
    run_ids = seal_all(
        board, *(row["id"] for row in board.execute("select id from runs order by id desc limit 3"))
    )
    database = str(tmp_path / "board.db")
    assert all(delete_run(board, run_id) for run_id in run_ids)
    assert restore_run(board, run_ids[0])
    assert set(prune_trash(board, age_us=0)) == set(run_ids[1:])
    assert [len(list_run_files(database, run_id)) for run_id in run_ids] == [
        1,
        *(0 for _ in run_ids[1:]),
    ]
    assert reopen(board, run_ids[0])
    detail = {
        table: [row for row in table_rows if run_ids[0] in row]
        for table, table_rows in before.items()
        if table in DETAIL
    }
    after = read_rows(board)
    assert {table: [row for row in after[table] if run_ids[0] in row] for table in detail} == detail
    assert list_problems(board) == []


def test_a_pass_seals_what_can_be_and_tells_what_cannot(
    board: sqlite3.Connection, tmp_path: Path
) -> None:
    path = str(tmp_path / "board.db")
    publish_all(board)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / RUNS[0][-2:]).write_text("in the way")
    with try_acquire_lease(path, PUBLISH) or nullcontext():
        assert seal_ended_runs(path, now_us=NOW_US) == SealingPass()
    done = seal_ended_runs(path, now_us=NOW_US)
    assert (done.sealed_count, done.is_done) == (7, True)
    assert len(done.problems) == 1 and RUNS[0] in done.problems[0]
    (tmp_path / "runs" / RUNS[0][-2:]).unlink()
    assert seal_ended_runs(path, now_us=NOW_US, max_s=0) == SealingPass()
    assert seal_ended_runs(path, now_us=NOW_US).sealed_count == 1
    assert list_problems(board) == []


def test_the_wait_before_a_run_is_sealed_is_a_setting(
    board: sqlite3.Connection, tmp_path: Path
) -> None:
    publish_all(board)
    board.execute("update published_runs set rows_us = ?", (NOW_US - 90_000_000,))
    path = str(tmp_path / "board.db")
    assert load_settings({}).seal_after_s * 1_000_000 == sealing.QUIET_US
    assert seal_ended_runs(path, now_us=NOW_US).sealed_count == 0
    assert (
        seal_ended_runs(
            path,
            load_settings({"COMPILEBOARD_SEAL_AFTER_S": "90"}).seal_after_s * 1_000_000,
            now_us=NOW_US,
        ).sealed_count
        == 8
    )


def test_a_command_that_goes_on_with_a_sealed_run_has_its_rows(
    board: sqlite3.Connection, tmp_path: Path
) -> None:
    before = read_rows(board)
    seal_all(board, *RUNS)
    for run_id in (*RUNS, RUNS[0]):
        reopen_run_of_database(str(tmp_path / "board.db"), run_id)
    assert read_rows(board)["results"] == before["results"]


def test_a_stream_goes_on_after_its_run_was_sealed(tmp_path: Path) -> None:
    """Its writer remembers ids that the run's rows do not have any more: another run got them."""
    events = recorded_events()
    middle = len(events) // 2
    answers = []
    for name in ("live", "sealed"):
        (tmp_path / name).mkdir()
        with closing(open_writer(tmp_path / name / "board.db")) as board:
            migrate_connection(board)
            writer = StreamWriter(board, "board.db")
            send_stream(writer, events[:middle])
            if name == "sealed":
                board.execute("update runs set heartbeat_us = 1")
                assert seal_all(board) == ["R"]
                other = [replace(event, process_id="other") for event in events[:middle]]
                Ingestor(board).ingest("other", other)
            send_stream(writer, events[middle:])
            assert get_sealed_run(board, "R") is None
            assert list_problems(board) == []
            answers.append([tuple(row) for row in board.execute(_COMPILES)])
    assert answers[0] == answers[1] and len(answers[0]) > 3


def send_stream(writer: StreamWriter, events: list[Event]) -> None:
    lines = read_stream(writer.connection, events)
    with writer.single_transaction():
        writer.store(lines)


def read_stream(board: sqlite3.Connection, events: list[Event]) -> StreamLines:
    stream = get_stream(board, "R", "s") or Stream("R", "s")
    texts: dict[str, bytes] = {}
    lines = b"".join(dump_line(event, texts.__setitem__, None) for event in events)
    for digest, text in texts.items():
        save_text(board, digest, len(text), pack_large(text), 1)
    return read_lines(board, stream, lines)
