"""`index`, and what `import` leaves to it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.cli import indexing
from compileboard.collectors.cli.main import main
from tests.unit.app.explored import LOGS

LOG = str(LOGS["zoo_graph_breaks"])


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILEBOARD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def count_texts() -> int:
    with closing(sqlite3.connect("compileboard.db")) as connection:
        return int(connection.execute("select count(*) from search_words").fetchone()[0])


def test_import_indexes_at_its_end_and_again_adds_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["import", LOG]) == 0
    before = count_texts()
    assert f"{before} texts (" in capsys.readouterr().err
    assert main(["import", LOG]) == main(["index"]) == 0
    assert "every run is in the search index" in capsys.readouterr().err
    assert count_texts() == before > 10


def test_index_does_what_import_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "--no-index", LOG]) == 0
    assert count_texts() == 0
    assert main(["index"]) == 0
    assert "indexed for search in" in capsys.readouterr().err
    assert count_texts() > 10


@pytest.mark.parametrize(
    ("words", "message"),
    [(["index"], "There is no database"), (["index", "nothing"], "there is no run 'nothing'")],
)
def test_index_says_what_is_not_there(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    if len(words) > 1:
        main(["import", LOG])
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_indexing_many_runs_keeps_the_write_ahead_log_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(indexing, "CHECKPOINT_EVERY", 1)
    for name in ("zoo_graph_breaks", "zoo_recompiles"):
        main(["import", "--no-index", str(LOGS[name])])
    index_one, sizes = indexing.index_one, list[int]()

    def measured(*arguments: Any, **options: Any) -> str | None:
        sizes.append(Path("compileboard.db-wal").stat().st_size)
        return index_one(*arguments, **options)

    monkeypatch.setattr(indexing, "index_one", measured)
    assert main(["index"]) == 0 and sizes == [0, 0]
