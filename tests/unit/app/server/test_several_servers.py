"""Two servers of two workers at one database, a stop mid-request, servers that only read."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import closing, suppress
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.leases import FOLLOW, SERVE, is_lease_held
from tests.tools.observed import ROOT, processes_of, wait_for
from tests.tools.serving import serving
from tests.unit.app.recorded import RUN, record_run

SLOW = """
import sys, time
from compileboard.app import cli
from compileboard.app.cli.main import main
from compileboard.app.server import health
def slow(connection, ask=health.get_health):
    print("asked", flush=True)
    time.sleep(2)
    return ask(connection)
health.get_health = slow
sys.argv[0] = "compileboard"
sys.exit(main(sys.argv[1:]))
"""
READING = """
import os, subprocess, sys, urllib.request
from tests.tools.serving import serving
from pathlib import Path
with serving(Path(sys.argv[1]), "--read-only", COMPILEBOARD_HOME=sys.argv[2]) as server:
    print(urllib.request.urlopen(server.address + "/runs").read().decode())
    print(urllib.request.urlopen(server.address + "/readyz").status)
"""


def get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=20) as answer:
        return str(answer.read().decode())


def list_followers(database: Path) -> list[int]:
    commands = {
        pid: Path(f"/proc/{pid}/cmdline").read_bytes()
        for pid in processes_of(database.parent / "home")
    }
    return [pid for pid, command in commands.items() if b"\0follow\0" in command]


def count_requests(address: str) -> float:
    families = text_string_to_metric_families(get(f"{address}/metrics"))
    (requests,) = (family for family in families if family.name == "compileboard_http_requests")
    return sum(sample.value for sample in requests.samples if sample.labels["route"] == "/healthz")


@pytest.mark.nightly
def test_two_servers_have_one_follower_and_each_counts_over_its_workers(database: Path) -> None:
    with (
        serving(database, "--workers", "2") as first,
        serving(database, "--workers", "2") as second,
    ):
        wait_for(lambda: len(list_followers(database)) == 2 and is_lease_held(database, FOLLOW))
        for _ in range(30):
            get(f"{first.address}/healthz")
        for _ in range(3):
            get(f"{second.address}/healthz")
        assert (count_requests(first.address), count_requests(second.address)) == (30, 3)
        first.process.terminate()
        assert first.process.wait(timeout=20) == 0
        wait_for(lambda: len(list_followers(database)) == 1)
        wait_for(lambda: get_status(f"{second.address}/readyz") == 200)  # the other one follows now
        assert is_lease_held(database, SERVE)
    wait_for(lambda: not is_lease_held(database, SERVE) and not is_lease_held(database, FOLLOW))


def get_status(address: str) -> int:
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.nightly
def test_a_stop_finishes_the_request_under_way_and_the_follower(database: Path) -> None:
    with serving(database, front=(sys.executable, "-c", SLOW)) as server:
        statuses: list[int] = []
        asking = threading.Thread(
            target=lambda: statuses.append(get_status(f"{server.address}/healthz"))
        )
        asking.start()
        wait_for(lambda: "asked" in server.output)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=20) == 0
        asking.join()
    assert statuses == [200]
    wait_for(lambda: not list_followers(database))


def ask_in_vain(address: str) -> None:
    with suppress(OSError, http.client.HTTPException):
        get(address)


@pytest.mark.nightly
def test_a_stop_waits_no_longer_than_its_limit(database: Path) -> None:
    slow = SLOW.replace("sleep(2)", "sleep(600)")
    with serving(database, front=(sys.executable, "-c", slow), COMPILEBOARD_STOP_S="1") as server:
        asking = threading.Thread(target=ask_in_vain, args=(f"{server.address}/healthz",))
        asking.start()
        wait_for(lambda: "asked" in server.output)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(timeout=100)
        asking.join()


def test_a_server_that_only_reads_changes_nothing(database: Path) -> None:
    with closing(open_writer(database)) as writer:
        record_run(writer)
        writer.execute("pragma wal_checkpoint(truncate)")
    before = database.read_bytes()
    with serving(database, "--read-only") as server:
        page = get(f"{server.address}/runs/{RUN}")
        request = urllib.request.Request(
            f"{server.address}/runs/{RUN}/delete", method="POST", data=b""
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        assert "only reads" in refused.value.read().decode()
        assert refused.value.code == 403
        assert get_status(f"{server.address}/readyz") == 200
        assert list_followers(database) == []
        assert "writing: never" in server.output
    assert "Delete" not in page and "Log in" not in page
    assert database.read_bytes() == before
    assert not Path(f"{database}-locks").exists()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_open", [False, True])
def test_a_read_only_disk_is_served(database: Path, tmp_path: Path, is_open: bool) -> None:
    """The second time with what a recorder that is still alive has in its write-ahead log."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with closing(open_writer(database)) as writer:
        record_run(writer)
        if not is_open:
            writer.execute("pragma wal_checkpoint(truncate)")
        for path in tmp_path.glob(f"{database.name}*"):
            if path.is_file() and (is_open or path == database):
                shutil.copy(path, disk)
    script = f'mount --bind {disk} {disk} && mount -o remount,bind,ro {disk} && cd {ROOT} && "$@"'
    command = [sys.executable, "-c", READING, str(disk / database.name), str(tmp_path / "home")]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    command = ["unshare", "-rm", "bash", "-c", script, "bash", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()[:100]}")
    assert done.returncode == 0, done.stderr
    assert RUN in done.stdout
    assert done.stdout.rstrip().endswith("200")
