"""The process that programs of tests are forks of: one for all workers of pytest."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.record.facts import gpu_facts

QUICK = Path(__file__).parent / "quick"
FORKED = QUICK / "forked.py"
FORKS = "QUICK_FORKS"
TEMPORARY = Path(tempfile.gettempdir())  # whatever a test makes of it
_held: list[int] = []  # open as long as this process lives
_real: list[pytest.Item] = []  # the test that runs, if its programs start themselves


def choose_start(item: pytest.Item) -> None:
    _real.clear()
    if item.get_closest_marker("real_start"):
        _real.append(item)


def fork_settings(command: list[Any], environment: dict[str, str]) -> dict[str, str]:
    """Return what makes the program of a command a fork, if it is a file that imports torch."""
    files = [str(word) for word in command if str(word).endswith(".py")][:1]
    return worker_settings(environment) if files and _imports_torch(files[0]) else {}


def worker_settings(environment: dict[str, str]) -> dict[str, str]:
    """Return what makes our own workers forks that import torch."""
    if _real or sys.platform != "linux" or gpu_facts(os.environ):  # CUDA does not survive a fork
        return {}
    return {FORKS: _serve(environment["PYTHONPATH"])}


def _imports_torch(path: str) -> bool:
    file = Path(path)
    return file.is_file() and "import torch" in file.read_text(encoding="utf-8", errors="replace")


@cache
def _serve(searched: str) -> str:
    """Return the socket of the process that all workers of a run share; the first starts it.

    It ends when no worker is left that has the other end of its standard input open.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}"
    digest = blake2b(searched.encode(), digest_size=4).hexdigest()
    folder = TEMPORARY / f"forks-{run[-12:]}-{digest}"
    path, held = folder / "socket", folder / "held"
    with FORKED.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _hold(held):
            return str(path)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        os.mkfifo(held)
        reading = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
        _hold(held)
        _start(searched, path, reading)
        os.close(reading)
    return str(path)


def _hold(held: Path) -> bool:
    """Open the other end, and return whether somebody reads there."""
    try:
        _held.append(os.open(held, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def _start(searched: str, path: Path, held: int) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("COMPILEBOARD_", "TORCH", "PYTHON"))
    }
    plain = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "0", "PYTHONPATH": searched}
    server = subprocess.Popen(
        [sys.executable, str(FORKED), str(path)],
        env={**environment, **plain},
        stdin=held,
        stdout=subprocess.PIPE,
        cwd="/",
        start_new_session=True,  # a test may end its own group
    )
    assert server.stdout and server.stdout.readline() == b"ready\n"
    server.stdout.close()
    server.returncode = 0  # it outlives this process: nobody waits for it
