"""The process that programs of tests are forks of: one for each worker of pytest."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

QUICK = Path(__file__).parent / "quick"
FORKED = QUICK / "forked.py"
FORKS = "QUICK_FORKS"
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
    if _real or sys.platform != "linux":
        return {}
    return {FORKS: _serve(environment["PYTHONPATH"])}


def _imports_torch(path: str) -> bool:
    file = Path(path)
    return file.is_file() and "import torch" in file.read_text(encoding="utf-8", errors="replace")


@cache
def _serve(searched: str) -> str:
    folder = tempfile.TemporaryDirectory(prefix="forks-")
    path = f"{folder.name}/socket"
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("COMPILEBOARD_", "TORCH", "PYTHON"))
    }
    plain = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "0", "PYTHONPATH": searched}
    server = subprocess.Popen(
        [sys.executable, str(FORKED), path],
        env={**environment, **plain},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
    )
    assert server.stdin and server.stdout and server.stdout.readline() == b"ready\n"
    server.stdout.close()

    def end() -> None:
        assert server.stdin
        server.stdin.close()
        server.wait()
        folder.cleanup()

    atexit.register(end)
    return path
