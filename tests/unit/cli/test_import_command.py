"""`import` of several paths of which one is bad, and of what unpacks to too much."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from compileboard.collectors.cli.import_command import import_into_outbox
from compileboard.collectors.cli.main import main
from compileboard.collectors.contract.run_config import RunConfig
from tests.unit.decode.recorded_logs import log_bytes
from tests.unit.logs.loading import query_value

NAMES = ("torch2.11-cuda-zoo_recompiles", "torch2.11-cuda-zoo_graph_breaks")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMPILEBOARD_HOME", str(tmp_path / "home"))
    for folder, name in zip("ab", NAMES, strict=True):
        Path(folder).mkdir()
        Path(folder, "trace.log").write_bytes(log_bytes(name))
    Path("prices.csv").write_text("fruit,price\napple,1\n")
    Path("bundle.db").write_bytes(b"SQLite format 3\0" + bytes(4096))
    Path("bomb.xz").write_bytes(
        lzma.compress(log_bytes(NAMES[0]) + (b" " * 9_999 + b"\n") * 2_400, preset=0)
    )


@pytest.mark.parametrize("bad", ["prices.csv", "bundle.db", "missing.log", "bomb.xz"])
def test_one_bad_path_is_named_and_the_others_are_imported(
    bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "--db", "t.db", "a", bad, "b"]) == 1
    assert [bad in line for line in capsys.readouterr().err.splitlines() if "failed: " in line] == [
        True
    ]
    assert main(["import", "--db", "expected.db", "a", "b"]) == 0
    count = (
        "select count(*) from compiles join runs on runs.id = run_id where runs.name <> 'bomb.xz'"
    )
    assert query_value(Path("t.db"), count) == query_value(Path("expected.db"), count) > 0


def test_one_bad_log_among_logs_of_one_folder_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a", "bad.log").write_bytes(b"no log of torch's")
    assert main(["import", "--db", "t.db", "a/trace.log", "a/bad.log"]) == 1
    assert "a file without a record, first in bad.log" in capsys.readouterr().err
    assert main(["import", "--db", "t.db", "a"]) == 0  # a folder may hold other files


def test_what_is_pushed_has_the_same_exit_code(tmp_path: Path) -> None:
    config = RunConfig(server="http://127.0.0.1:9")
    assert import_into_outbox(["a"], tmp_path / "outbox", config, strict=True)[0] == 0
    code, queued = import_into_outbox(["b", "missing.log"], tmp_path / "outbox", config)
    assert (code, len(queued)) == (1, 1)


def test_where_each_path_is_bad_nothing_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "--db", "t.db", "missing.log", "none"]) == 2
    said = capsys.readouterr().err
    assert "missing.log" in said and "none: " in said and "nothing was imported" in said
    assert not Path("t.db").exists()


def test_a_bomb_stops_at_a_default_that_a_person_can_raise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["import", "--db", "t.db", "bomb.xz"]) == 2
    assert "--limit-ratio N raises the limit" in capsys.readouterr().err
    assert main(["import", "--db", "t.db", "bomb.xz", "--limit-ratio", "100000"]) == 0
    assert (
        main(
            ["import", "--db", "t.db", "bomb.xz", "--limit-ratio", "100000", "--limit-bytes", "18M"]
        )
        == 2
    )
    assert "the limit is 18,874,368 bytes" in capsys.readouterr().err


def test_rows_are_limited_and_plain_bytes_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "--db", "t.db", "a", "--limit-bytes", "1"]) == 0
    assert main(["import", "--db", "t.db", "b", "--limit-rows", "10"]) == 1
    assert "--limit-rows N raises the limit" in capsys.readouterr().err
    assert query_value(Path("t.db"), "select count(*) from runs") == 2, "what was read stays"
    assert main(["import", "--db", "t.db", "b"]) == 0


def test_push_of_a_path_has_the_limits_of_import(capsys: pytest.CaptureFixture[str]) -> None:
    push = ["push", "bomb.xz", "--server", "http://127.0.0.1:9"]
    assert main([*push, "--limit-ratio", "99"]) == 2
    assert "more than 99 times" in capsys.readouterr().err
    assert main([*push, "--limit-ratio", "100000", "--limit-bytes", "18M"]) == 2
    assert "the limit is 18,874,368 bytes" in capsys.readouterr().err
