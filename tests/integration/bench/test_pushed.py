"""`bench --server`: what it measures is pushed, and its files, its breaks and `--resume` are as
with a database.
"""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compileboard.collectors.contract.events import BenchMeasured, RunEnded
from tests.integration.bench.test_bench import PLANTED, QUICK
from tests.tools.observed import Workplace, wait_for
from tests.unit.push.push_server import push_server

pytestmark = pytest.mark.torch


def test_a_pushed_run_writes_its_files_and_is_gone_on_with(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path)
    words = [
        "bench",
        *QUICK,
        "--only",
        f"path:{PLANTED}",
        "-k",
        "Breaks|Hangs",
        "--output",
        "results.csv",
    ]
    with push_server() as server:
        command = [sys.executable, "-m", "collectors", *words, "--server", server.address]
        with subprocess.Popen(
            command,
            env=workplace.environ(**workplace.forks()),
            cwd=workplace.folder,
            stderr=subprocess.PIPE,
            text=True,
        ) as started:
            assert started.stderr is not None
            for line in started.stderr:
                if " Breaks " in line:  # the next one hangs
                    time.sleep(0.2)
                    os.kill(started.pid, signal.SIGINT)
                    break
            output = started.stderr.read()
        assert started.returncode == 130, output
        assert "--resume" in output
        done = workplace.collect(
            *words, "--server", server.address, "--timeout", "4", "--resume", "--explain"
        )
        assert done.returncode == 0, done.stderr
        (run_id,) = {run_id for run_id, _ in server.streams}
        assert f"compileboard: pushed to {server.address}/runs/{run_id}" in done.stderr.splitlines()
        wait_for(lambda: not workplace.outbox)
        events = server.read(run_id)[0]
        again = workplace.collect(*words, "--server", server.address, "--resume")
    assert [event.model for event in events if isinstance(event, BenchMeasured)] == [
        "Breaks",
        "Hangs",
    ]
    assert [event.state for event in events if isinstance(event, RunEnded)] == [
        "interrupted",
        "finished",
    ]
    with (workplace.folder / "results.csv").open() as file:
        assert [row["name"] for row in csv.DictReader(file)] == ["Breaks", "Hangs"]
    line = PLANTED.read_text().splitlines().index('        print("a graph break", y.shape)') + 1
    assert f"planted.py:{line}, 2 times in Breaks" in done.stdout
    assert list((workplace.home / "bench").glob("*")) == []
    assert (again.returncode, "no interrupted run" in again.stderr) == (2, True)
