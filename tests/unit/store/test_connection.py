"""Every file that is no current CompileBoard database gets its own clear message; two starts at
once are safe.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.contract.events import ProcessStarted
from compileboard.collectors.store.codec import pack, unpack
from compileboard.collectors.store.connection import (
    APPLICATION_ID,
    DATABASE_VERSION,
    NotAStore,
    StoreBusy,
    StoreFull,
    StoreMissing,
    StoreNeedsMigration,
    StoreNotReadable,
    StoreTooNew,
    checkpoint,
    open_reader,
    open_writer,
    write_transaction,
)
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate

WRITER = """
import sys
import threading
from compileboard.collectors.contract.events import ProcessStarted
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection
path, run = sys.argv[1:]
connection = open_writer(path)
migrate_connection(connection)
for number in range(40):
    started = ProcessStarted(f"{run}-{number}", 0, 1, run_id=run, pid=1)
    Ingestor(connection, path).ingest(run, [started])
"""


def at_once(path: Path, count: int) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), f"R{n}"], stderr=subprocess.PIPE, text=True
        )
        for n in range(count)
    ]
    for process in started:
        assert process.communicate(timeout=60)[1] == ""
        assert process.returncode == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("attempt", range(5))
def test_two_processes_may_migrate_and_write_at_once(tmp_path: Path, attempt: int) -> None:
    at_once(tmp_path / "new.db", 2)
    with closing(open_reader(tmp_path / "new.db")) as reader:
        assert reader.execute("select sum(process_count) from run_totals").fetchone()[0] == 80


def test_four_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    at_once(tmp_path / "t.db", 4)
    with closing(open_reader(tmp_path / "t.db")) as reader:
        assert reader.execute("select count(*) from processes").fetchone()[0] == 160
        assert reader.execute("pragma integrity_check").fetchone()[0] == "ok"


def test_a_new_file_that_another_is_about_to_write_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute(f"pragma application_id = {APPLICATION_ID}")
        other.execute("begin immediate")
        with pytest.raises(StoreBusy):
            open_writer(path, busy_timeout_ms=50)
        release = threading.Timer(0.2, other.execute, ("commit",))
        release.start()
        with closing(open_writer(path)) as connection:
            assert connection.execute("pragma journal_mode").fetchone()[0] == "wal"
        release.join()


def test_a_commit_is_on_the_disk(tmp_path: Path) -> None:
    code = """if True:
    import sys
    from compileboard.collectors.store.connection import open_writer
    print(open_writer(sys.argv[1]).execute("pragma synchronous").fetchone()[0])
    """  # a process of its own: in ours nothing waits for the disk
    asked = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "t.db"], capture_output=True, text=True, check=True
    )
    assert int(asked.stdout) == 2  # full


def test_migrating_again_takes_no_step(tmp_path: Path) -> None:
    assert migrate(tmp_path / "t.db") == DATABASE_VERSION
    assert migrate(tmp_path / "t.db") == 0


def test_a_missing_database_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing, match="migrate --db"):
        open_reader(tmp_path / "none.db")


def test_a_newer_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    migrate(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma user_version = 99")
    before = path.read_bytes()
    for opener in (open_reader, open_writer):
        with pytest.raises(StoreTooNew, match=r"version 99.*Upgrade"):
            opener(path)
    assert path.read_bytes() == before


def test_an_older_database_asks_for_migration(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    migrate(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma user_version = 0")
    with pytest.raises(StoreNeedsMigration, match="compileboard migrate"):
        open_reader(path)


def test_a_text_file_and_another_programs_database_are_refused_unchanged(tmp_path: Path) -> None:
    text, other = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("not a database " * 100)
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("create table theirs (x)")
    for path in (text, other):
        before = path.read_bytes()
        for opener in (open_reader, open_writer):
            with pytest.raises(NotAStore, match=f"{path.name} is "):
                opener(path)
        assert path.read_bytes() == before


def test_a_folder_is_refused(tmp_path: Path) -> None:
    for opener in (open_reader, open_writer):
        with pytest.raises(NotAStore, match="is a folder; --db expects a file"):
            opener(tmp_path)


@pytest.mark.parametrize("name", ["/dev/null", "/dev/full", "pipe.db"])
def test_a_device_or_a_pipe_is_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe.db")
    for opener in (open_reader, open_writer):
        with pytest.raises(NotAStore, match="is a device or a pipe; --db expects a file"):
            opener(tmp_path / name)


def test_a_name_that_sqlite_keeps_no_file_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (":memory:", tmp_path / ":memory:"):
        with pytest.raises(NotAStore, match="which keeps nothing"):
            open_writer(name)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreNotReadable, match=r"cannot be opened.*folder exists"):
        open_writer(tmp_path / "no" / "t.db")


def test_a_locked_database_is_busy_and_nothing_of_the_batch_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    migrate(path)
    with (
        closing(open_writer(path)) as holder,
        closing(open_writer(path, busy_timeout_ms=50)) as writer,
    ):
        with write_transaction(holder), pytest.raises(StoreBusy, match="locked by another program"):
            Ingestor(writer, str(path)).ingest("R", [ProcessStarted("p", 0, 1, run_id="R", pid=1)])
        assert writer.execute("select count(*) from runs").fetchone()[0] == 0


def test_a_full_disk_is_said_and_what_was_recorded_stays(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    migrate(path)
    with closing(open_writer(path)) as connection:
        ingestor = Ingestor(connection, str(path))
        ingestor.ingest("R", [ProcessStarted("p", 0, 1, run_id="R", pid=1)])
        pages = connection.execute("pragma page_count").fetchone()[0]
        connection.execute(f"pragma max_page_count = {pages}")  # SQLite's own full disk
        many = [
            ProcessStarted(f"q{n}", 0, 1, run_id="R", pid=1, argv=["x" * 2000]) for n in range(200)
        ]
        with pytest.raises(StoreFull, match=r"is full.*Free some space"):
            ingestor.ingest("R", many)
        connection.execute("pragma max_page_count = 1000000")
        assert ingestor.ingest("R", many).new_count == 200


def test_a_reader_needs_no_write_permission(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    migrate(path)
    os.chmod(path, 0o444)
    with closing(open_reader(path)) as reader:
        assert reader.execute("select count(*) from runs").fetchone()[0] == 0
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.execute("delete from runs")


def test_a_busy_reader_does_not_hold_the_checkpoint_up(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    migrate(path)
    with closing(open_writer(path)) as writer, closing(open_reader(path)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from runs").fetchone()
        Ingestor(writer).ingest("R", [ProcessStarted("p", 0, 1, run_id="R", pid=1)])
        checkpoint(writer)
        assert writer.execute("pragma busy_timeout").fetchone()[0] == 5000
        reader.execute("rollback")


def test_a_text_packs_and_unpacks_and_damage_is_said() -> None:
    for primed in (True, False):
        for text, read in (
            ("a text ünïcode \x00", "a text ünïcode \x00"),
            ("half a pair: \udce9", "half a pair: ?"),
        ):
            assert unpack(pack(text, primed=primed)) == read
    with pytest.raises(ValueError, match="unknown compression"):
        unpack(b"\x09abc")
    for damaged in (pack("a text")[:-8], pack("a text")[:3] + b"\xff\xff\xff"):
        with pytest.raises(ValueError, match="damaged"):
            unpack(damaged)
