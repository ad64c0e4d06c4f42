"""A bundle with more of a run replaces its rows; what people wrote stays."""

from __future__ import annotations

import lzma
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.cli.import_command import import_paths
from compileboard.collectors.contract.events import ProcessStarted
from compileboard.collectors.logs.log_loader import LoadOptions
from compileboard.collectors.store.bundles import count_contents, merge_bundle, write_bundle
from compileboard.collectors.store.connection import NotAStore, open_reader, open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.ingest.source_files import save_trace_file
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.pruning import PruneRule, prune_runs
from compileboard.collectors.store.runs import RunSender
from compileboard.collectors.store.sealed_files import list_sealed_runs
from compileboard.collectors.store.trash import delete_run
from compileboard.collectors.store.verification import verify
from tests.unit.app.benched import MLP
from tests.unit.app.explored import LOGS
from tests.unit.app.repros.captured import RUN as REPRO_RUN
from tests.unit.app.repros.captured import capture_repros
from tests.unit.store.sealed.sealed_board import seal_all

WHOLE = lzma.decompress(LOGS["torch2.13-shapes"].read_bytes())
HALF = WHOLE[: WHOLE.index(b"\nV", len(WHOLE) // 2) + 1]
Make = Callable[..., str]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(body: bytes, **options: bool) -> str:
        """Import a log into a database of its own; return a bundle of the run."""
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        log, database, bundle = (
            folder / "dedicated_log_torch_trace_x.log",
            folder / "own.db",
            folder / "bundle.db",
        )
        log.write_bytes(body)
        import_paths(
            [str(log)], str(database), LoadOptions(**options), print_line=lambda _line: None
        )  # type: ignore[arg-type]
        with closing(open_reader(database)) as reader:
            write_bundle(reader, [reader.execute("select id from runs").fetchone()[0]], str(bundle))
        return str(bundle)

    return make


@pytest.fixture
def board(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    folder = tmp_path / "folder"
    folder.mkdir()
    with closing(open_writer(folder / "board.db")) as connection:
        migrate_connection(connection)
        yield connection


def merge(board: sqlite3.Connection, bundle: str) -> str:
    (merged,) = merge_bundle(board, bundle)
    return merged.state


def count_rows(connection: sqlite3.Connection) -> dict[str, int]:
    tables = connection.execute(
        "select name from sqlite_schema where type = 'table' and name not like 's%'"
    ).fetchall()
    return {
        name: connection.execute(f"select count(*) from {name}").fetchone()[0] for (name,) in tables
    }


def test_a_longer_log_is_added_once_and_gives_the_rows_of_one_import(
    board: sqlite3.Connection, make: Make
) -> None:
    half, whole = make(HALF), make(WHOLE)
    assert [merge(board, bundle) for bundle in (half, whole, whole, half)] == [
        "new",
        "grown",
        "known",
        "known",
    ]
    with closing(open_reader(whole)) as reader:
        ours, theirs = count_rows(board), count_rows(reader)
        (run_id,) = reader.execute("select id from runs").fetchone()
        assert count_contents(board, run_id) == count_contents(reader, run_id)
    assert {name for name in theirs if ours[name] != theirs[name]} <= {"publications"}
    assert theirs["artifacts"] > 20


def test_what_people_wrote_stays(board: sqlite3.Connection, make: Make) -> None:
    merge(board, make(HALF))
    board.execute("insert into run_annotations select id, 'mine', 'note', 1, 5 from runs")
    board.execute("insert into run_tags select id, 'team', 'a' from runs")
    board.execute("update runs set name = 'ours'")
    assert merge(board, make(WHOLE)) == "grown"
    row = board.execute("select name, title, value from runs, run_annotations, run_tags").fetchone()
    assert tuple(row) == ("ours", "mine", "a")
    path = board.execute("pragma database_list").fetchone()["file"]
    assert not [check for check in verify(str(path)) if check.problems]


def test_what_the_server_alone_has_stays(board: sqlite3.Connection, make: Make) -> None:
    merge(board, make(HALF))
    for bundle in (make(WHOLE, payloads=False), make(WHOLE, redact_source=True)):
        assert merge(board, bundle) == "apart"
    assert len(list(prune_runs(board, PruneRule(2**60), 0))) == 1
    before = count_rows(board)
    assert (merge(board, make(WHOLE)), count_rows(board)) == ("apart", before)


def test_a_trace_log_that_only_one_side_stored_stays(
    board: sqlite3.Connection, make: Make, tmp_path: Path
) -> None:
    half, whole = make(HALF), make(WHOLE)
    merge(board, half)
    (run_id,) = board.execute("select id from runs").fetchone()
    (tmp_path / "trace.log").write_bytes(HALF)
    save_trace_file(board, run_id, tmp_path / "trace.log")
    assert merge(board, whole) == "apart"
    assert board.execute("select size_bytes from trace_files").fetchone()[0] == len(HALF)
    with closing(open_writer(whole)) as writer:
        save_trace_file(writer, run_id, tmp_path / "trace.log")
        writer.execute("pragma journal_mode = delete")
    assert merge(board, whole) == "grown"
    assert board.execute("select count(*) from trace_pieces").fetchone()[0] > 0


def test_a_run_with_very_deep_stacks_grows(board: sqlite3.Connection, make: Make) -> None:
    """SQLite takes a thousand levels of a cascade, and the square of them for its time."""
    merge(board, make(HALF))
    (run_id,) = board.execute("select id from runs").fetchone()
    (first,) = board.execute("select coalesce(max(id), 0) + 1 from stack_nodes").fetchone()
    rows = [
        (first + depth, run_id, first + depth - 1 if depth else None, depth)
        for depth in range(1500)
    ]
    board.executemany(
        (
            "insert into stack_nodes (id, run_id, parent_id, depth, file, name) values (?, ?, ?, "
            "?, 'deep', 'f')"
        ),
        rows,
    )
    assert merge(board, make(WHOLE)) == "grown"
    assert board.execute("select count(*) from stack_nodes where file = 'deep'").fetchone()[0] == 0


BOX_1, BOX_2 = RunSender("token:box-1", False), RunSender("token:box-2", False)


def test_a_limited_sender_changes_only_runs_that_it_sent(
    board: sqlite3.Connection, make: Make
) -> None:
    half, whole = make(HALF), make(WHOLE)

    def send(bundle: str, sender: RunSender) -> str:
        (merged,) = merge_bundle(board, bundle, sender=sender)
        return merged.state

    assert send(half, BOX_1) == "new"
    (run_id,) = board.execute("select id from runs").fetchone()
    before = count_contents(board, run_id)
    assert (send(whole, BOX_2), count_contents(board, run_id)) == ("foreign", before)
    assert send(whole, RunSender("login:box-1", False)) == "foreign"
    assert send(whole, BOX_1) == "grown"
    assert send(whole, RunSender("token:ann")) == "known"  # the scope write
    delete_run(board, run_id)
    assert send(whole, BOX_2) == "foreign"


@pytest.mark.parametrize(
    "forge",
    [
        "update payloads set digest = zeroblob(16) where id = (select min(id) from payloads)",
        "update configs set body = (select body from configs order by hash desc limit 1)",
        "update functions set name = name || 'x'",
        (
            "update recompile_causes set fingerprint = 'x' where id = (select min(id) from "
            "recompile_causes)"
        ),
    ],
)
def test_what_other_runs_would_share_is_what_its_id_says(
    board: sqlite3.Connection, make: Make, forge: str
) -> None:
    bundle = make(lzma.decompress(LOGS["zoo_recompiles"].read_bytes()))
    with closing(sqlite3.connect(bundle)) as writer, writer:
        assert writer.execute(forge).rowcount
    with pytest.raises(NotAStore, match="it is refused"):
        merge(board, bundle)


def test_a_bundle_with_a_process_of_another_run_is_refused(
    board: sqlite3.Connection, make: Make
) -> None:
    assert merge(board, make(HALF)) == "new"
    (process_id,) = board.execute("select id from processes limit 1").fetchone()
    forged = make(lzma.decompress(LOGS["zoo_recompiles"].read_bytes()))
    with closing(sqlite3.connect(forged)) as writer, writer:
        writer.execute(
            "insert into events select ?, 9999, id, 'run_ended', 0, x'00' from runs", (process_id,)
        )
    assert merge(board, forged) == "foreign"


def test_a_sender_adds_to_each_run_of_its_bundle(
    board: sqlite3.Connection, make: Make, tmp_path: Path
) -> None:
    def send(*bundles: str) -> list[str]:
        both = tmp_path / Path(bundles[0]).parent.name / "both.db"
        with closing(open_writer(both.with_name("all.db"))) as writer:
            migrate_connection(writer)
            run_ids = [
                merged.run_id for bundle in bundles for merged in merge_bundle(writer, bundle)
            ]
            write_bundle(writer, run_ids, str(both))
        return [merged.state for merged in merge_bundle(board, str(both), sender=BOX_1)]

    other = lzma.decompress(LOGS["zoo_recompiles"].read_bytes())
    other_half = other[: other.index(b"\nV", len(other) // 2) + 1]
    assert send(make(HALF), make(other_half)) == ["new", "new"]
    assert send(make(WHOLE), make(other)) == ["grown", "grown"]


def test_a_sealed_run_is_compared_and_grows(board: sqlite3.Connection, make: Make) -> None:
    half = make(HALF)
    merge(board, half)
    seal_all(board)
    assert (merge(board, half), len(list_sealed_runs(board))) == ("known", 1)
    (count,) = board.execute("select count(*) from events").fetchone()
    (merged,) = merge_bundle(board, make(WHOLE))
    assert (merged.state, list_sealed_runs(board), count) == ("grown", [], 0)
    with closing(open_reader(half)) as reader:
        (half_count,) = reader.execute("select count(*) from events").fetchone()
    (count,) = board.execute("select count(*) from events").fetchone()
    assert merged.record_count == count - half_count
    assert board.execute("select max(end_offset_bytes) from logs").fetchone()[0] == len(WHOLE)


def test_answers_about_repros_stay_and_new_results_come(
    board: sqlite3.Connection, tmp_path: Path
) -> None:
    with closing(open_writer(tmp_path / "own.db")) as own:
        migrate_connection(own)
        capture_repros(own)
        write_bundle(own, [REPRO_RUN], str(tmp_path / "bundle.db"))
        assert merge(board, str(tmp_path / "bundle.db")) == "new"
        board.execute(
            "update repro_results set started_us = 1 where id = (select min(id) from repro_results)"
        )
        Ingestor(own).ingest(
            REPRO_RUN, [ProcessStarted("bench", 0, MLP.time_us, REPRO_RUN, 1), MLP]
        )
        write_bundle(own, [REPRO_RUN], str(tmp_path / "more.db"))
    before = count_rows(board)
    assert merge(board, str(tmp_path / "more.db")) == "grown"
    after = count_rows(board)
    assert after["repro_results"] == before["repro_results"] + 1
    assert (after["repros"], after["repro_storages"]) == (
        before["repros"],
        before["repro_storages"],
    )
    assert after["results"] > before["results"] == 0
