"""`export --format upstream`: upstream's files come out of the database as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from compileboard.app.cli.main import main
from tests.unit.formats.files import MADE, RECORDED
from tests.unit.logs.loading import query_value
from tests.unit.logs.test_result_import import run_import


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "t.db"
    run_import(path, RECORDED)
    return path


def export(database: Path, output: object, *more: str) -> int:
    run_id = query_value(database, "select id from runs limit 1")
    options = [
        "--db",
        str(database),
        "--run",
        run_id,
        "--format",
        "upstream",
        "--output",
        str(output),
    ]
    return main(["export", *options, *more])


def test_the_recorded_files_come_out_of_the_database_to_the_byte(
    database: Path, tmp_path: Path
) -> None:
    assert export(database, tmp_path / "out") == 0
    for path in RECORDED.glob("*.csv"):
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes(), path.name


def test_writing_again_replaces_the_files_and_leaves_no_others(
    database: Path, tmp_path: Path
) -> None:
    assert export(database, tmp_path) == 0
    for path in tmp_path.iterdir():
        path.write_text("what an earlier run left")
    (tmp_path / "notes.txt").write_text("a person's own")
    assert export(database, tmp_path) == 0
    for path in RECORDED.glob("*.csv"):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name
    models, experiments = ("Bert4", "Breaky", "WrongAnswer"), ("accuracy", "performance")
    stems = [
        f"inductor_{model}_float32_inference_cuda_{experiment}"
        for model in models
        for experiment in experiments
    ]
    begun = {path.name for path in tmp_path.iterdir() if path.name.startswith(tuple(stems))}
    assert {path.name for path in tmp_path.iterdir()} - begun == {"notes.txt"}, (
        "nor what was begun and not finished"
    )
    assert (tmp_path / "notes.txt").read_text() == "a person's own"
    assert not [
        path for path in tmp_path.iterdir() if path.read_bytes() == b"what an earlier run left"
    ]


def test_raw_timings_are_asked_for(tmp_path: Path) -> None:
    run_import(tmp_path / "t.db", *sorted(MADE.glob("bas*")))
    assert export(tmp_path / "t.db", tmp_path / "without") == 0
    assert export(tmp_path / "t.db", tmp_path / "with", "--raw-timings") == 0
    assert [path.suffix for path in (tmp_path / "without").glob("*.npy")] == []
    assert len(list((tmp_path / "with").glob("*-raw_timings-mlp-cpu.npy"))) == 1


@pytest.mark.parametrize(
    ("output", "more", "message"),
    [
        ("-", [], "stdout cannot take"),
        ("x", ["--no-source"], "without --no-source"),
        ("x", ["--table", "guards"], "csv and parquet alone"),
    ],
)
def test_what_a_folder_cannot_be_is_refused(
    database: Path, capsys: pytest.CaptureFixture[str], output: str, more: list[str], message: str
) -> None:
    assert export(database, output, *more) == 2
    assert message in capsys.readouterr().err


def test_a_place_that_is_no_folder_is_said(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert export(database, tmp_path / "file") == 2
    assert "cannot write" in capsys.readouterr().err


def test_a_run_of_expected_rows_alone_says_why_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "inductor_torchbench_training.csv"
    table.write_text("name,accuracy,graph_breaks\nmlp,pass,0\n")
    run_import(tmp_path / "t.db", table)
    assert export(tmp_path / "t.db", tmp_path / "out") == 2
    assert "expected, not measured" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_the_latest_run_is_one_that_can_be_named(database: Path, tmp_path: Path) -> None:
    options = [
        "--db",
        str(database),
        "--run",
        "latest",
        "--format",
        "upstream",
        "--output",
        str(tmp_path / "out"),
    ]
    assert main(["export", *options]) == 0 and list((tmp_path / "out").glob("*.csv"))
