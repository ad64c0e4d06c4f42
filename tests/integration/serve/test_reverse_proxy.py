"""nginx in front, as the docs set it up: it names people, and nothing that a client sends makes it name another one."""

from __future__ import annotations

import base64
import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.dashboard.tokens import create_token
from compileboard.collectors.store.migrations import migrate
from tests.tools.observed import ROOT
from tests.tools.serving import serving
from tests.unit.app.seed import add_run

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
HOST = "board.example.com"
SECRET = "the text of proxy-secret"
CONFIG = re.findall(r"```nginx\n(.+?)```", (ROOT / "docs" / "access.md").read_text(encoding="utf-8"), re.DOTALL)[0]
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
        """Send a request as it is given, repeated and odd headers too; return the status and the answer."""
        if direct:
            connection = http.client.HTTPConnection(self.address.rpartition("/")[2], timeout=20)
        else:
            context = ssl.create_default_context(cafile=str(self.database.parent / "board.pem"))
            context.check_hostname = False  # the address is a number
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=20)
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


def _login(name: str) -> tuple[str, str]:
    return "Authorization", "Basic " + base64.b64encode(f"{name}:{name}'s password".encode()).decode()


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    if NGINX is None:
        if os.environ.get("COMPILEBOARD_REQUIRE_ALL") == "1":
            pytest.fail("there is no nginx, and COMPILEBOARD_REQUIRE_ALL=1 lets nothing be skipped", pytrace=False)
        pytest.skip("there is no nginx")
    folder = tmp_path_factory.mktemp("board")
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
        "IDENTITY_SCOPES": "ann=write,*=read",
        "IDENTITY_SECRET_FILE": "proxy-secret",
        "FOLLOW": "no",
    }
    environ = {f"COMPILEBOARD_{name}": value for name, value in settings.items()}
    with serving(database, **environ) as server, _nginx(folder, server.address) as port:
        yield Board(server.address, port, database, token)


class _nginx:
    """nginx in a folder of its own, between the docs' configuration and this machine."""

    def __init__(self, folder: Path, address: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "board.key"]
        subject = ["-subj", f"/CN={HOST}", "-out", "board.pem"]
        subprocess.run(["openssl", "req", "-x509", *key, *subject], cwd=folder, check=True, capture_output=True)
        users = "".join(f"{name}:{{PLAIN}}{name}'s password\n" for name in ("ann", "bob", "ann,bob"))
        (folder / "board.users").write_text(users)
        server = CONFIG.replace("443", f"127.0.0.1:{self.port}").replace("http://127.0.0.1:8000", address)
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        own = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
        text = f"daemon off; master_process off; pid {folder}/pid;\nevents {{}}\nhttp {{ access_log off;\n{own}"
        (folder / "nginx.conf").write_text(text + server.replace("/etc/nginx", str(folder)) + "}\n")
        self._command = [str(NGINX), "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]

    def __enter__(self) -> int:
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)
        deadline_s = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self.port
            except OSError:
                assert self._process.poll() is None and time.monotonic() < deadline_s, "nginx does not listen"
                time.sleep(0.05)

    def __exit__(self, *_error: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)


def test_people_get_the_scopes_of_their_names(board: Board) -> None:
    assert board.ask("/runs")[0] == 401
    assert board.ask("/runs", ("Authorization", "Basic YW5uOng="))[0] == 401
    status, page = board.ask("/runs", _login("ann"))
    assert (status, ">ann</span>" in page, "Log out" in page) == (200, True, False)
    assert board.ask(PIN, _login("bob"), ORIGIN, body="pinned=1")[0] == 403
    assert board.ask(PIN, _login("ann"), ORIGIN, body="title=by+Ann")[0] == 303
    changes = board.ask("/api/v1/audit", _login("bob"))[1]
    assert '"actor":"ann","address":"127.0.0.1"' in changes


