"""`compileboard report`: dated files for cron, whole or not at all."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compileboard.app.benchmarks.trend_queries import ModelSet
from compileboard.app.cli.main import main
from compileboard.app.cli.report import name_sets
from compileboard.collectors.store.connection import checkpoint
from tests.unit.app.benched import MLP, add_results, measure
from tests.unit.app.seed import START_US

DAY_US = 86_400_000_000
LAST_DAY = "2026-11-20"


@pytest.fixture(autouse=True)
def runs(store: sqlite3.Connection) -> None:
    """Record a suite measured in two ways and one in one way, within three days from 2026-11-18
    on.
    """
    for number in range(3):
        at = {"started_us": START_US + number * DAY_US}
        add_results(store, f"R{number}", MLP, measure(model="other", dtype="bfloat16"), **at)
        add_results(store, f"S{number}", measure(suite="a/b"), **at)
    checkpoint(store)


def report(database: Path, folder: Path, *more: str, until: str = LAST_DAY) -> int:
    return main(["report", "--db", str(database), "--folder", str(folder), "--until", until, *more])


def test_each_way_of_each_suite_has_a_dated_file_which_is_printed(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new" / "reports"
    assert report(database, folder, "--format", "html", "--format", "json") == 0
    out, err = capsys.readouterr()
    assert err == "" and {line.split(":")[0] for line in out.splitlines()} == {
        str(path) for path in folder.iterdir()
    }
    days = "2026-11-14-2026-11-20"
    ways = ("builtin-float32", "builtin-bfloat16", "a-b-c14cdd")
    assert {path.name for path in folder.iterdir()} == {
        f"{way}-{days}.{kind}" for way in ways for kind in ("html", "json")
    }
    assert json.loads((folder / f"builtin-bfloat16-{days}.json").read_text())["run_count"] == 3


def test_chosen_suites_days_and_formats_are_written_and_said(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(database, tmp_path / "r", "--suite", "a/b", "--last", "1d", "--format", "md") == 0
    (written,) = (tmp_path / "r").iterdir()
    assert written.name.endswith("-2026-11-20-2026-11-20.md")
    assert capsys.readouterr().out == f"{written}: 1 run, {written.stat().st_size} bytes\n"


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--suite", "odd"], 1, "there is no suite 'odd' in this database; known: "),
        (["--last", "36h"], 2, "reports are of whole days"),
        (["--last", "soon"], 2, "--last: 'soon' is not a duration"),
    ],
)
def test_what_is_wrong_is_said_with_a_code(
    database: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    code: int,
    message: str,
) -> None:
    assert report(database, tmp_path / "r", *more) == code
    assert message in capsys.readouterr().err


def test_days_without_a_run_and_a_database_that_is_none_have_codes_of_their_own(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(database, tmp_path / "r", until="2026-01-31") == 3
    assert "no suite has a run from 2026-01-25 to 2026-01-31" in capsys.readouterr().err
    assert report(tmp_path / "none.db", tmp_path / "r") == 2


def test_runs_of_today_alone_are_said_and_taken_if_asked_for(
    store: sqlite3.Connection, database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_results(store, "NOW", measure(suite="new"), started_us=time.time_ns() // 1000)
    checkpoint(store)
    given = ["report", "--db", str(database), "--folder", str(tmp_path / "r"), "--suite", "new"]
    assert main(given) == 3
    assert (
        "A report ends with yesterday: --until today takes today's runs" in capsys.readouterr().err
    )
    assert main([*given, "--until", "today"]) == 0
    assert len(list((tmp_path / "r").iterdir())) == 1


def test_what_cannot_be_written_does_not_stop_the_others(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(database, tmp_path / "r") == 0
    taken = sorted((tmp_path / "r").iterdir())[0]
    taken.unlink()
    taken.mkdir()
    assert report(database, tmp_path / "r") == 1
    assert f"cannot write {taken}: it is a folder" in capsys.readouterr().err
    assert len(list((tmp_path / "r").iterdir())) == 3


def test_two_at_once_leave_whole_files_and_nothing_else(database: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "compileboard.app",
        "report",
        "--db",
        str(database),
        "--folder",
        str(tmp_path / "r"),
    ]
    both = [subprocess.Popen([*command, "--until", LAST_DAY], env=os.environ) for _ in range(2)]
    assert [process.wait(120) for process in both] == [0, 0]
    files = list((tmp_path / "r").iterdir())
    assert len(files) == 3 and all(file.read_text().endswith("</html>") for file in files)


def test_no_two_sets_have_one_name() -> None:
    first = ModelSet("nightly", "inference", "float32", "cpu", None, "inductor", False, 1)
    two = ModelSet("nightly", "inference", None, "cpu", None, "inductor", True, 8)
    three = ModelSet(
        "nightly-float32-static-1ranks", "inference", "float32", "cpu", None, "inductor", False, 1
    )
    names = name_sets([first, two, three])
    assert names[:2] == ["nightly-float32-static-1ranks", "nightly-none-dynamic-8ranks"]
    assert len(set(names)) == 3
