"""The database or the spool is locked, full, replaced or gone: the program goes on, and what can be
kept is kept.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.store.migrations import migrate
from tests.tools.observed import PROGRAMS, Workplace, wait_for

SPOOLING = PROGRAMS / "spooling.py"


def begin(
    workplace: Workplace, count: int = 30, pause_s: float = 0.05, **rest: Any
) -> subprocess.Popen[str]:
    started = workplace.start(SPOOLING, count, pause_s, **rest)
    assert started.stdout is not None
    started.stdout.readline()
    return started


def finish(started: subprocess.Popen[str]) -> str:
    """Wait for the end; the program must not have noticed anything. Return our lines."""
    out, err = started.communicate(timeout=60)
    assert (out.split()[0], started.returncode) == ("done", 0)
    assert "Traceback" not in err
    return err


def test_a_database_locked_for_the_whole_run_is_written_by_the_next_command(
    workplace: Workplace,
) -> None:
    migrate(workplace.database)
    with closing(sqlite3.connect(workplace.database, isolation_level=None)) as holder:
        holder.execute("begin immediate")
        output = finish(begin(workplace))
        holder.execute("rollback")
    (line,) = (line for line in output.splitlines() if "locked by another program" in line)
    assert line.startswith(
        f"compileboard: not recorded yet; the next command records it from {workplace.home}"
    )
    assert "picked up" in workplace.collect("list", "--db", workplace.database).stderr
    assert workplace.only_run()["compile_count"] == 30
    assert (workplace.only_run()["state"], workplace.spools) == ("finished", [])


def test_a_signal_is_passed_on_while_the_database_is_locked(workplace: Workplace) -> None:
    migrate(workplace.database)
    with closing(sqlite3.connect(workplace.database, isolation_level=None)) as holder:
        holder.execute("begin immediate")
        started = begin(workplace, 0, 0.05)
        time.sleep(0.5)
        os.kill(started.pid, signal.SIGTERM)
        assert started.stdout is not None
        started.stdout.read()  # ends with the program, which has no end of its own
        holder.execute("rollback")
    started.communicate(timeout=30)
    assert started.returncode == -signal.SIGTERM


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["garbage over it", "another file in its place", "deleted"])
def test_a_database_that_is_spoilt_midway_costs_nothing_that_follows(
    workplace: Workplace, how: str
) -> None:
    started = begin(workplace)
    wait_for(lambda: workplace.rows("select 1 from compiles"))
    if how == "deleted":
        for path in workplace.folder.glob("test.db*"):
            path.unlink()
    elif how == "garbage over it":
        workplace.database.write_bytes(b"garbage " * 4096)
    else:
        (workplace.folder / "new").write_bytes(b"garbage " * 4096)
        (workplace.folder / "new").replace(workplace.database)
    output = finish(started)
    if how != "deleted":
        assert "the next command records it" in output
        for path in workplace.folder.glob("test.db*"):
            path.unlink()
        workplace.collect("list", "--db", workplace.database)
    assert workplace.only_run()["compile_count"] == 30
    assert workplace.spools == []


@pytest.fixture
def small_disk(workplace: Workplace) -> Iterator[Path]:
    """Mount a disk of 300 KB; needs the right to do so."""
    path = workplace.folder / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(path)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


def test_a_full_database_disk_is_said_and_the_spool_keeps_the_run(
    workplace: Workplace, small_disk: Path
) -> None:
    database = small_disk / "t.db"
    resize(small_disk, "1m")
    command = [
        sys.executable,
        "-m",
        "compileboard.collectors",
        "run",
        "--db",
        database,
        "--",
        sys.executable,
        SPOOLING,
        "3000",
    ]
    done = workplace.plain(*command)
    assert (done.returncode, done.stdout.split()[1]) == (0, "done")
    assert "is full" in done.stderr
    assert "the next command records it" in done.stderr
    (spool,) = workplace.spools
    resize(small_disk, "50m")
    workplace.collect("list", "--db", database)
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("select compile_count from run_totals").fetchone() == (3000,)
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    assert not spool.exists()


def test_a_read_only_disk_is_refused_before_the_program_starts(
    workplace: Workplace, small_disk: Path
) -> None:
    resize(small_disk, "5m")
    for name in ("there.db", "new.db"):
        if name == "there.db":
            migrate(small_disk / name)
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        done = workplace.collect(
            "run", "--db", small_disk / name, "--", sys.executable, "-c", "print('ran')"
        )
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count(f": {small_disk / name} cannot be") == 1
    assert workplace.spools == []


def test_a_full_spool_disk_is_a_counted_loss(workplace: Workplace, small_disk: Path) -> None:
    workplace.lossy = True
    workplace.environment["COMPILEBOARD_HOME"] = str(small_disk)
    done = workplace.run(SPOOLING, 3000)
    assert (done.returncode, done.stdout.split()[1]) == (0, "done")
    run = workplace.only_run()
    losses = workplace.losses()
    assert losses["spool: No space left on device"] > 100
    assert run["loss_count"] == sum(losses.values())
    assert run["compile_count"] > 20
    shown = workplace.collect("show", run["id"], "--db", workplace.database)
    assert f"{run['loss_count']} records were dropped" in shown.stdout


def test_a_deleted_spool_is_made_again_and_the_loss_is_counted(workplace: Workplace) -> None:
    workplace.lossy = True
    started = begin(workplace)
    wait_for(lambda: workplace.rows("select 1 from compiles"))
    shutil.rmtree(
        workplace.spools[0].rename(workplace.folder / "going")
    )  # at once, whatever is written meanwhile
    finish(started)
    workplace.collect("list", "--db", workplace.database)
    assert workplace.losses() == {"spool: its file was deleted": 1}
    assert 20 <= workplace.only_run()["compile_count"] <= 30
    assert workplace.only_run()["state"] == "finished"
    assert workplace.spools == []


LATE = """
import os, subprocess, sys, time
from pathlib import Path
if os.fork() == 0:
    os.setsid()
    while not Path(sys.argv[0]).with_name("ended").exists():
        time.sleep(0.01)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def test_a_child_that_begins_after_the_end_is_recorded_into_the_same_run(
    workplace: Workplace,
) -> None:
    done = workplace.run(
        workplace.write(LATE), SPOOLING, 5, stdout=subprocess.DEVNULL, capture_output=False
    )
    assert done.returncode == 0
    assert workplace.only_run()["compile_count"] == 0
    (workplace.folder / "ended").touch()
    wait_for(lambda: workplace.spools)
    wait_for(lambda: "picked up" in workplace.collect("list", "--db", workplace.database).stderr)
    wait_for(lambda: workplace.collect("list", "--db", workplace.database) and not workplace.spools)
    run = workplace.only_run()
    assert (run["compile_count"], run["state"], run["name"]) == (5, "finished", "program.py")


def test_a_child_that_outlives_the_program_goes_on_being_recorded(workplace: Workplace) -> None:
    started = workplace.start("sh", "-c", f"{sys.executable} {SPOOLING} 40 0.05 & sleep 0.8")
    _, err = started.communicate(timeout=30)
    assert started.returncode == 0
    assert "1 of the program's processes still run; they go on being recorded" in err
    wait_for(lambda: not workplace.spools)
    assert (workplace.only_run()["compile_count"], workplace.only_run()["state"]) == (
        40,
        "finished",
    )


def test_a_run_that_was_deleted_while_it_ran_stays_deleted(workplace: Workplace) -> None:
    from compileboard.collectors.store.connection import open_writer
    from compileboard.collectors.store.trash import delete_run

    started = begin(workplace)
    wait_for(lambda: workplace.rows("select 1 from compiles"))
    with closing(open_writer(workplace.database)) as connection:
        assert delete_run(connection, workplace.only_run()["id"])
    finish(started)
    assert workplace.rows("select * from runs") == []
    assert workplace.spools == []