@pytest.mark.parametrize(
    "headers",
    [
        [("X-Forwarded-User", "ann")],
        [("X_Forwarded_User", "ann")],
        [("x-forwarded-user", "ann"), ("X-Forwarded-User", "ann")],
        [("X-Forwarded-User", "ann"), ("X-CompileBoard-Proxy", SECRET)],
        [("Connection", "X-Forwarded-User, X-CompileBoard-Proxy")],
        [("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-Host", "localhost"), ("Forwarded", "for=127.0.0.1;by=ann")],
    ],
)
def test_through_the_proxy_nobody_is_another_one(board: Board, headers: list[tuple[str, str]]) -> None:
    assert board.ask("/runs", *headers)[0] == 401
    assert board.ask(PIN, _login("bob"), ORIGIN, *headers, body="title=forged")[0] == 403
    assert "forged" not in board.ask("/runs", _login("bob"))[1]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("X-CompileBoard-Proxy", "")],
        [("X-CompileBoard-Proxy", SECRET[:-1])],
        [("X-CompileBoard-Proxy", SECRET.upper())],
        [("X-CompileBoard-Proxy", "wrong"), ("X-CompileBoard-Proxy", SECRET)],
        [("X_CompileBoard_Proxy", SECRET)],
        [("X-Forwarded-For", "127.0.0.1")],
    ],
)
def test_beside_the_proxy_nobody_names_anyone(board: Board, headers: list[tuple[str, str]]) -> None:
    named = ("X-Forwarded-User", "ann")
    status, answer = board.ask("/runs", named, *headers, direct=True)
    assert (status, "not from the trusted proxy" in answer, "R1" in answer) == (403, True, False)
    assert board.ask("/runs", ("X_Forwarded_User", "ann"), ("X-CompileBoard-Proxy", SECRET), direct=True)[0] == 401


def test_a_name_is_one_name(board: Board) -> None:
    assert board.ask("/runs", _login("ann,bob"))[0] == 403
    proof = ("X-CompileBoard-Proxy", SECRET)
    for names in (["ann", "bob"], ["a" * 101], ["a\tb"], ["\xff"]):
        given = [("X-Forwarded-User", name) for name in names]
        assert board.ask("/runs", proof, *given, direct=True)[0] in (400, 403), names
    for no_name in ("", " ", "(null)"):  # of a proxy that let somebody in without a login
        assert board.ask("/runs", proof, ("X-Forwarded-User", no_name), direct=True)[0] == 401
    assert board.ask("/runs", proof, ("X-Forwarded-User", "ann"), direct=True)[0] == 200


def test_a_header_of_kilobytes_costs_an_answer(board: Board) -> None:
    for header in (("Authorization", f"Bearer cb_{'0' * 7000}"), ("Cookie", f"__Host-compileboard={'a' * 7000}")):
        assert board.ask("/runs", header)[0] == 401
        assert board.ask("/runs", (header[0], header[1] * 2))[0] == 400
        assert board.ask("/runs", (header[0], header[1] * 2), direct=True)[0] in (400, 431)


def test_another_site_changes_nothing_in_the_name_of_who_is_logged_in(board: Board) -> None:
    for sent in ([("Origin", "https://evil.example")], [("Sec-Fetch-Site", "cross-site")], [("Origin", "null")], []):
        assert board.ask(PIN, _login("ann"), *sent, body="title=crossed")[0] == 403
    rebound = board.ask("/runs", _login("ann"), ("Host", "evil.example"))[0]
    assert rebound == 400  # two of them; nginx itself chooses the server by the name
    assert "crossed" not in board.ask("/runs", _login("bob"))[1]


def test_a_token_needs_no_login_at_the_proxy(board: Board) -> None:
    bearer = ("Authorization", f"Bearer {board.token}")
    assert board.ask("/api/v1/runs", bearer)[0] == 200
    assert board.ask(PIN, bearer, body="title=by+box")[0] == 303
    assert board.ask("/api/v1/runs", ("Authorization", "Bearer cb_0123456789_0"))[0] == 401
    assert board.ask("/api/v1/runs", ("Authorization", "bearer " + board.token))[0] == 401  # nginx asks for its login
    status, page = board.ask("/login", bearer)
    assert (status, "not encrypted" in page) == (200, False)
    status, answer = board.ask("/login", bearer, ORIGIN, body=f"token={board.token}")
    assert status == 303 and "__Host-compileboard=" in answer
    assert "; Secure; HttpOnly; Path=/; SameSite=Lax" in answer
