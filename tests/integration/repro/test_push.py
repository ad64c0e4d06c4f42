"""A repro is sent to the real server, which stores it as text; what is sent again is known."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.cli.main import main
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.store.repros import ReproResult, save_result
from tests.tools.make_db import DATA
from tests.tools.serving import serving


def test_repro_is_pushed_stored_as_text_and_known_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMPILEBOARD_HOME", str(tmp_path / "home"))
    text = (DATA / "repros" / "dynamic_pad.txt").read_text()
    (tmp_path / "repro.py").write_text("open('ran', 'w')\n" + text)
    shutil.copyfile(DATA / "repros" / "dynamic_pad.txt", tmp_path / "other.py")
    migrate(tmp_path / "team.db")
    with serving(tmp_path / "team.db") as server:
        for _ in range(2):
            assert main(["repro", "push", "repro.py", "--server", server.address]) == 0
            assert f"the repro is {server.address}/repros/" in capsys.readouterr().err
        assert main(["repro", "push", "other.py", "--server", f"{server.address}/"]) == 0
    with closing(sqlite3.connect("team.db")) as connection:
        rows = connection.execute(
            "select kind, node_count, name, source from repros join runs on runs.id = run_id"
        )
        assert sorted(rows) == [
            ("compile", 25, "other.py", "import"),
            ("compile", 25, "repro.py", "import"),
        ]
    assert not (tmp_path / "ran").exists()


def test_answers_about_a_repro_of_the_server_are_sent_to_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMPILEBOARD_HOME", str(tmp_path / "home"))
    passed = {"status": "passes", "torch_version": "2.13.0"}
    monkeypatch.setattr(
        "compileboard.collectors.cli.repro.run_repro_task", lambda *words, **options: passed
    )
    shutil.copyfile(DATA / "repros" / "dynamic_pad.txt", tmp_path / "repro.py")
    assert main(["repro", "import", "repro.py", "--db", "own.db"]) == 0
    repro_id = capsys.readouterr().err.split()[4]
    migrate(tmp_path / "team.db")
    with serving(tmp_path / "team.db") as server:
        option = ["--server", server.address]
        assert main(["push", "own.db", *option]) == 0
        capsys.readouterr()
        assert main(["repro", "show", repro_id, *option]) == 0
        assert f"repro run {repro_id} --server {server.address} --trust" in capsys.readouterr().out
        assert main(["repro", "run", repro_id, *option]) == 2
        assert "say --trust" in capsys.readouterr().err
        assert main(["repro", "run", repro_id, "--trust", "--json", *option]) == 1
        assert f"the answer is pushed to {server.address}/runs/" in capsys.readouterr().err
        with closing(open_writer("own.db")) as connection:
            smallest = ReproResult(
                "minify", "minified", 1.0, 5, 6, node_count=1, program="a program " * 900
            )
            save_result(connection, repro_id, smallest)
        for _ in range(2):
            assert main(["push", "own.db", *option]) == 0
            assert "already; 1 answer about its repros" in capsys.readouterr().err
        assert main(["repro", "show", "0123456789abcdef", *option]) == 2
        assert "has no repro '0123456789abcdef'" in capsys.readouterr().err
    with closing(sqlite3.connect("team.db")) as connection:
        rows = list(
            connection.execute(
                "select command, status, detail, node_count from repro_results order by 1"
            )
        )
        assert rows == [
            ("minify", "minified", "{}", 1),
            ("run", "passes", json.dumps(passed, separators=(",", ":")), None),
        ]
        assert list(connection.execute("select * from run_rejects")) == []
