"""The real server in a process of its own, and a client that times its answers."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.common import ROOT, clean_environment

STARTED_WITHIN_S = 30.0


@dataclass(frozen=True)
class Answer:
    """An answer's status, how long the whole of it took, and its size as sent."""

    status: int
    seconds: float
    size: int


@contextmanager
def serving(database: Path, **settings: str) -> Iterator[str]:
    """Run `python -m compileboard.app serve` over a database; yield its address. `settings` are
    variables.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "compileboard.app",
        "serve",
        "--db",
        str(database.absolute()),
        "--port",
        str(port),
    ]
    server = subprocess.Popen(
        command, cwd=ROOT, env=clean_environment(**settings), stdout=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_up(server, url)
        yield url
    finally:
        server.terminate()
        server.wait()


def _wait_until_up(server: subprocess.Popen[bytes], url: str) -> None:
    deadline_s = time.monotonic() + STARTED_WITHIN_S
    while time.monotonic() < deadline_s:
        if server.poll() is not None:
            raise SystemExit(f"the server ended with {server.returncode}; what it said is above")
        try:
            if ask(url, "/healthz").status == 200:
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"the server did not answer within {STARTED_WITHIN_S:.0f} s")


def ask(url: str, path: str) -> Answer:
    """Ask for a path on a connection of its own, as a browser would accept it, and read it to the
    end.
    """
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=60)
    begin = time.perf_counter()
    try:
        connection.request(
            "GET", path, headers={"Accept": "text/html,*/*", "Accept-Encoding": "gzip, deflate, br"}
        )
        answer = connection.getresponse()
        body = answer.read()
        return Answer(answer.status, time.perf_counter() - begin, len(body))
    finally:
        connection.close()
