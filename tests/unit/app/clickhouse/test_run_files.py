"""A sealed run is read as it was before: its pages and answers, with the board's newest words."""

from __future__ import annotations

import re
import shutil
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from flask import Flask

from compileboard.app.artifacts import pages as artifacts
from compileboard.app.clickhouse.run_files import RunFiles
from compileboard.app.core import db
from compileboard.app.core.settings import Settings
from compileboard.app.reports import pages as reports
from compileboard.app.search import model as search
from compileboard.app.timeline import pages as timeline
from compileboard.collectors.store.connection import (
    DATABASE_VERSION,
    StoreError,
    open_reader,
    open_writer,
)
from compileboard.collectors.store.dashboard import annotate
from compileboard.collectors.store.run_rows import IN_FILE, read_tables
from compileboard.collectors.store.sealed_files import (
    get_sealed_run,
    list_run_files,
    list_sealed_runs,
)
from tests.unit.app.benched import RUNS
from tests.unit.app.clickhouse.sealed_runs import list_addresses, open_folder
from tests.unit.store.sealed.sealed_board import NOW_US


@pytest.fixture
def of_a_folder(live: Path, sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a run's pages in its file, and what crosses runs where they are all in one."""
    for module in (db, timeline, reports, artifacts):
        monkeypatch.setattr(module, "open_store", lambda _address: open_folder(sealed, live))


def read_answers(app: Flask, database: Path, addresses: list[str]) -> dict[str, tuple[int, bytes]]:
    app.config["COMPILEBOARD"] = Settings(db=str(database))
    client, answers = app.test_client(), {}
    for address in addresses:
        answer = client.get(address)
        body = answer.data.replace(str(database).encode(), b"DB")
        if address.startswith("/search"):
            body = re.sub(
                rb"cursor=[\w-]+", b"", body
            )  # it names the file where the next page begins
        answers[address] = (answer.status_code, body)
    return answers


@pytest.fixture
def answers(
    live: Path, shared_app: Flask, monkeypatch: pytest.MonkeyPatch
) -> dict[str, tuple[int, bytes]]:
    monkeypatch.setattr(time, "time_ns", lambda: NOW_US * 1000)
    return read_answers(shared_app, live, list_addresses(live, shared_app))


@pytest.mark.nightly
def test_pages_of_a_sealed_run_are_what_they_were(
    answers: dict[str, tuple[int, bytes]], sealed: Path, shared_app: Flask, of_a_folder: None
) -> None:
    after = read_answers(shared_app, sealed, list(answers))
    assert [address for address in answers if after[address] != answers[address]] == []
    assert sum(status == 200 for status, _body in after.values()) > 150


def test_its_words_are_the_boards(sealed: Path) -> None:
    with closing(open_writer(sealed)) as writer:
        annotate(writer, RUNS[0], title="Renamed after it was sealed", note=None, pinned=True)
    with closing(open_folder(sealed)) as folder:
        run = folder.open_run(RUNS[0])
        assert (
            run.execute("select title from run_annotations where pinned").fetchone()[0]
            == "Renamed after it was sealed"
        )
        assert run.execute("select count(*) from results").fetchone()[0] > 5
        assert run.execute("select count(*) from runs").fetchone()[0] == 9
        assert folder.open_run(RUNS[0]) is run
        assert folder.open_run("no such run") is folder.board
        with pytest.raises(sqlite3.OperationalError):
            run.execute("update results set speedup = 1")


def test_every_table_is_of_the_file_or_of_the_board(sealed: Path) -> None:
    with closing(open_folder(sealed)) as folder:
        tables = read_tables(folder.board)
        rows = "select name from temp.sqlite_schema where type = 'view'"
        views = {name for (name,) in folder.open_run(RUNS[0]).execute(rows)}
    assert views == tables.keys() - set(IN_FILE)


def test_the_cache_is_bounded_and_made_again(sealed: Path, tmp_path: Path) -> None:
    with closing(open_reader(sealed)) as board:
        runs = list_sealed_runs(board)
    files = RunFiles(str(sealed), str(tmp_path / "cache"), max_bytes=1_000_000)
    for run in runs:
        with closing(files.open(run)) as connection:
            assert connection.execute("select count(*) from events").fetchone()[0] > 0
    cached = list((tmp_path / "cache").iterdir())
    assert 1 <= len(cached) < len(runs)
    assert sum(path.stat().st_size for path in cached) <= 1_000_000
    (newest,) = [path for path in cached if runs[-1].file.digest.hex() in path.name]
    newest.write_bytes(b"damaged" * 1000)
    with closing(files.open(runs[-1])) as connection:
        assert connection.execute("pragma quick_check").fetchone()[0] == "ok"


def test_processes_open_one_run_at_once(sealed: Path, tmp_path: Path) -> None:
    with closing(open_reader(sealed)) as board:
        run = list_sealed_runs(board)[0]

    def count_events(_number: int) -> int:
        with closing(
            RunFiles(str(sealed), str(tmp_path / "cache"), max_bytes=1).open(run)
        ) as connection:
            return int(connection.execute("select count(*) from events").fetchone()[0])

    with ThreadPoolExecutor(8) as pool:
        counts = set(pool.map(count_events, range(40)))
    assert len(counts) == 1
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_damaged_file_is_an_error_of_one_run(sealed: Path, tmp_path: Path) -> None:
    board = Path(shutil.copytree(sealed.parent, tmp_path / "folder")) / "board.db"
    shutil.rmtree(board.parent / "cache", ignore_errors=True)
    (path,) = list_run_files(str(board), RUNS[0])
    path.write_bytes(path.read_bytes()[:-9])
    list_run_files(str(board), RUNS[1])[0].unlink()
    with closing(open_folder(board)) as folder:
        with pytest.raises(StoreError, match=f"{RUNS[0]}.*is damaged.*backup"):
            folder.open_run(RUNS[0])
        with pytest.raises(StoreError, match=f"{RUNS[1]}.*is missing.*backup"):
            folder.open_run(RUNS[1])
        assert folder.open_run(RUNS[2]).execute("select count(*) from results").fetchone()[0] > 5


def test_a_file_of_an_older_version_is_read_in_this_one(
    sealed: Path, tmp_path: Path, migrate_to_next: Callable[[str], None]
) -> None:
    board = Path(shutil.copytree(sealed.parent, tmp_path / "folder")) / "board.db"
    migrate_to_next("alter table runs add column next_fact text not null default 'old';")
    with closing(open_writer(board)) as writer:
        run = get_sealed_run(writer, RUNS[0])
    assert run is not None
    with closing(RunFiles(str(board), str(tmp_path / "cache")).open(run)) as connection:
        assert connection.execute("pragma main.user_version").fetchone()[0] == DATABASE_VERSION + 1
        assert connection.execute("select count(*) from results").fetchone()[0] > 5


def test_search_reads_the_newest_files_and_tells_how_many_it_did_not(
    live: Path, sealed: Path, shared_app: Flask, of_a_folder: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = shared_app.test_client()
    address, seen, cursor = "/api/v1/search?q=torch&kind=artifact&limit=30", [], ""
    while cursor is not None:
        answer = client.get(address + cursor).get_json()["data"]
        (group,) = [group for group in answer["groups"] if group["kind"] == "artifact"]
        seen += [(hit["run_id"], hit["ref_id"]) for hit in group["hits"]]
        cursor = group["next"] and f"&cursor={group['next']}"
    assert len(seen) == len(set(seen)) == group["count"] > 60
    assert len({run_id for run_id, _artifact in seen}) == 4
    assert (answer["run_count"], answer["unsearched_run_count"]) == (9, 0)
    monkeypatch.setattr(search, "MAX_FILES", 2)
    answer = client.get("/api/v1/search?q=torch").get_json()["data"]
    assert (answer["run_count"], answer["unsearched_run_count"]) == (2, 7)
    assert "7 older runs not searched" in client.get("/search?q=torch").text
