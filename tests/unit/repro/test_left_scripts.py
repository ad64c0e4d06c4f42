"""What torch left of failing graphs is imported as repros of one run, read as text alone."""

from __future__ import annotations

import shutil
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.cli.import_command import import_paths
from compileboard.collectors.logs.log_loader import LoadOptions
from compileboard.collectors.logs.streams import NoSuchLog
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.repros import list_repros, load_repro
from compileboard.collectors.store.trash import delete_run
from tests.unit.app.repros.captured import LEFT_BY_TORCH, read_launcher

HOSTILE = (
    'import os\nos.makedirs("{folder}/ran")\nclass Repro:\n    def forward(self, x):\n        '
    "return (x,)\n"
)


def bring(database: Path, *paths: Path, **options: object) -> str:
    lines: list[str] = []
    import_paths(
        [str(path) for path in paths],
        str(database),
        LoadOptions(**options),
        print_line=lines.append,
    )  # type: ignore[arg-type]
    return "\n".join(lines)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "t.db"


@pytest.fixture
def left(tmp_path: Path) -> Path:
    with tarfile.open(LEFT_BY_TORCH) as archive:
        archive.extractall(tmp_path / "left", filter="data")
    return tmp_path / "left"


def test_a_folder_of_torch_becomes_repros_of_one_run(database: Path, left: Path) -> None:
    text = bring(database, left)
    assert "2 repros of torch's scripts" in text and "skipped" not in text
    with closing(open_writer(database)) as connection:
        lines = list_repros(connection)
        assert sorted(line.level for line in lines) == ["aot", "dynamo"]
        assert len({line.run_id for line in lines}) == 1
        repro = load_repro(connection, next(line.id for line in lines if line.level == "aot"))
    assert (repro.manifest.source, repro.manifest.versions["torch"]) == ("torch", "2.13.0+cpu")
    assert [entry.name for entry in repro.manifest.inputs] == [
        f"arg{number}_1" for number in range(6)
    ]
    assert repro.manifest.inputs[3].shape == ("s77", 8) and repro.manifest.symbols == {"s77": 5}
    assert "class Repro" in repro.program and "__main__" not in repro.program


def test_an_archive_is_the_same_run_and_brings_nothing_new(database: Path, left: Path) -> None:
    bring(database, left)
    assert "nothing new; 2 scripts" in bring(database, LEFT_BY_TORCH)
    with closing(open_writer(database)) as connection:
        assert len(list_repros(connection)) == 2


def test_a_script_alone_is_imported_under_a_name(database: Path, tmp_path: Path) -> None:
    (tmp_path / "repro.py").write_text(read_launcher("aot"))
    assert "1 repro of" in bring(database, tmp_path / "repro.py", name="nightly", suite="s")
    with closing(open_writer(database)) as connection:
        assert [line.run_name for line in list_repros(connection)] == ["nightly"]


def test_a_hostile_script_is_stored_and_never_run(database: Path, tmp_path: Path) -> None:
    (tmp_path / "repro.py").write_text(HOSTILE.format(folder=tmp_path))
    bring(database, tmp_path / "repro.py")
    assert not (tmp_path / "ran").exists()
    with closing(open_writer(database)) as connection:
        assert "os.makedirs" in load_repro(connection, list_repros(connection)[0].id).program


@pytest.mark.parametrize("body", [b"x = (", b"\xff\xfe", b"print(1)", b"a" * 100_000])
def test_a_script_that_is_none_says_so(database: Path, tmp_path: Path, body: bytes) -> None:
    (tmp_path / "repro.py").write_bytes(body)
    with pytest.raises(NoSuchLog, match="none of torch's scripts"):
        bring(database, tmp_path / "repro.py")
    with closing(open_writer(database)) as connection:
        assert connection.execute("select count(*) from runs").fetchone()[0] == 0


def test_a_repro_is_source_and_left_out_without(database: Path, left: Path) -> None:
    with pytest.raises(NoSuchLog, match="redact-source"):
        bring(database, left, redact_source=True)


def test_a_deleted_run_comes_back_only_again(database: Path, left: Path) -> None:
    bring(database, left)
    with closing(open_writer(database)) as connection:
        assert delete_run(connection, list_repros(connection)[0].run_id)
    assert "was deleted" in bring(database, left)
    shutil.rmtree(f"{database}-trash", ignore_errors=True)
    bring(database, left, again=True)
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("select count(*) from repros").fetchone()[0] == 2
