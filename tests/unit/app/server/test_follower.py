"""The process that looks for findings: it works alone, and ends however the server ends."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from compileboard.app.cli.main import main
from compileboard.app.incidents.queries import load_changes
from compileboard.app.incidents.update import update_incidents
from compileboard.app.server import follow as following
from compileboard.collectors.store.connection import DATABASE_VERSION
from tests.tools.observed import processes_of, wait_for
from tests.tools.serving import serving
from tests.unit.app.incidents.test_incidents_update import STEPPED, record

SOON = """
import sys
from compileboard.app.server import follow
from compileboard.app.cli.main import main
follow.RESTART_EVERY_S = 0
sys.exit(main(sys.argv[1:]))
"""


def _follower(database: Path) -> list[int]:
    return [
        pid
        for pid in processes_of(database.parent / "home")
        if b"\0follow\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_the_server_finds_what_changed_by_itself(store: sqlite3.Connection, database: Path) -> None:
    record(store, STEPPED)
    with serving(database):
        changes = wait_for(lambda: load_changes(store))
    assert {finding.metric for finding in changes if finding.subject == "model"} == {"speedup"}


def test_the_follower_ends_with_a_server_that_is_killed(database: Path) -> None:
    with serving(database) as server:
        wait_for(lambda: _follower(database))
        server.process.kill()
        wait_for(lambda: not _follower(database))


def test_a_follower_that_is_killed_is_started_again(database: Path) -> None:
    with serving(database, front=(sys.executable, "-c", SOON)) as server:
        (first,) = wait_for(lambda: _follower(database))
        os.kill(first, signal.SIGKILL)
        (second,) = wait_for(lambda: [pid for pid in _follower(database) if pid != first])
        server.process.terminate()
        assert server.process.wait(20) == 0
        wait_for(lambda: second not in _follower(database))
    assert server.output.count("it is started again") == 1


def test_follow_no_looks_for_nothing(database: Path) -> None:
    with serving(database, "--follow", "no"):
        assert _follower(database) == []


def test_what_goes_wrong_is_said_once_and_tried_again(
    store: sqlite3.Connection, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(store, STEPPED)
    store.execute("pragma user_version = 999")
    looks = iter(range(4))

    def wait(_seconds: float) -> bool:
        if next(looks) == 2:
            store.execute(f"pragma user_version = {DATABASE_VERSION}")
        return bool(load_changes(store))

    assert following.follow(str(database), "", {}, wait) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and "database version 999" in lines[0]


def test_a_database_that_cannot_be_used_ends_it_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["follow", "--db", str(tmp_path / "nope.db")]) == 2
    assert "nope.db" in capsys.readouterr().err


def test_it_stays_small_until_something_ends(store: sqlite3.Connection, database: Path) -> None:
    update_incidents(database)
    code = "import sys; from compileboard.app.server import follow\n"
    code += f"print(follow._scan({str(database)!r}), 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
