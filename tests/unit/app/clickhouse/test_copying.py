"""A store is copied to a folder beside ClickHouse and back; differences in a copy are found."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest

from compileboard.app.clickhouse import copying
from compileboard.app.clickhouse.client import connect
from compileboard.app.clickhouse.copying import (
    CopyError,
    StoreComparison,
    compare_stores,
    copy_store,
)
from compileboard.app.core.address import StoreAddress
from compileboard.collectors.store.connection import open_reader, open_writer
from compileboard.collectors.store.sealed_files import list_sealed_runs
from compileboard.collectors.store.tokens import ActionOrigin
from compileboard.collectors.store.trash import delete_run, restore_run
from tests.unit.app.benched import bench_suite
from tests.unit.app.clickhouse.databases import make_database
from tests.unit.app.repros.captured import capture_repros
from tests.unit.store.sealed.sealed_board import copy_board, read_rows

pytestmark = pytest.mark.clickhouse


@pytest.fixture(scope="module")
def file(explored: Path, tmp_path_factory: pytest.TempPathFactory) -> StoreAddress:
    with closing(copy_board(explored, tmp_path_factory.mktemp("file"))) as store:
        bench_suite(store)
        capture_repros(store)
        store.execute("update runs set heartbeat_us = 1 where state = 'running'")
        store.execute("update spans set compile_key = null where id = (select min(id) from spans)")
        delete_run(store, store.execute("select min(id) from runs").fetchone()[0])
        return StoreAddress(str(store.execute("pragma database_list").fetchone()[2]))


def make_folder(folder: Path, chdb_folder: Path) -> StoreAddress:
    return StoreAddress(str(folder / "board.db"), str(folder), make_database(chdb_folder))


@pytest.fixture(scope="module")
def folder(
    file: StoreAddress, chdb_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> StoreAddress:
    target = make_folder(tmp_path_factory.mktemp("copied") / "board", chdb_folder)
    assert copy(file, target).differences == []
    return target


def copy(source: StoreAddress, target: StoreAddress, *, resume: bool = False) -> StoreComparison:
    origin = ActionOrigin("command")
    return copy_store(
        source, target, password="", program_version="0", origin=origin, resume=resume
    )


def compare(source: StoreAddress, target: StoreAddress) -> list[str]:
    return compare_stores(source, target, "", lambda line: None).differences


def test_a_file_comes_back_from_a_folder_row_by_row(
    file: StoreAddress, folder: StoreAddress, tmp_path: Path
) -> None:
    back = StoreAddress(str(tmp_path / "back.db"))
    assert copy(folder, back).differences == []
    with (
        closing(open_reader(file.board)) as original,
        closing(open_writer(back.board)) as copied_board,
    ):
        rows, copied = read_rows(original), read_rows(copied_board)
        for name in (
            "events",
            "compilations",
            "run_breaks",
            "run_summaries",
            "trace_pieces",
            "tokens",
            "incidents",
        ):
            assert copied[name] == rows[name], name
        assert {name: len(copied[name]) for name in rows if name != "audit"} == {
            name: len(rows[name]) for name in rows if name not in ("audit", "detection")
        } | {"detection": 0}
        (deleted,) = copied_board.execute("select run_id from removed_runs").fetchone()
        assert restore_run(copied_board, deleted)


def test_ended_runs_are_sealed_in_a_folder(folder: StoreAddress) -> None:
    with closing(open_reader(folder.board)) as board:
        sealed = list_sealed_runs(board)
        assert len(sealed) == board.execute("select count(*) from runs").fetchone()[0] > 3
        assert board.execute("select count(*) from events").fetchone()[0] == 0


@pytest.mark.parametrize(
    ("change", "table"),
    [
        ("update streams set stored_bytes = stored_bytes", None),
        ("update run_totals set compile_count = compile_count + 1", "run_totals: other rows"),
        (
            "insert into tokens values ('t', 'n', x'00', 'read', 0, 'n', null, null, null, null)",
            "tokens: 0 rows → 1",
        ),
        ("insert into commits values ('c0ffee', null, 0, null, 'later')", "commits: 0 rows → 1"),
    ],
)
def test_a_changed_row_is_told(folder: StoreAddress, change: str, table: str | None) -> None:
    with closing(open_writer(folder.board)) as board:
        expected = copying.digest_board(folder.board)
        board.execute("begin")
        board.execute(change)
        board.execute("commit")
    differences = list(
        copying.list_digest_differences(expected, copying.digest_board(folder.board))
    )
    assert [line for line in differences if not line.startswith("run ")] == (
        [table] if table else []
    )


def test_other_roll_ups_in_the_engine_are_told(file: StoreAddress, folder: StoreAddress) -> None:
    assert folder.clickhouse is not None
    client = connect(folder.clickhouse)
    client.command(
        "insert into run_breaks_rows select * replace (break_count + 1 as break_count) from "
        "run_breaks_rows limit 1"
    )
    assert any(line.startswith("run_breaks in ") for line in compare(file, folder))


def test_a_stopped_copy_goes_on(
    file: StoreAddress, chdb_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = make_folder(tmp_path / "board", chdb_folder)
    seal, sealed = copying.seal_run, list[str]()

    def seal_two(connection: sqlite3.Connection, run_id: str, *, quiet_us: int) -> None:
        if len(sealed) == 2:
            raise KeyboardInterrupt
        sealed.append(run_id)
        seal(connection, run_id, quiet_us=quiet_us)

    monkeypatch.setattr(copying, "seal_run", seal_two)
    with pytest.raises(KeyboardInterrupt):
        copy(file, target)
    assert not Path(target.board).exists()
    monkeypatch.undo()
    with pytest.raises(CopyError, match="a copy that stopped: --resume goes on"):
        copy(file, target)
    assert copy(file, target, resume=True).differences == []
    assert not Path(f"{target.folder}.copying").exists()


def test_a_place_or_database_in_use_is_refused(
    file: StoreAddress, folder: StoreAddress, tmp_path: Path
) -> None:
    with pytest.raises(CopyError, match="is there already; a copy needs a new place"):
        copy(file, folder)
    elsewhere = replace(folder, board=str(tmp_path / "b" / "board.db"), folder=str(tmp_path / "b"))
    with pytest.raises(
        CopyError, match="has the runs of another dashboard; name an empty database"
    ):
        copy(file, elsewhere)
    rmtree(tmp_path / "b.copying")
    with pytest.raises(CopyError, match=r"there is no folder .*; make it first"):
        copy(file, StoreAddress(str(tmp_path / "none" / "x.db")))
