"""Headers, CSRF, the Host check, static files, and other people's text."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from compileboard.app import create_app
from compileboard.app.core.access import is_loopback
from compileboard.app.core.settings import Settings
from compileboard.app.server.security import CONTENT_SECURITY_POLICY, HEADERS
from compileboard.collectors.store.tokens import create_token
from tests.unit.app.seed import add_run

PIN = "/runs/R1/annotate"


@pytest.fixture(autouse=True)
def run(store: sqlite3.Connection) -> None:
    add_run(store, "R1")


def _client(database: Path, **settings: str) -> FlaskClient:
    return create_app(Settings(db=str(database), **settings)).test_client()


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/", 200),
        ("/runs", 200),
        ("/runs/R1", 200),
        ("/healthz", 200),
        ("/static/css/app.css", 200),
        ("/static/none.css", 404),
        ("/none", 404),
        ("/api/v1/none", 404),
        ("/runs?since=x", 400),
        (PIN, 405),
    ],
)
def test_every_answer_has_the_security_headers(
    client: FlaskClient, address: str, status: int
) -> None:
    with client.get(address) as answer:
        assert answer.status_code == status
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS


def test_redirects_and_refusals_have_the_headers_as_well(client: FlaskClient) -> None:
    for headers, status in (({}, 303), ({"Sec-Fetch-Site": "cross-site"}, 403)):
        answer = client.post(PIN, data={"pinned": "1"}, headers=headers)
        assert answer.status_code == status
        assert answer.headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY


def test_the_policy_allows_no_inline_script_and_nothing_from_elsewhere() -> None:
    rules = dict(rule.split(" ", 1) for rule in CONTENT_SECURITY_POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == "'self'"
    assert "http" not in CONTENT_SECURITY_POLICY
    assert "unsafe-eval" not in CONTENT_SECURITY_POLICY


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 303),  # not a browser
        ({"Sec-Fetch-Site": "same-origin"}, 303),
        ({"Sec-Fetch-Site": "none"}, 303),
        ({"Origin": "http://localhost"}, 303),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://evil.example"}, 303),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": ""}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost:81"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
@pytest.mark.parametrize("action", ["annotate", "delete"])
def test_a_change_is_taken_from_our_own_pages_alone(
    client: FlaskClient,
    store: sqlite3.Connection,
    headers: dict[str, str],
    status: int,
    action: str,
) -> None:
    assert (
        client.post(f"/runs/R1/{action}", data={"title": "new"}, headers=headers).status_code
        == status
    )
    left = store.execute("select count(*) from runs").fetchone()[0]
    titles = store.execute("select count(*) from run_annotations").fetchone()[0]
    assert (left, titles) == (
        (1, 0) if status == 403 else (1, 1) if action == "annotate" else (0, 0)
    )


@pytest.mark.parametrize("method", ["put", "patch", "delete"])
def test_other_methods_change_nothing(client: FlaskClient, method: str) -> None:
    answer = getattr(client, method)(PIN)
    assert answer.status_code == 405
    assert answer.headers["Allow"]
    assert f"{method.upper()} is not possible at {PIN}; it takes " in answer.text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8000", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("LOCALHOST", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost@evil.example", 403),
        ("[::1", 403),
        ("a b", 403),
    ],
)
def test_a_loopback_server_answers_to_this_machines_names_alone(
    client: FlaskClient, host: str, status: int
) -> None:
    answer = client.get("/runs", headers={"Host": host})
    assert answer.status_code in {status, 400} if status == 403 else answer.status_code == status
    assert "R1" not in answer.text or status == 200


def test_allowed_names_are_the_persons_own(database: Path) -> None:
    named = _client(database, allow_host="box.lan, [fe80::1]")
    assert named.get("/runs", headers={"Host": "Box.lan:80"}).status_code == 200
    assert named.get("/runs", headers={"Host": "[fe80::1]"}).status_code == 200
    assert named.get("/runs", headers={"Host": "other.lan"}).status_code == 403


def test_an_open_address_answers_to_the_given_names_alone(database: Path) -> None:
    named = _client(database, host="0.0.0.0", allow_host="box.lan")
    assert named.get("/runs", headers={"Host": "box.lan"}).status_code == 200
    assert named.get("/runs", headers={"Host": "any.example"}).status_code == 403
    assert [is_loopback(host) for host in ("::1", "[::1]", "127.8.8.8", "0.0.0.0", "box")] == [
        True,
        True,
        True,
    ] + [False] * 2


CHANGES = (
    PIN,
    "/runs/R1/delete",
    "/runs/R1/restore",
    "/incidents/F1",
    "/imports",
    "/api/v1/imports",
    "/api/v1/incidents/F1/comment",
    "/api/v1/deleted_runs/R1/restore",
    "/tokens/T1/revoke",
    "/api/v1/tokens/T1/revoke",
    "/views",
    "/api/v1/views",
    "/api/v1/views/1/rename",
    "/api/v1/views/1/delete",
)


@pytest.mark.parametrize("address", CHANGES)
def test_beyond_this_machine_a_change_needs_a_token(
    database: Path, store: sqlite3.Connection, address: str
) -> None:
    client = _client(database, host="0.0.0.0", allow_host="localhost")
    closed = client.post(address, data={"title": "new"})
    assert (closed.status_code, "needs a token" in closed.text) == (401, True)
    assert closed.headers["WWW-Authenticate"] == 'Bearer realm="CompileBoard"'
    assert store.execute("select count(*) from run_annotations").fetchone()[0] == 0
    secret = create_token(store, "ann", ("admin",), created_by="me")
    opened = client.post(address, data={}, headers={"Authorization": f"Bearer {secret}"})
    assert opened.status_code not in (401, 403)


def test_who_may_not_change_anything_sees_no_form(database: Path) -> None:
    client = _client(database, host="0.0.0.0", allow_host="localhost")
    for address in ("/runs", "/runs/R1", "/runs/R1/delete", "/imports"):
        assert 'method="post"' not in client.get(address).text
    assert "Log in with a token" in client.get("/imports").text


@pytest.mark.parametrize(
    "path",
    [
        "../app/cli.py",
        "..%2fapp/cli.py",
        "..%5capp%5ccli.py",
        "%2e%2e/app/cli.py",
        "css/../../app/cli.py",
        "/etc/passwd",
        "%00",
        ".",
        "css",
    ],
)
def test_static_serves_nothing_outside_its_folder(client: FlaskClient, path: str) -> None:
    with client.get(f"/static/{path}", follow_redirects=True) as answer:
        assert answer.status_code == 404
        assert "argparse" not in answer.text
        assert "root:" not in answer.text


@pytest.mark.parametrize(
    "back", ["//evil.example", "https://evil.example", "/\\evil.example", "", "/a\nb"]
)
def test_a_form_leads_nowhere_else(client: FlaskClient, back: str) -> None:
    answer = client.post(PIN, data={"pinned": "1", "back": back})
    assert answer.headers["Location"] == "/runs/R1"


def test_too_large_a_form_is_refused(client: FlaskClient) -> None:
    answer = client.post(PIN, data={"note": "x" * (2 << 20)})
    assert answer.status_code == 413
