"""Pages of sealed runs where their cache cannot be written: a read-only disk, a full one, something
in its place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.app.clickhouse import run_files
from compileboard.app.clickhouse.run_files import RunFiles
from compileboard.collectors.store.connection import StoreError, open_reader
from compileboard.collectors.store.sealed_files import list_sealed_runs
from tests.tools.observed import ROOT
from tests.unit.app.benched import RUNS

# A mount of its own, as a person has it: neither permissions nor patches stop root, or look like a
# full disk.
MOUNTED = """
import sys
from compileboard.app import create_app
from compileboard.app.core.settings import Settings
address = f"clickhouse://127.0.0.1:1/board?folder={sys.argv[1]}"
client = create_app(Settings(db=address, read_only="yes")).test_client()
for run_id in sys.argv[2:] * 2:
    print(client.get(f"/runs/{run_id}").status_code)
"""


@pytest.fixture
def board(sealed: Path, tmp_path: Path) -> Path:
    disk = Path(shutil.copytree(sealed.parent, tmp_path / "disk"))
    shutil.rmtree(disk / "cache", ignore_errors=True)
    (tmp_path / "temporary").mkdir()
    return disk / "board.db"


def read_pages(board: Path, mount: str) -> subprocess.CompletedProcess[str]:
    """Read pages of two runs twice on a file system of its own."""
    disk = board.parent
    script = f'set -e; {mount}; cd {ROOT}; {sys.executable} -c "$CODE" {disk} {RUNS[0]} {RUNS[1]}'
    environ = os.environ | {"CODE": MOUNTED, "TMPDIR": str(disk.parent / "temporary")}
    command = ["unshare", "-rm", "bash", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environ)
    if "unshare" in done.stderr or "mount" in done.stderr:
        if os.environ.get("COMPILEBOARD_REQUIRE_ALL"):
            raise AssertionError(done.stderr)
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()[:100]}")
    return done


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["read-only", "full"])
def test_a_temporary_folder_stands_in_for_the_cache(board: Path, kind: str) -> None:
    disk = board.parent
    mount = f"mount --bind {disk} {disk}; mount -o remount,bind,ro {disk}"
    if kind == "full":
        original = shutil.copytree(disk, disk.parent / "kept")
        size = sum(path.stat().st_size + 8192 for path in original.rglob("*"))
        fill = f"dd if=/dev/zero of={disk}/fill bs=4k 2>/dev/null || true"
        mount = f"mount -t tmpfs -o size={size} tmpfs {disk}; cp -r {original}/. {disk}; {fill}"
    done = read_pages(board, mount)
    assert done.stdout.split() == ["200"] * 4, done.stderr
    (warning,) = done.stderr.splitlines()
    assert (
        f"Until then sealed runs are unpacked in {disk.parent / 'temporary'}/compileboard-"
        in warning
    )
    (folder,) = (disk.parent / "temporary").glob("compileboard-*")
    assert len(list(folder.iterdir())) == 2 and folder.stat().st_mode & 0o077 == 0


def test_another_users_folder_is_not_used(
    board: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (board.parent / "cache").write_text("in the way")
    with closing(open_reader(board)) as reader:
        run = list_sealed_runs(reader)[0]
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    cache = str(board.parent / "cache")
    with pytest.raises(StoreError, match="cache cannot be read or written"):
        RunFiles(str(board), cache, temporary=[str(tmp_path / "open")]).open(run)
    monkeypatch.setattr(run_files, "_reported", set())
    for _ in range(2):
        files = RunFiles(
            str(board), cache, temporary=[str(tmp_path / "open"), str(tmp_path / "own")]
        )
        with closing(files.open(run)) as connection:
            assert connection.execute("select count(*) from main.runs").fetchone()[0] == 1
    assert capsys.readouterr().err.count("sealed runs are unpacked in") == 1


def test_a_full_disk_loses_older_files_of_the_cache_first(
    board: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_reader(board)) as reader:
        first, second = list_sealed_runs(reader)[:2]
    files = RunFiles(str(board), str(board.parent / "cache"), temporary=[])
    files.open(first).close()
    free_bytes = shutil.disk_usage(board.parent).free
    spare_bytes = free_bytes - second.file.unpacked_bytes + 1000
    monkeypatch.setattr(
        run_files.shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(0, 0, free_bytes)
    )
    monkeypatch.setattr(run_files, "SPARE_BYTES", spare_bytes)
    files.open(second).close()
    (cached,) = (board.parent / "cache").iterdir()
    assert second.file.digest.hex() in cached.name
