"""Backups of a database in use, a backup that is killed, and restoring one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.app.cli.main import main
from compileboard.collectors.contract.events import ProcessStarted
from compileboard.collectors.store import backup
from compileboard.collectors.store.backup import BackupError, restore_backup, write_backup
from compileboard.collectors.store.connection import StoreError, open_reader, open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.leases import SERVE, try_acquire_lease
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.store.trash import delete_run, restore_run
from compileboard.collectors.store.verification import StoreCheck, verify
from tests.tools.observed import wait_for
from tests.unit.app.recorded import RUN, record_run

KILLED = """
import os, signal, sys
from compileboard.collectors.store import backup
backup.PAGES_AT_ONCE = 20
kill = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
backup.write_backup(*sys.argv[1:], program_version="", problems=[], progress=kill)
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "team.db"
    migrate(path)
    with closing(open_writer(path)) as writer:
        record_run(writer)
    return path


@pytest.fixture
def folder(database: Path) -> Path:
    path = database.with_name("backup")
    write_backup(str(database), str(path), program_version="1", problems=[])
    return path


def list_problems(path: Path) -> list[str]:
    return [problem for check in verify(str(path), texts=True) for problem in check.problems]


def count_processes(path: Path) -> int:
    with closing(open_reader(path)) as reader:
        return int(reader.execute("select count(*) from processes").fetchone()[0])


@pytest.fixture
def recorded(database: Path) -> Iterator[list[str]]:
    """Record one process after the other beside the test; yield those that are committed."""
    names: list[str] = []
    ended = threading.Event()

    def record() -> None:
        with closing(open_writer(database)) as writer:
            while not ended.is_set():
                name = f"{len(names):032x}"
                Ingestor(writer).ingest(
                    "beside", [ProcessStarted(name, 0, 1, run_id="beside", pid=1)]
                )
                names.append(name)

    thread = threading.Thread(target=record)
    thread.start()
    yield names
    ended.set()
    thread.join()


def test_a_backup_is_of_one_moment_and_writers_go_on(
    database: Path, recorded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "PAGES_AT_ONCE", 20)
    counts: list[int] = []

    def wait_for_writer(step: str, _done: int, _total: int) -> None:
        if step == "pages":
            counts.append(len(recorded))
            wait_for(lambda: len(recorded) > counts[-1])  # one more is committed

    write_backup(
        str(database),
        str(database.with_name("b")),
        program_version="1",
        problems=[],
        progress=wait_for_writer,
    )
    assert len(counts) > 5 and counts[-1] > counts[0]
    assert list_problems(database.with_name("b")) == []
    assert count_processes(database.with_name("b") / "database.db") < counts[-1] + 1 + 1


def test_a_backup_and_its_verification_tell_what_is_under_way(
    database: Path, tmp_path: Path
) -> None:
    steps: list[tuple[str, int, int]] = []
    write_backup(
        str(database),
        str(tmp_path / "b"),
        program_version="1",
        problems=[],
        progress=lambda *step: steps.append(step),
    )
    assert list(dict.fromkeys(step for step, _done, _total in steps)) == [
        "pages",
        "check",
        "checksums",
        "to the disk",
    ]
    assert [(done, total) for step, done, total in steps if step == "checksums"][-1] == (
        (size := (tmp_path / "b" / "database.db").stat().st_size),
        size,
    )
    begun: list[str] = []
    done = [
        check.subject for check in verify(str(tmp_path / "b"), texts=True, progress=begun.append)
    ]
    assert begun == done


