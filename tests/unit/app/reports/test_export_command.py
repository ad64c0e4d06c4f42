"""`compileboard export`: what it writes, what it says, how it exits."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from compileboard.app.cli.main import main
from compileboard.app.reports import FORMATS
from compileboard.collectors.store.connection import checkpoint
from tests.unit.app.recorded import RUN, record_run
from tests.unit.app.seed import add_run


@pytest.fixture(autouse=True)
def run(store: sqlite3.Connection) -> None:
    record_run(store)
    checkpoint(store)


def _export(
    database: Path, output: Path | str, *more: str, run: str = RUN, format: str = "json"
) -> int:
    fixed = ("--db", str(database), "--run", run, "--format", format, "--output", str(output))
    return main(["export", *fixed, *more])


@pytest.mark.parametrize("format", FORMATS)
def test_export_writes_each_format(database: Path, tmp_path: Path, format: str) -> None:
    output = tmp_path / f"report.{format}"
    assert _export(database, output, run=RUN[:6].lower(), format=format) == 0
    assert output.stat().st_size > 1000
    assert output.stat().st_mode & 0o777 == 0o666 & ~_mask()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_export_goes_to_stdout_and_survives_a_closed_pipe(database: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "compileboard.app",
        "export",
        "--db",
        str(database),
        "--run",
        RUN,
        "--output",
        "-",
        "--format",
    ]
    whole = subprocess.run([*command, "json"], capture_output=True, check=True)
    assert json.loads(whole.stdout)["run"]["id"] == RUN
    with subprocess.Popen(
        [*command, "html"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as cut:
        assert cut.stdout is not None and cut.stderr is not None
        cut.stdout.read(10)
        cut.stdout.close()
        assert (cut.stderr.read(), cut.wait(30)) == (b"", 141)


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("missing/report.json", "No such file or directory; make its folder first"),
        (".", "it is a folder"),
        ("/dev/full", "No space left"),
    ],
)
def test_export_says_why_it_cannot_write(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str, sentence: str
) -> None:
    assert _export(database, tmp_path / output) == 2
    error = capsys.readouterr().err
    assert (
        error.startswith("compileboard: cannot write ")
        and sentence in error
        and error.count("\n") == 1
    )


def test_export_keeps_the_old_file_when_it_fails(
    database: Path, tmp_path: Path, store: sqlite3.Connection
) -> None:
    output = tmp_path / "report.json"
    output.write_text("old")
    store.execute("drop table cudagraph_skips")
    assert _export(database, output) == 2
    assert (output.read_text(), [path.name for path in tmp_path.glob(".report*")]) == ("old", [])


def test_export_wants_one_run(
    database: Path, tmp_path: Path, store: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    add_run(store, RUN[:-1] + "2")
    assert _export(database, tmp_path / "x", run=RUN[:5]) == 2
    assert "fits several runs" in capsys.readouterr().err
    assert _export(database, tmp_path / "x", run="NOPE") == 2
    assert _export(database, tmp_path / "x", run="") == 2
    assert "there is no run" in capsys.readouterr().err


def test_export_refuses_what_is_no_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.db"
    other.write_text("not a database at all, but long enough to be looked at" * 20)
    assert _export(other, tmp_path / "x") == 2
    assert _export(tmp_path / "missing.db", tmp_path / "x") == 2
    assert capsys.readouterr().err.count("compileboard: ") == 2


def test_export_leaves_source_out(database: Path, tmp_path: Path) -> None:
    assert (
        _export(
            database, tmp_path / "x.csv", "--table", "graph_breaks", "--no-source", format="csv"
        )
        == 0
    )
    assert "print('" not in (tmp_path / "x.csv").read_text()
    assert _export(database, tmp_path / "x", "--table", "recompiles") == 2
