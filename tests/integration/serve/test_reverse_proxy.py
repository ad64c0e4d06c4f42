"""nginx in front, as the docs set it up: it names people, and nothing that a client sends makes it
name another one.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator

import pytest

from tests.integration.serve.proxies import (
    ORIGIN,
    PIN,
    SECRET,
    Board,
    find_port,
    listening,
    make_certificate,
    read_config,
    serve_board,
)

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")


def _login(name: str) -> tuple[str, str]:
    return "Authorization", "Basic " + base64.b64encode(
        f"{name}:{name}'s password".encode()
    ).decode()


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    if NGINX is None:
        if os.environ.get("COMPILEBOARD_REQUIRE_ALL") == "1":
            pytest.fail(
                "there is no nginx, and COMPILEBOARD_REQUIRE_ALL=1 lets nothing be skipped",
                pytrace=False,
            )
        pytest.skip("there is no nginx")
    folder, port = tmp_path_factory.mktemp("board"), find_port()
    make_certificate(folder)
    users = "".join(f"{name}:{{PLAIN}}{name}'s password\n" for name in ("ann", "bob", "ann,bob"))
    (folder / "board.users").write_text(users)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    own = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    top = (
        f"daemon off; master_process off; pid {folder}/pid;\nevents {{}}\nhttp {{ access_log "
        f"off;\n{own}"
    )
    with serve_board(folder, port, "ann=write,*=read") as served:
        server = (
            read_config("nginx")
            .replace("443", f"127.0.0.1:{port}")
            .replace("http://127.0.0.1:8000", served.address)
        )
        (folder / "nginx.conf").write_text(top + server.replace("/etc/nginx", str(folder)) + "}\n")
        with listening(
            [NGINX, "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")], port
        ):
            yield served


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
        [
            ("X-Forwarded-For", "127.0.0.1"),
            ("X-Forwarded-Host", "localhost"),
            ("Forwarded", "for=127.0.0.1;by=ann"),
        ],
    ],
)
def test_through_the_proxy_nobody_is_another_one(
    board: Board, headers: list[tuple[str, str]]
) -> None:
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
    assert (
        board.ask(
            "/runs", ("X_Forwarded_User", "ann"), ("X-CompileBoard-Proxy", SECRET), direct=True
        )[0]
        == 401
    )


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
    for header in (
        ("Authorization", f"Bearer cb_{'0' * 7000}"),
        ("Cookie", f"__Host-compileboard={'a' * 7000}"),
    ):
        assert board.ask("/runs", header)[0] == 401
        assert board.ask("/runs", (header[0], header[1] * 2))[0] == 400
        assert board.ask("/runs", (header[0], header[1] * 2), direct=True)[0] in (400, 431)


def test_another_site_changes_nothing_in_the_name_of_who_is_logged_in(board: Board) -> None:
    for sent in (
        [("Origin", "https://evil.example")],
        [("Sec-Fetch-Site", "cross-site")],
        [("Origin", "null")],
        [],
    ):
        assert board.ask(PIN, _login("ann"), *sent, body="title=crossed")[0] == 403
    rebound = board.ask("/runs", _login("ann"), ("Host", "evil.example"))[0]
    assert rebound == 400  # two of them; nginx itself chooses the server by the name
    assert "crossed" not in board.ask("/runs", _login("bob"))[1]


def test_a_token_needs_no_login_at_the_proxy(board: Board) -> None:
    bearer = ("Authorization", f"Bearer {board.token}")
    assert board.ask("/api/v1/runs", bearer)[0] == 200
    assert board.ask(PIN, bearer, body="title=by+box")[0] == 303
    assert board.ask("/api/v1/runs", ("Authorization", "Bearer cb_0123456789_0"))[0] == 401
    assert (
        board.ask("/api/v1/runs", ("Authorization", "bearer " + board.token))[0] == 401
    )  # nginx asks for its login
    status, page = board.ask("/login", bearer)
    assert (status, "not encrypted" in page) == (200, False)
    status, answer = board.ask("/login", bearer, ORIGIN, body=f"token={board.token}")
    assert status == 303 and "__Host-compileboard=" in answer
    assert "; Secure; HttpOnly; Path=/; SameSite=Lax" in answer
