"""Files of sealed runs are lost: their pages say so, all other pages work."""

from __future__ import annotations

import re
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from flask import Flask

from compileboard.app.artifacts import pages as artifacts
from compileboard.app.cli.main import main
from compileboard.app.clickhouse import run_files
from compileboard.app.clickhouse.copying import CopyError, copy_store
from compileboard.app.clickhouse.run_files import count_lost_files, find_lost_files
from compileboard.app.core import db
from compileboard.app.core.address import StoreAddress
from compileboard.app.core.settings import Settings
from compileboard.app.core.store import open_run_or_board
from compileboard.app.reports import pages as reports
from compileboard.app.timeline import pages as timeline
from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.store.connection import open_reader, open_writer
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.store.sealed_files import list_run_files, list_sealed_runs
from compileboard.collectors.store.tokens import ActionOrigin
from compileboard.collectors.store.trash import database_path
from tests.unit.app.benched import RUNS
from tests.unit.app.clickhouse.sealed_runs import list_addresses, open_folder

ADVICE = "compileboard restore BACKUP --run-files"


@pytest.fixture
def folder(live: Path, sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the board without its cache; all its runs are sealed."""
    board = Path(shutil.copytree(sealed.parent, tmp_path / "folder")) / "board.db"
    shutil.rmtree(board.parent / "cache", ignore_errors=True)
    for module in (db, timeline, reports, artifacts):
        monkeypatch.setattr(module, "open_store", lambda _address: open_folder(board, live))
    return board


def list_files(board: Path) -> list[Path]:
    with closing(open_reader(board)) as reader:
        return [list_run_files(str(board), run.run_id)[0] for run in list_sealed_runs(reader)]


@pytest.mark.nightly
def test_pages_of_runs_say_that_their_file_is_missing_and_other_pages_work(
    folder: Path, live: Path, shared_app: Flask, caplog: pytest.LogCaptureFixture
) -> None:
    for path in list_files(folder):
        path.unlink()
    shared_app.config["COMPILEBOARD"] = Settings(db=str(folder))
    client = shared_app.test_client()
    addresses = list_addresses(live, shared_app)
    answers = {address: client.get(address) for address in addresses}
    assert {answer.status_code for answer in answers.values()} == {
        200,
        400,
        503,
    }  # a diff of nothing: 400
    lost = {address: answer for address, answer in answers.items() if answer.status_code == 503}
    assert all(ADVICE in answer.text and "is missing" in answer.text for answer in lost.values())
    assert (
        all(re.match(r"(/api/v1)?/(runs/|compare)", address) for address in lost)
        and len(lost) > 100
    )
    with closing(open_reader(live)) as reader:
        (break_id,) = reader.execute("select distinct_id from run_breaks limit 1").fetchone()
    across = client.get(f"/graph_breaks/{format_id(break_id)}")
    assert across.status_code == 200 and " is left out: " in across.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("harm", "words"),
    [("truncate", "is damaged"), ("change", "is damaged"), ("hide", "cannot be read")],
)
def test_a_file_that_cannot_be_used_says_what_is_wrong(
    folder: Path, shared_app: Flask, harm: str, words: str
) -> None:
    shared_app.config["COMPILEBOARD"] = Settings(db=str(folder))
    (path,) = list_run_files(str(folder), RUNS[0])
    packed = path.read_bytes()
    path.unlink()
    path.mkdir() if harm == "hide" else path.write_bytes(
        packed[:500] + (b"x" + packed[501:]) * (harm == "change")
    )
    client = shared_app.test_client()
    answer = client.get(f"/api/v1/runs/{RUNS[0]}")
    assert (answer.status_code, answer.json["status"], answer.json["ok"]) == (503, 503, False)
    assert (
        str(path) in answer.json["error"]
        and words in answer.json["error"]
        and ADVICE in answer.json["error"]
    )
    page = client.get(f"/runs/{RUNS[0]}")
    assert page.status_code == 503 and "This run&#39;s file is not available" in page.text
    assert client.get(f"/runs/{RUNS[1]}").status_code == client.get("/models").status_code == 200


def test_commands_name_what_is_lost_and_write_nothing_half(
    folder: Path,
    live: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        "compileboard.app.cli.export.open_store", lambda _db: open_folder(folder, live)
    )
    (path,) = list_run_files(str(folder), RUNS[0])
    path.unlink()
    for words in (
        f"export --run {RUNS[0]} --format json",
        f"export --run {RUNS[0]} --format bundle",
    ):
        assert main([*words.split(), "--output", str(tmp_path / "out"), "--db", str(folder)]) == 2
        assert f"{path} is missing" in capsys.readouterr().err and not (tmp_path / "out").exists()
    assert (
        main(
            [
                "export",
                "--run",
                RUNS[1],
                "--format",
                "json",
                "--output",
                str(tmp_path / "out"),
                "--db",
                str(folder),
            ]
        )
        == 0
    )
    source, target = (
        StoreAddress(str(folder), str(folder.parent)),
        StoreAddress(str(tmp_path / "back.db")),
    )
    told: list[str] = []
    with pytest.raises(CopyError, match="lacks files of 1 run, so nothing was copied"):
        copy_store(
            source,
            target,
            password="",
            program_version="1",
            origin=ActionOrigin("command"),
            say=told.append,
        )
    assert any(str(path) in line for line in told) and not list(tmp_path.glob("back.db*"))
    assert migrate(folder) == 0


def test_lists_mark_a_run_whose_file_is_lost_and_probes_count_it(
    folder: Path, shared_app: Flask
) -> None:
    shared_app.config["COMPILEBOARD"] = Settings(db=str(folder))
    client = shared_app.test_client()
    assert "File lost" not in client.get("/runs").text
    (path,) = list_run_files(str(folder), RUNS[0])
    path.unlink()
    page = client.get("/runs").text
    assert page.count("File lost") == 1 and f"{path} is missing" in page
    ready = client.get("/readyz").json
    assert ready["warnings"] == {
        "run_files": "1 sealed run without a file: compileboard verify names them"
    }
    assert set(ready["checks"]) >= {"read"} and str(folder.parent) not in str(ready)


def test_only_the_runs_of_a_page_are_looked_at_and_probes_do_not_count_twice_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_writer(folder)) as board:
        unread = (
            "update published_runs set rows_count = 0, run_pub = max(run_pub, 0) where run_id = ?"
        )
        assert board.execute(unread, (RUNS[0],)).rowcount == 1
        assert find_lost_files(board).keys() == find_lost_files(board, RUNS).keys() == {RUNS[0]}
        assert find_lost_files(board, [RUNS[1]]) == {}
        monkeypatch.setattr(run_files, "_counts", {database_path(board): run_files.LostCount(5)})
        with run_files._counting:
            assert count_lost_files(board) == 5
        assert [count_lost_files(board) for _ in range(2)] == [1, 1]


def test_a_probe_looks_at_some_files_and_the_next_ones_at_the_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = list_files(folder)
    for path in files[1:]:
        path.unlink()
    monkeypatch.setattr(run_files, "_counts", {})
    monkeypatch.setattr(run_files, "COUNT_S", 0.0)
    monkeypatch.setattr(run_files, "_COUNTED_AT_ONCE", 1)
    with closing(open_reader(folder)) as board:
        assert [count_lost_files(board) for _ in files] == list(range(len(files)))
        assert [count_lost_files(board) for _ in range(2)] == [len(files) - 1] * 2
        assert run_files._counts[database_path(board)].run_id == ""


def test_a_damaged_file_is_read_once_by_a_request(
    folder: Path, live: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = list_run_files(str(folder), RUNS[0])
    packed = path.read_bytes()
    path.write_bytes(packed[:500] + b"x" + packed[501:])
    asked: list[str] = []
    unpack = run_files.unpack_current
    monkeypatch.setattr(
        run_files, "unpack_current", lambda *given: asked.append(given[1].name) or unpack(*given)
    )
    with closing(open_folder(folder, live)) as store:
        assert [open_run_or_board(store, RUNS[0]) is store.board for _ in range(3)] == [True] * 3
        assert store.open_run(RUNS[1]) is not store.board
        assert sum(path.name in name for name in asked) == 1 and store.unavailable.keys() == {
            RUNS[0]
        }
    path.write_bytes(packed)
    with closing(open_folder(folder, live)) as store:
        assert store.open_run(RUNS[0]) is not store.board
