"""ClickHouse on a read-only disk: pages across runs are those of a writable one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compileboard.app.clickhouse.client import find_writable
from compileboard.collectors.store.connection import StoreError
from tests.tools.observed import ROOT

PAGES = """
import sys
from compileboard.app import create_app
from compileboard.app.clickhouse.tables import prepare_store
from compileboard.app.core.address import parse_address
from compileboard.app.server.follow import follow
from compileboard.app.core.settings import Settings
address, passes = f"clickhouse://{sys.argv[1]}", iter((False, True))
if sys.argv[2] == "publish":
    prepare_store(parse_address(address))
    follow(address, "", {}, lambda _seconds: next(passes))
client = create_app(Settings(db=address, read_only="yes")).test_client()
for path in ("/api/v1/runs", "/api/v1/graph_breaks", "/api/v1/overview"):
    answer = client.get(path)
    print(answer.status_code, answer.text.strip().replace(sys.argv[1], "DISK"))
"""


@pytest.mark.nightly
@pytest.mark.clickhouse
def test_pages_across_runs_are_read_through_links(recorded: Path, tmp_path: Path) -> None:
    disk, temporary = tmp_path / "disk", tmp_path / "temporary"
    disk.mkdir(), temporary.mkdir()
    shutil.copy(recorded, disk / "board.db")
    pages = f'{sys.executable} -c "$PAGES" {disk}'
    script = f"""
        set -e; cd {ROOT}; {pages} publish > {tmp_path}/before; touch {disk}/clickhouse/status
        mount --bind {disk} {disk}; mount -o remount,bind,ro {disk}; {pages} read > {tmp_path}/after
        """
    environ = os.environ | {"PAGES": PAGES, "TMPDIR": str(temporary)}
    command = ["unshare", "-rm", "bash", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environ)
    if "unshare" in done.stderr or "mount" in done.stderr:
        if os.environ.get("COMPILEBOARD_REQUIRE_ALL"):
            raise AssertionError(done.stderr)
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()[:100]}")
    assert done.returncode == 0, done.stderr
    before, after = (tmp_path / "before").read_text(), (tmp_path / "after").read_text()
    assert (before, before.count("200 {")) == (after, 3)
    assert f"through links in {temporary}/compileboard-clickhouse-" in done.stderr
    assert list(temporary.iterdir()) == []


def test_a_place_for_links_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = os.statvfs(tmp_path)
    assert find_writable(str(tmp_path)) == str(tmp_path)
    fields = [*status[:8], status.f_flag | os.ST_RDONLY, *status[9:]]
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(fields))
    monkeypatch.setattr("compileboard.app.clickhouse.client._MEMORY", str(tmp_path / "none"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "neither"))
    with pytest.raises(StoreError, match="Set TMPDIR to a folder that can be written"):
        find_writable(str(tmp_path))