def test_each_check_is_printed_when_it_is_done(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    printed = []

    def check(*_arguments: object, **_options: object) -> Iterator[StoreCheck]:
        yield StoreCheck("references")
        printed.append(os.read(reading, 100))

    monkeypatch.setattr("compileboard.collectors.store.verification.verify", check)
    with os.fdopen(reading), os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert main(["verify", str(database)]) == 0
    assert printed == [b"references: ok\n"]


def test_a_killed_backup_leaves_no_backup_and_the_next_one_is_whole(database: Path) -> None:
    target = database.with_name("b")
    done = subprocess.run([sys.executable, "-c", KILLED, str(database), str(target)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert not target.exists()
    assert target.with_name("b.partial").exists()
    write_backup(str(database), str(target), program_version="1", problems=[])
    assert list_problems(target) == []
    assert not target.with_name("b.partial").exists()


def test_a_deleted_run_of_a_backup_can_be_restored_elsewhere(
    database: Path, tmp_path: Path
) -> None:
    with closing(open_writer(database)) as writer:
        assert delete_run(writer, RUN)
    write_backup(str(database), str(tmp_path / "b"), program_version="1", problems=[])
    (tmp_path / "elsewhere").mkdir()
    other = tmp_path / "elsewhere" / "other.db"
    restore_backup(str(tmp_path / "b"), str(other))
    assert list_problems(other) == []
    with closing(open_writer(other)) as writer:
        assert restore_run(writer, RUN)


def test_restoring_moves_aside_what_was_there(database: Path, folder: Path) -> None:
    with closing(open_writer(database)) as writer:
        delete_run(writer, RUN)
    restored = restore_backup(str(folder), str(database))
    assert restored.replaced_run_count == 0
    with (
        closing(open_reader(restored.replaced_path or "")) as old,
        closing(open_reader(database)) as new,
    ):
        assert old.execute("select count(*) from runs").fetchone()[0] == 0
        assert new.execute("select count(*) from runs").fetchone()[0] == 1


def test_a_served_or_open_database_is_not_replaced(database: Path, folder: Path) -> None:
    with closing(open_writer(database)) as writer:
        record_run(writer)
        with pytest.raises(BackupError, match="open in another program"):
            restore_backup(str(folder), str(database))
    lease = try_acquire_lease(database, SERVE, shared=True)
    assert lease is not None
    with lease, pytest.raises(BackupError, match="is served"):
        restore_backup(str(folder), str(database))
    assert list_problems(database) == []


@pytest.mark.parametrize("name", ["database.db", "manifest.json"])
def test_a_damaged_backup_replaces_nothing(database: Path, folder: Path, name: str) -> None:
    body = bytearray((folder / name).read_bytes())
    body[len(body) // 3] ^= 0xFF
    (folder / name).write_bytes(body)
    with pytest.raises(StoreError, match="damaged"):
        restore_backup(str(folder), str(database))
    assert count_processes(database) == 1
    assert main(["verify", str(folder)]) == (1 if name == "database.db" else 2)


def test_the_commands_say_what_they_did(
    database: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPILEBOARD_DB", str(database))
    target = str(database.with_name("b"))
    assert main(["backup", target]) == 0
    assert main(["backup", target]) == 2
    assert main(["restore", target]) == 0
    assert main(["verify"]) == 0
    output = capsys.readouterr()
    assert f"{target}: 1 run and 0 deleted runs, " in output.out
    assert "what it replaced, 1 run, is at " in output.out
    assert "is there already" in output.err
    assert main(["audit"]) == 0
    assert "database.restore" in capsys.readouterr().out


def test_a_damaged_database_is_neither_backed_up_nor_up_to_date(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(open_reader(database)) as reader:
        page = reader.execute(
            "select rootpage from sqlite_schema where name = 'compiles'"
        ).fetchone()[0]
        size = reader.execute("pragma page_size").fetchone()[0]
    with database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(bytes(size))
    for words in (["backup", str(tmp_path / "b")], ["migrate"]):
        assert main([*words, "--db", str(database)]) == 2
        assert f"{database} is damaged. `compileboard verify" in capsys.readouterr().err
    assert not list(tmp_path.glob("b*"))


def test_a_database_that_was_emptied_is_neither_backed_up_nor_whole(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.truncate(database, 0)
    for words in (
        ["backup", str(tmp_path / "b"), "--db", str(database)],
        ["verify", str(database)],
    ):
        assert main(words) == 2
        assert f"{database} is empty. Restore a backup" in capsys.readouterr().err


def test_a_backup_needs_no_writable_original(database: Path, tmp_path: Path) -> None:
    mode = os.stat(database).st_mode
    os.chmod(database, 0o400)
    write_backup(str(database), str(tmp_path / "b"), program_version="1", problems=[])
    os.chmod(database, mode)
    assert list_problems(tmp_path / "b") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_restores_belongs_to_the_user_of_the_server(database: Path, folder: Path) -> None:
    os.chown(database, 65534, 65534)
    database.chmod(0o600)
    restore_backup(str(folder), str(database))
    beside = [
        Path(f"{database}-locks"),
        Path(f"{database}-locks") / SERVE,
        Path(f"{database}-trash"),
    ]
    assert {(path.stat().st_uid, path.stat().st_mode & 0o077) for path in (database, *beside)} == {
        (65534, 0)
    }
