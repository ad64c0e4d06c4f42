"""The files of sealed runs are backed up, restored, verified and pruned with their board."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.app.cli.main import main
from compileboard.app.clickhouse.run_files import RunFiles
from compileboard.app.core.store import open_store
from compileboard.collectors.store import backup, pruning
from compileboard.collectors.store.backup import (
    RestoreReport,
    restore_backup,
    restore_run_files,
    write_backup,
)
from compileboard.collectors.store.bundles import merge_bundle, write_bundle
from compileboard.collectors.store.connection import (
    NotAStore,
    StoreError,
    open_writer,
    write_transaction,
)
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.pruning import PruneRule, list_prunable, measure_used, prune_runs
from compileboard.collectors.store.reopening import reopen_run, unpack_current
from compileboard.collectors.store.run_rows import ROLLUPS
from compileboard.collectors.store.sealed_files import (
    RunFile,
    describe_problem,
    get_sealed_run,
    list_run_files,
    list_sealed_runs,
    pack_run_file,
    run_folder,
)
from compileboard.collectors.store.trash import CannotRestore, delete_run, restore_run, trash_path
from compileboard.collectors.store.verification import verify
from tests.unit.app.benched import MLP, RUNS, bench_suite
from tests.unit.app.recorded import RUN, record_run
from tests.unit.app.repros.captured import RUN as REPRO_RUN
from tests.unit.app.repros.captured import capture_repros
from tests.unit.store.sealed.sealed_board import read_rows, seal_all

ALL = PruneRule(2**60)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kept") / "board.db"
    with closing(open_writer(path)) as board:
        migrate_connection(board)
        bench_suite(board)
        capture_repros(board)
        record_run(board)
        seal_all(board)
    return path


@pytest.fixture
def board(recorded: Path, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    folder = Path(shutil.copytree(recorded.parent, tmp_path / "folder"))
    with closing(open_writer(folder / "board.db")) as connection:
        yield connection


def path_of(board: sqlite3.Connection) -> str:
    return str(board.execute("pragma database_list").fetchone()["file"])


def list_problems(path: str) -> list[str]:
    return [problem for check in verify(path, texts=True) for problem in check.problems]


def test_a_backup_has_the_files_and_puts_them_back(
    board: sqlite3.Connection, tmp_path: Path
) -> None:
    path = path_of(board)
    delete_run(board, RUNS[2])
    rows = read_rows(board)
    manifest = write_backup(path, str(tmp_path / "backup"), program_version="1", problems=[])
    assert sum(name.startswith("runs/") for name in manifest.files) == 5
    (file,) = list_run_files(path, RUN)
    assert file.stat().st_nlink == 2
    assert list_problems(str(tmp_path / "backup")) == []
    Ingestor(board).ingest(RUN, [MLP])
    board.close()
    shutil.rmtree(Path(path).parent / "runs")
    assert any("missing" in problem for problem in list_problems(path))
    restore_backup(str(tmp_path / "backup"), path)
    with closing(open_writer(path)) as restored:
        assert read_rows(restored) == rows
        assert restore_run(restored, RUNS[2])
    assert list_problems(path) == list_problems(str(tmp_path / "backup")) == []


def test_a_damaged_or_lost_file_is_told(board: sqlite3.Connection) -> None:
    path = path_of(board)
    delete_run(board, RUNS[2])
    for run_id in (RUNS[0], RUNS[2]):
        list_run_files(path, run_id)[0].unlink()
    (file,) = list_run_files(path, RUNS[1])
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    problems = list_problems(path)
    assert len(problems) == 3
    for run_id, words in (
        (RUNS[0], "is missing"),
        (RUNS[1], "is damaged"),
        (RUNS[2], "cannot be restored"),
    ):
        assert sum(run_id in problem and words in problem for problem in problems) == 1
    with pytest.raises(CannotRestore, match="restore BACKUP --run-files"):
        restore_run(board, RUNS[2])


def lose_files(path: str) -> tuple[Path, Path, Path]:
    """Lose the files of three runs: one is missing, one damaged, one a folder that nobody can
    read.
    """
    files = [list_run_files(path, run_id)[0] for run_id in (RUNS[0], RUNS[1], RUN)]
    files[1].write_bytes(files[1].read_bytes()[:-1] + b"x")
    for file in (files[0], files[2]):
        file.unlink()
    files[2].mkdir()
    return files[0], files[1], files[2]


def test_a_backup_without_lost_files_has_all_else_and_says_so(
    board: sqlite3.Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, backup = path_of(board), str(tmp_path / "backup")
    lost = lose_files(path)
    assert main(["backup", backup, "--db", path]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3 and all(any(str(file) in line for line in errors) for file in lost)
    assert sum(file.is_file() for file in Path(backup, "runs").rglob("*")) == 2
    assert main(["verify", backup]) == 1
    told = capsys.readouterr().out
    assert told.count("is missing") == 3 and "files of the backup: ok" in told
    board.close()
    assert main(["restore", backup, "--db", path]) == 1
    assert "lacks files of 3 runs" in capsys.readouterr().out
    assert len(list_problems(path)) == 3


def test_lost_files_are_put_back_from_a_backup_while_the_board_is_open(
    board: sqlite3.Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = path_of(board)
    shutil.copytree(Path(path).parent / "runs", tmp_path / "kept")
    write_backup(path, str(tmp_path / "backup"), program_version="1", problems=[])
    shutil.rmtree(tmp_path / "backup" / "runs")  # its links are damaged with the files
    (tmp_path / "kept").rename(tmp_path / "backup" / "runs")
    rows = read_rows(board)
    lost = lose_files(path)
    lost[2].rmdir()
    assert main(["restore", str(tmp_path / "backup"), "--run-files", "--db", path]) == 0
    assert capsys.readouterr().out.count("its file is back") == 3
    assert list_problems(path) == [] and {
        name: read_rows(board)[name] for name in rows if name != "audit"
    } == {name: rows[name] for name in rows if name != "audit"}
    lose_files(path)
    (tmp_path / "backup" / "runs" / lost[0].parent.name / lost[0].name).unlink()
    assert main(["restore", str(tmp_path / "backup"), "--run-files", "--db", path]) == 1
    output = capsys.readouterr()
    assert (
        f"run {RUNS[0]}: {lost[0]} is missing" in output.err
        and f"run {RUN}: {lost[2]} cannot be" in output.err
    )
    assert output.out == f"run {RUNS[1]}: its file is back\n"


def test_a_file_that_goes_because_its_run_is_reopened_is_not_lost(
    board: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, target = path_of(board), str(tmp_path / "backup")
    write_backup(path, target, program_version="1", problems=[])
    (old,) = list_run_files(path, RUNS[0])

    def describe(database: str, file: RunFile) -> str | None:
        if old.exists() and file.name == str(old.relative_to(run_folder(path))):
            with write_transaction(board):
                reopen_run(board, RUNS[0])
            old.unlink()
        return describe_problem(database, file)

    monkeypatch.setattr(backup, "describe_problem", describe)
    assert restore_run_files(target, path) == RestoreReport([], [])
    assert not old.exists()


def test_a_damaged_file_of_the_trash_stops_no_backup(
    board: sqlite3.Connection, tmp_path: Path
) -> None:
    path, target = path_of(board), str(tmp_path / "backup")
    delete_run(board, RUNS[2])
    trash_path(path, RUNS[2]).write_bytes(b"no database at all" * 100)
    list_run_files(path, RUNS[0])[0].unlink()
    problems: list[str] = []
    write_backup(path, target, program_version="1", problems=problems)
    assert [RUNS[0] in problem for problem in problems] == [True]
    assert any(RUNS[2] in problem for problem in list_problems(target))
    assert [RUNS[0] in problem for problem in restore_run_files(target, path).problems] == [True]


def test_what_is_wrong_within_a_file_is_told(board: sqlite3.Connection, tmp_path: Path) -> None:
    path, sealed = path_of(board), get_sealed_run(board, RUN)
    assert sealed is not None
    unpack_current(path, sealed.file, tmp_path / "run.db")
    with closing(open_writer(tmp_path / "run.db")) as file:
        file.execute("update run_breaks set break_count = 9")
        file.execute("update run_totals set restart_count = 9")
        file.execute("pragma journal_mode = delete")
    new = pack_run_file(path, tmp_path / "run.db", sealed.file.name)
    board.execute(pruning._REPLACE_FILE, {"run_id": RUN, **new._asdict()})
    problems = list_problems(path)
    assert any("run_breaks" in problem and "break_count is 9" in problem for problem in problems)
    assert any("its totals are not those of its file" in problem for problem in problems)


def test_detail_goes_from_the_files_and_roll_ups_stay(
    board: sqlite3.Connection, tmp_path: Path
) -> None:
    path, files = path_of(board), RunFiles(path_of(board), str(tmp_path / "cache"))
    used_bytes = measure_used(board)
    listed = {run.id: run.detail_bytes for run in list_prunable(board, ALL, 2**60)}
    rollups = {name: read_rollups(board, files, name) for name in ROLLUPS}
    pruned = {run.id: run.detail_bytes for run in prune_runs(board, ALL, 2**60)}
    assert pruned.keys() == listed.keys() and all(
        0 < pruned[run_id] < listed[run_id] for run_id in (RUN, RUNS[0])
    )
    assert measure_used(board) < used_bytes
    assert {name: read_rollups(board, files, name) for name in ROLLUPS} == rollups
    assert rollups["run_breaks"] and rollups["results"]
    sealed = get_sealed_run(board, RUN)
    assert sealed is not None
    with closing(files.open(sealed)) as run:
        assert run.execute("select count(*) from events").fetchone()[0] == 0
        assert (
            run.execute("select pruned_us from pruned_runs where run_id = ?", (RUN,)).fetchone()
            is not None
        )
    assert [len(list_run_files(path, run_id)) for run_id in pruned] == [1] * len(pruned)
    assert board.execute("select count(*) from repro_storages").fetchone()[0] == 0
    assert list_problems(path) == []
    assert Ingestor(board).ingest(RUN, [MLP]).deleted_run
    with write_transaction(board):
        assert reopen_run(board, REPRO_RUN)
    assert list_problems(path) == []


def test_a_damaged_file_stops_the_pruning_of_no_other_run(
    board: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    (packed,) = list_run_files(path_of(board), RUN)
    packed.unlink()
    (unreadable,) = list_run_files(path_of(board), RUNS[1])
    unreadable.unlink()
    unreadable.mkdir()
    assert main(["prune", "--older-than", "0d", "--db", path_of(board)]) == 1
    output = capsys.readouterr()
    assert f"run {RUN} is not pruned: {packed} is missing" in output.err and RUNS[0] in output.out
    assert f"run {RUNS[1]} is not pruned: {unreadable} cannot be read" in output.err
    pruned = {run_id for (run_id,) in board.execute("select run_id from pruned_runs")}
    assert RUN not in pruned and RUNS[0] in pruned


def read_rollups(
    board: sqlite3.Connection, files: RunFiles, table: str
) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for sealed in list_sealed_runs(board):
        with closing(files.open(sealed)) as run:
            rows += map(tuple, run.execute(f"select * from {table} order by 1, 2, 3"))
    return rows


def test_a_run_that_is_reopened_while_its_file_is_pruned_stays(
    board: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack, path = pruning.pack_run_file, path_of(board)

    def reopen_meanwhile(database: str, source: Path, name: str) -> object:
        with closing(open_writer(database)) as other:
            Ingestor(other).ingest(RUNS[0], [MLP])
        return pack(database, source, name)

    monkeypatch.setattr(pruning, "pack_run_file", reopen_meanwhile)
    assert RUNS[0] not in [
        run.id for run in prune_runs(board, PruneRule(2**60, "bench_models"), 2**60)
    ]
    assert (
        board.execute("select count(*) from pruned_runs where run_id = ?", (RUNS[0],)).fetchone()[0]
        == 0
    )
    assert (
        board.execute("select count(*) from events where run_id = ?", (RUNS[0],)).fetchone()[0] > 0
    )
    assert list_problems(path) == []


def test_an_unpacked_file_is_a_bundle(board: sqlite3.Connection, tmp_path: Path) -> None:
    (packed,) = list_run_files(path_of(board), RUN)
    (tmp_path / "run.db").write_bytes(gzip.decompress(packed.read_bytes()))
    assert list_problems(str(tmp_path / "run.db")) == []
    with closing(open_writer(tmp_path / "other.db")) as other:
        migrate_connection(other)
        (merged,) = merge_bundle(other, str(tmp_path / "run.db"))
    assert (merged.run_id, merged.state) == (RUN, "new")
    assert list_problems(str(tmp_path / "other.db")) == []


def test_a_bundle_of_sealed_runs_is_as_before(board: sqlite3.Connection, tmp_path: Path) -> None:
    rows = []
    for name in ("sealed", "open"):
        path = str(tmp_path / f"{name}.db")
        write_bundle(board, [RUN, RUNS[0], REPRO_RUN], path)
        assert list_problems(path) == []
        with closing(open_writer(path)) as bundle:
            rows.append(read_rows(bundle))
        with write_transaction(board):
            assert all(reopen_run(board, run_id) for run_id in (RUN, RUNS[0], REPRO_RUN)) is (
                name == "sealed"
            )
    assert rows[0] == rows[1] and rows[0]["results"] and rows[0]["compiles"]


def test_a_board_with_sealed_runs_is_no_bundle_and_no_single_file(
    board: sqlite3.Connection, tmp_path: Path
) -> None:
    board.execute("pragma wal_checkpoint(truncate)")
    with closing(open_writer(tmp_path / "other.db")) as other:
        migrate_connection(other)
        with pytest.raises(NotAStore, match="detail is in other files"):
            list(merge_bundle(other, path_of(board)))
    with pytest.raises(StoreError, match="clickhouse:///"):
        open_store(path_of(board))
