"""Serve a database with the real server, as a person would, and read what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue

from tests.tools.observed import SEARCHED

_ADDRESS = re.compile(r"http://\S+:\d+")


@dataclass
class Server:
    """A server that answers at `address`, its process and its output so far."""

    address: str
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    @property
    def output(self) -> str:
        return "".join(self.lines)


def server_environ(home: Path, **changes: str) -> dict[str, str]:
    """Make an environment without any of the person's own settings or spools."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("COMPILEBOARD_")
    }
    return inherited | {"PYTHONPATH": SEARCHED, "COMPILEBOARD_HOME": str(home)} | changes


FRONT = (sys.executable, "-m", "compileboard.app")


@contextmanager
def serving(
    database: Path, *options: str, front: tuple[str, ...] = FRONT, **settings: str
) -> Iterator[Server]:
    """Serve a database on a free port until the block ends; `settings` are environment variables.

    `front` starts the dashboard's command line.

    Raises: AssertionError with the server's own output if it ends before it serves.
    """
    command = [*front, "serve", "--db", str(database), "--port", "0", *options]
    environ = server_environ(database.parent / "home", **settings)
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=database.parent,
        env=environ,
    ) as process:
        server = Server("", process)
        first: Queue[str] = Queue()
        reading = threading.Thread(target=_read, args=(server, first), daemon=True)
        reading.start()
        try:
            server.address = _wait_for_address(first)
            assert server.address, f"the server ended before it served:\n{server.output}"
            yield server
        finally:
            process.send_signal(
                signal.SIGINT
            )  # as Ctrl+C: after SIGTERM it waits 2 s for browsers that stay connected
            process.wait(timeout=20)
            reading.join(timeout=5)


def _read(server: Server, first: Queue[str]) -> None:
    assert server.process.stdout is not None
    for line in server.process.stdout:
        server.lines.append(line)
        if match := _ADDRESS.search(line):
            first.put(match[0])
    first.put("")


def _wait_for_address(first: Queue[str]) -> str:
    try:
        return first.get(timeout=30)
    except Empty:
        return ""
