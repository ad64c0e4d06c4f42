"""A dashboard behind a proxy that names people, both as docs/access.md sets them up."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.store.tokens import create_token
from tests.tools.observed import ROOT
from tests.tools.serving import serving
from tests.unit.app.seed import add_run

HOST = "board.example.com"
SECRET = "the text of proxy-secret"
FORM = "application/x-www-form-urlencoded"
ORIGIN = ("Origin", f"https://{HOST}")
PIN = "/runs/R1/annotate"


@dataclass(frozen=True)
class Board:
    """A dashboard at `address`, nginx before it at `port`, and a token that may write."""

    address: str
    port: int
    database: Path
    token: str

    def ask(
        self, path: str, *headers: tuple[str, str], body: str | None = None, direct: bool = False
    ) -> tuple[int, str]:
        """Send a request as it is given, repeated and odd headers too; return the status and the
        answer.
        """
        if direct:
            connection = http.client.HTTPConnection(self.address.rpartition("/")[2], timeout=20)
        else:
            context = ssl.create_default_context(cafile=str(self.database.parent / "board.pem"))
            context.check_hostname = False  # the address is a number
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, context=context, timeout=20
            )
        with closing(connection):
            connection.putrequest("GET" if body is None else "POST", path, skip_host=True)
            connection.putheader("Host", HOST)
            for name, value in headers:
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Type", FORM)
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body.encode() if body is not None else None)
            answer = connection.getresponse()
            return answer.status, "\n".join((str(answer.headers), answer.read().decode()))


def read_config(language: str) -> str:
    """Return the docs' configuration of a proxy."""
    text = (ROOT / "docs" / "access.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.+?)```", text, re.DOTALL)[0]


def find_port() -> int:
    """Return a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def make_certificate(folder: Path) -> None:
    """Write board.pem and board.key."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "board.key"]
    subject = ["-subj", f"/CN={HOST}", "-out", "board.pem"]
    subprocess.run(
        ["openssl", "req", "-x509", *key, *subject], cwd=folder, check=True, capture_output=True
    )


@contextmanager
def listening(
    command: list[str], port: int, environ: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run a program while a block runs, from when it listens."""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ
    ) as process:
        deadline_s = time.monotonic() + 30
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    assert process.poll() is None and time.monotonic() < deadline_s, (
                        f"{command[0]} does not listen"
                    )
                    time.sleep(0.05)
            yield
        finally:
            process.terminate()


@contextmanager
def serve_board(folder: Path, port: int, scopes: str) -> Iterator[Board]:
    """Serve a database with one run to a proxy at a port."""
    database = folder / "board.db"
    migrate(database)
    with closing(open_writer(database)) as writer:
        add_run(writer, "R1")
        token = create_token(writer, "box-1", ("write",), created_by="me")
    (folder / "proxy-secret").write_text(f"{SECRET}\n")
    settings = {
        "READING": "tokens",
        "TRUSTED_PROXIES": "1",
        "ALLOW_HOST": HOST,
        "IDENTITY_HEADER": "X-Forwarded-User",
        "IDENTITY_SCOPES": scopes,
        "IDENTITY_SECRET_FILE": "proxy-secret",
        "FOLLOW": "no",
    }
    environ = {f"COMPILEBOARD_{name}": value for name, value in settings.items()}
    with serving(database, **environ) as server:
        yield Board(server.address, port, database, token)
