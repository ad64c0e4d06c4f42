"""Broken files and disks: plain words, never SQLite's own, never a traceback."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.app import create_app
from compileboard.app.core.settings import Settings
from compileboard.collectors.store.connection import (
    StoreError,
    StoreMissing,
    StoreRefused,
    explain,
    open_reader,
    open_writer,
)
from tests.tools.observed import ROOT
from tests.unit.app.recorded import RUN, record_run

PAGES = (
    "/",
    "/runs",
    f"/runs/{RUN}",
    "/graph_breaks",
    "/recompiles",
    "/activity",
    "/healthz",
    "/api/v1/runs",
)
SQLITES_WORDS = (
    "malformed",
    "disk I/O error",
    "unable to open",
    "readonly database",
    "Error binding",
    "UTF-8",
)


@pytest.fixture
def store_bytes(database: Path) -> bytes:
    with closing(open_writer(database)) as store:
        record_run(store)
        store.execute("pragma wal_checkpoint(truncate)")
    return database.read_bytes()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["header", "schema", "pages", "freelist", "cut", "zeros"])
@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_file_is_said_in_plain_words(
    database: Path, store_bytes: bytes, kind: str, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    chance, damaged = random.Random(seed), bytearray(store_bytes)
    low, high = {"header": (16, 100), "schema": (100, 4096), "freelist": (32, 40)}.get(
        kind, (4096, len(damaged))
    )
    for _ in range(3 if kind in ("header", "freelist") else 20 if kind == "schema" else 1500):
        damaged[chance.randrange(low, high)] ^= chance.randrange(1, 256)
    if kind == "cut":
        del damaged[chance.randrange(200, len(damaged)) :]
    if kind == "zeros":
        damaged[8192:81920] = bytes(73728)
    for beside in database.parent.glob(f"{database.name}-*"):
        beside.unlink()
    database.write_bytes(damaged)
    client = create_app(Settings(db=str(database))).test_client()
    answers = [client.get(page) for page in PAGES] + [
        client.post(f"/runs/{RUN}/annotate", data={"title": "x"})
    ]
    for answer in answers:
        assert answer.status_code in (200, 303, 404, 500, 503)
        assert not [
            words for words in SQLITES_WORDS if answer.status_code >= 500 and words in answer.text
        ]
    assert not [
        record
        for record in caplog.records
        if record.exc_info and isinstance(record.exc_info[1], sqlite3.Error | UnicodeError)
    ]


def test_a_value_that_cannot_be_stored_is_our_fault_and_not_quoted() -> None:
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(sqlite3.Error) as caught:
        connection.execute("select ?", (object(),))
    explained = explain(caught.value, "team.db")
    assert isinstance(explained, StoreRefused) and "fault of CompileBoard" in str(explained)
    assert "binding" not in str(explained)


def test_a_file_that_vanished_is_not_made_anew(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing, match="There is no database"):
        open_writer(tmp_path / "gone.db", create=False)
    client = create_app(Settings(db=str(tmp_path / "gone.db"))).test_client()
    sent = client.post("/api/v1/imports", data=b"x", content_type="application/octet-stream")
    assert (sent.status_code, "There is no database" in sent.json["error"]) == (503, True)
    assert list(tmp_path.iterdir()) == []


# A mount of its own, as a person has it: neither permissions nor patches stop root, or look like a
# full disk.
MOUNTED = """
import sys
from compileboard.collectors.store.connection import open_reader, open_writer
from compileboard.collectors.store.connection import StoreError
for open_store in (open_reader, open_writer):
    try:
        store = open_store(sys.argv[1])
        store.execute("select count(*) from runs").fetchone()
        print("well")
    except StoreError as error:
        print(error)
"""


def run_mounted(tmp_path: Path, mount: str) -> list[str]:
    """Open a database on a file system of its own, first to read and then to write; return what
    came of it.
    """
    script = f'set -e; {mount}; cd {ROOT}; {sys.executable} -c "$CODE" {tmp_path}/disk/team.db'
    done = subprocess.run(
        ["unshare", "-rm", "bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"CODE": MOUNTED},
    )
    if "unshare" in done.stderr or "mount" in done.stderr:
        if os.environ.get("COMPILEBOARD_REQUIRE_ALL"):
            raise AssertionError(done.stderr)
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()[:100]}")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_read_only_disk_can_be_read_and_says_why_it_cannot_be_written(
    tmp_path: Path, database: Path
) -> None:
    (tmp_path / "disk").mkdir()
    shutil.copy(database, tmp_path / "disk" / "team.db")
    disk = tmp_path / "disk"
    reading, writing = run_mounted(
        tmp_path, f"mount --bind {disk} {disk}; mount -o remount,bind,ro {disk}"
    )
    assert reading == "well"
    assert "cannot be written: the file, its folder or the disk is read-only" in writing


def test_a_full_disk_can_be_read_and_is_called_full(tmp_path: Path, database: Path) -> None:
    (tmp_path / "disk").mkdir()
    disk, size = tmp_path / "disk", -(-database.stat().st_size // 4096) * 4096 + 8192
    fill = f"dd if=/dev/zero of={disk}/fill bs=4k 2>/dev/null || true"
    reading, writing = run_mounted(
        tmp_path,
        f"mount -t tmpfs -o size={size} tmpfs {disk}; cp {database} {disk}/team.db; {fill}",
    )
    assert reading == "well"
    assert "is full. Free some space" in writing


def test_every_error_of_a_store_that_is_not_there_is_a_store_error(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "such.db", tmp_path):
        for open_store in (open_reader, open_writer):
            with pytest.raises(StoreError):
                open_store(path)
