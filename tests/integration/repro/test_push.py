"""A repro is sent to the real server, which stores it as text; what is sent again is known."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.cli.main import main
from compileboard.collectors.store.migrations import migrate
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
        rows = connection.execute("select kind, node_count, name, source from repros join runs on runs.id = run_id")
        assert sorted(rows) == [("compile", 25, "other.py", "import"), ("compile", 25, "repro.py", "import")]
    assert not (tmp_path / "ran").exists()
