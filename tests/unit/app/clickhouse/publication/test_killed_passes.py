from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from compileboard.app.clickhouse import passes, tables
from compileboard.app.clickhouse.passes import Publisher
from compileboard.collectors.store.dashboard import annotate
from compileboard.collectors.store.published_runs import get_numbers
from compileboard.collectors.store.trash import CannotRestore, delete_run, restore_run
from tests.tools.observed import ROOT
from tests.unit.app.clickhouse.databases import OneClient, open_database
from tests.unit.app.clickhouse.publication.boards import assert_same, change_run, write
from tests.unit.app.clickhouse.publication.interrupted import Interrupted, Killed

pytestmark = pytest.mark.clickhouse
NOW_US = 1_795_420_000_000_000


def _publish(client: Any) -> Publisher:
    return Publisher(OneClient(client, Path("in-process")))


def _ids(board: sqlite3.Connection) -> list[str]:
    return [row["id"] for row in board.execute("select id from runs order by id")]


@pytest.mark.nightly
def test_whatever_a_pass_was_killed_at_the_next_one_makes_good(
    client: Any, board: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted = Interrupted(client, monkeypatch)
    first, second, third = _ids(board)
    step = finished = 0
    while finished < 2:  # one with a deletion, one with a run that is restored
        publisher = _publish(interrupted)
        publisher.run_pass(board, NOW_US)
        if step % 5 == 0:
            publisher.rebuild_months(board, NOW_US + 2 * passes.QUIET_US)
        change_run(board, first)
        annotate(board, second, title=f"Step {step}")
        delete_run(board, third) if step % 2 else restore_run(board, third)
        step += 1
        interrupted.left = step
        with suppress(Killed):
            publisher.run_pass(board, NOW_US, everything=True)
            finished += 1
        interrupted.left = float("inf")
        change_run(board, second)
        _publish(client).run_pass(board, NOW_US)
        assert_same(client, board)
    assert step > 15


class Board(RuleBasedStateMachine):
    """People, recorders and publishers at one board; publishers may be killed at any step."""

    def __init__(self, interrupted: Interrupted, folder: Path, recorded: Path) -> None:
        super().__init__()
        self.path = folder / "machine" / "board.db"
        shutil.rmtree(self.path.parent, ignore_errors=True)
        shutil.copytree(recorded.parent, self.path.parent)
        self.interrupted = interrupted
        interrupted.left = float("inf")
        self.client = interrupted.client = open_database(folder)
        tables.create_tables(self.client)
        self.publisher = _publish(interrupted)
        self.now_us = NOW_US
        with write(self.path) as board:
            self.ids = _ids(board)
            get_numbers(board)  # the board has its name before the first backup

    runs = st.integers(0, 2)

    @rule(number=runs)
    def change(self, number: int) -> None:
        with write(self.path) as board:
            change_run(board, self.ids[number])

    @rule(number=runs, state=st.sampled_from(["running", "finished"]))
    def beat(self, number: int, state: str) -> None:
        with write(self.path) as board:
            board.execute(
                "update runs set state = ?, heartbeat_us = ? where id = ?",
                (state, self.now_us, self.ids[number]),
            )
            change_run(board, self.ids[number])

    @rule(number=runs, title=st.text("a\t'é", max_size=3))
    def annotate(self, number: int, title: str) -> None:
        with write(self.path) as board:
            annotate(board, self.ids[number], title=title)

    @rule(number=runs)
    def delete_or_restore(self, number: int) -> None:
        with write(self.path) as board, suppress(CannotRestore):  # a backup is older than its trash
            delete_run(board, self.ids[number]) or restore_run(board, self.ids[number])

    @rule()
    def back_up(self) -> None:
        with (
            write(self.path) as board,
            closing(sqlite3.connect(self.path.parent / "backup.db")) as backup,
        ):
            board.backup(backup)

    @rule()
    def restore_backup(self) -> None:
        backup = self.path.parent / "backup.db"
        if backup.exists():
            for side in ("-wal", "-shm"):
                Path(f"{self.path}{side}").unlink(missing_ok=True)
            shutil.copy(backup, self.path)
            self.publisher = _publish(self.interrupted)

    @rule(step=st.integers(1, 16), everything=st.booleans())
    def publish_and_die(self, step: int, everything: bool) -> None:
        self.interrupted.left = step
        with write(self.path) as board, suppress(Killed):
            self.publisher.run_pass(board, self.now_us, everything=everything)
        self.interrupted.left = float("inf")
        self.publisher = _publish(self.interrupted)

    @rule(minutes=st.integers(0, 20))
    def publish(self, minutes: int) -> None:
        self.now_us += minutes * 60_000_000
        with write(self.path) as board:
            self.publisher.run_pass(board, self.now_us)
            self.publisher.rebuild_months(board, self.now_us)

    @rule()
    def sweep(self) -> None:
        with write(self.path) as board:
            self.publisher.delete_unused_rollups(board, self.now_us)

    def teardown(self) -> None:
        with write(self.path) as board:
            self.publisher.run_pass(board, self.now_us, everything=True)
            assert_same(self.client, board)
        self.client.close()


@pytest.mark.nightly
def test_whatever_happens_the_engine_has_what_the_board_has(
    recorded: Path, chdb_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted = Interrupted(None, monkeypatch)
    run_state_machine_as_test(
        lambda: Board(interrupted, chdb_folder, recorded),
        settings=settings(
            max_examples=int(os.environ.get("EXAMPLES", "2")),
            stateful_step_count=10,
            deadline=None,
            derandomize=True,
        ),
    )


_PASS = """
import os, signal, sys
from pathlib import Path
from compileboard.app.clickhouse import publisher, tables
from compileboard.app.core.address import ClickHouseAddress
from compileboard.app.clickhouse.client import ClientPool, connect
from compileboard.app.clickhouse.passes import Publisher, publish_changes
from tests.unit.app.clickhouse.publication.boards import assert_same, write

path, folder, step = sys.argv[1:]
address = ClickHouseAddress(None, None, "default", "default", folder)
client = connect(address)
tables.create_tables(client)
if step:
    made = getattr(publisher, step)
    def make_and_die(*values):
        made(*values)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(publisher, step, make_and_die)
publish_changes(path, Publisher(ClientPool(address)), 1_795_420_000_000_000, everything=True)
with write(Path(path)) as board:
    assert_same(client, board)
print("same")
"""


def test_a_process_that_is_killed_leaves_nothing_half_published(
    board: sqlite3.Connection, tmp_path: Path
) -> None:
    path = board.execute("pragma database_list").fetchone()[2]
    for step in ("insert_rows", ""):
        command = [sys.executable, "-c", _PASS, path, str(tmp_path / "clickhouse"), step]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == (-signal.SIGKILL if step else 0), done.stderr
        change_run(board, _ids(board)[0])
    assert done.stdout.strip() == "same"
