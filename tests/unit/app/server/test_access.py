"""Tokens, logins, scopes: what is forged, expired, revoked or out of scope gets nothing."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from compileboard.app import create_app
from compileboard.app.cli.main import main
from compileboard.app.core.access import IDLE_US, SESSION_US
from compileboard.app.core.login_records import (
    MAX_FAILURES,
    WINDOW_US,
    MemoryLoginStore,
    WrongTokenCounter,
)
from compileboard.app.core.settings import SettingError, Settings
from compileboard.app.imports import pages as imports
from compileboard.app.imports.queue import UploadRejected
from compileboard.collectors.store.runs import RunSender
from compileboard.collectors.store.tokens import (
    SECRET,
    ActionOrigin,
    create_token,
    hash_secret,
    record_action,
    revoke_token,
    save_login_failure,
)
from tests.unit.app.seed import add_run
from tests.unit.app.series_changes import keep, make_change

Serve = Callable[..., FlaskClient]
PIN = "/runs/R1/annotate"
SAME = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(autouse=True)
def run(store: sqlite3.Connection) -> None:
    add_run(store, "R1")


@pytest.fixture
def serve(database: Path, shared_app: Flask) -> Serve:
    def serve(**given: str | int) -> FlaskClient:
        values: dict[str, Any] = {
            "reading": "tokens",
            "host": "0.0.0.0",
            "allow_host": "localhost",
            **given,
        }
        settings = Settings(db=str(database), **values)
        app = create_app(settings) if settings.trusted_proxies else shared_app
        app.config["COMPILEBOARD"] = settings
        app.config["WRONG_TOKENS"] = WrongTokenCounter()
        return app.test_client()

    return serve


def _make(store: sqlite3.Connection, scope: str, name: str = "ann", **options: int) -> str:
    return create_token(store, name, (scope,), created_by="me", **options)


def _bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def _log_in(client: FlaskClient, secret: str, **fields: str) -> str:
    """Return the cookie of a login."""
    answer = client.post("/login", data={"token": secret, **fields}, headers=SAME)
    assert answer.status_code == 303, answer.text
    return str(answer.headers["Set-Cookie"])


def test_a_secret_is_stored_nowhere(store: sqlite3.Connection) -> None:
    secret = _make(store, "read")
    assert SECRET.fullmatch(secret)
    dump = "\n".join(store.iterdump())
    assert secret.rpartition("_")[2] not in dump
    assert hash_secret(secret).hex() in dump.lower()


@pytest.mark.parametrize(
    ("scope", "may_add_to_all"), [("ingest", False), ("write", True), ("admin", True)]
)
def test_an_upload_of_who_may_not_write_is_limited_to_what_it_sent(
    serve: Serve,
    store: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
    scope: str,
    may_add_to_all: bool,
) -> None:
    senders: list[RunSender] = []

    def refuse(*given: Any) -> None:
        senders.append(given[-1])
        raise UploadRejected(400, "enough")

    monkeypatch.setattr(imports, "accept_upload", refuse)
    assert serve().post("/api/v1/imports", headers=_bearer(_make(store, scope))).status_code == 400
    assert senders == [RunSender("token:ann", may_add_to_all)]


@pytest.mark.parametrize(
    ("scope", "read", "write"),
    [("ingest", 403, 403), ("read", 200, 403), ("write", 200, 303), ("admin", 200, 303)],
)
def test_a_scope_lets_do_what_it_says(
    serve: Serve, store: sqlite3.Connection, scope: str, read: int, write: int
) -> None:
    headers, client = _bearer(_make(store, scope)), serve()
    assert client.get("/runs", headers=headers).status_code == read
    assert client.get("/api/v1/runs", headers=headers).status_code == read
    answer = client.post(PIN, data={"pinned": "1"}, headers=headers)
    assert (answer.status_code, "needs the scope write" in answer.text) == (write, write == 403)


def _forge(secret: str) -> list[str]:
    token_id, _, rest = secret[3:].partition("_")
    other = "0" if rest[-1] != "0" else "1"
    wrong = [
        f"cb_{token_id}_{rest[:-1]}{other}",
        f"cb_{'0' * 10}_{rest}",
        secret[:-1],
        f"{secret}0",
        secret.upper(),
    ]
    return [
        *wrong,
        f"cb_{token_id}_",
        "cb_",
        f"cb_{token_id}' or 1=1 --_{rest}",
        f"{secret}\u00e9",
        f"{secret},{secret}",
        "cb_" + "0" * 6000,
    ]


def test_what_is_not_quite_a_token_gets_nothing(serve: Serve, store: sqlite3.Connection) -> None:
    secret = _make(store, "admin")
    for reading in ("tokens", "open"):  # a wrong token is not taken for anyone
        client = serve(reading=reading)
        for number, forged in enumerate(_forge(secret)):
            address = {"REMOTE_ADDR": f"192.0.2.{number}"}
            answer = client.get("/api/v1/runs", headers=_bearer(forged), environ_base=address)
            assert (answer.status_code, "R1" in answer.text) == (401, False), forged
        for other in ("Basic YWRtaW46", "Bearer", "", f"Token {secret}", f"Bearer\t{secret}"):
            assert client.get("/runs", headers={"Authorization": other}).status_code == 401
        assert client.get("/api/v1/runs", headers=_bearer(secret)).status_code == 200


def test_an_expired_and_a_revoked_token_are_refused_at_once(
    serve: Serve, store: sqlite3.Connection
) -> None:
    client, now_us = serve(), time.time_ns() // 1000
    old = _make(store, "admin", "old", expires_us=now_us - 1)
    assert "expired" in client.get("/api/v1/runs", headers=_bearer(old)).json["error"]
    live = _make(store, "admin", "live", expires_us=now_us + 60_000_000)
    assert client.get("/api/v1/runs", headers=_bearer(live)).status_code == 200
    assert revoke_token(store, "live") == live.split("_")[1]
    answer = client.get("/api/v1/runs", headers=_bearer(live))
    assert (answer.status_code, "revoked" in answer.json["error"]) == (401, True)


@pytest.mark.parametrize(
    "address", ["/runs?token={0}", "/api/v1/runs?access_token={0}", "/login?next=/{0}", "/{0}"]
)
def test_a_token_in_an_address_is_refused(
    serve: Serve, store: sqlite3.Connection, address: str
) -> None:
    answer = serve().get(address.format(_make(store, "admin")))
    assert (answer.status_code, "R1" in answer.text) == (400, False)


def test_without_a_token_closed_reading_shows_the_login_alone(serve: Serve) -> None:
    client = serve()
    answer = client.get("/runs?suite=a&q=b", headers={"Accept": "text/html,*/*"})
    assert (answer.status_code, answer.headers["Location"]) == (
        303,
        "/login?next=%2Fruns%3Fsuite%3Da%26q%3Db",
    )
    for address in (
        "/runs",
        "/api/v1/runs",
        "/none",
        "/incidents.atom",
        "/api/v1/openapi.json",
        "/activity",
    ):
        assert client.get(address).status_code == 401
    assert client.options("/runs").status_code == 401
    for address in ("/healthz", "/login", "/static/css/app.css"):
        with client.get(address) as answer:
            assert answer.status_code == 200


def test_a_login_is_a_cookie_that_no_script_and_no_other_site_has(
    serve: Serve, store: sqlite3.Connection
) -> None:
    client, secret = serve(), _make(store, "read")
    cookie = _log_in(client, secret, next="/runs?suite=a")
    value = cookie.partition("=")[2].partition(";")[0]
    parts = "Max-Age=604800; Secure; HttpOnly; Path=/; SameSite=Lax"
    assert re.fullmatch(
        rf"__Host-compileboard=\S{{43}}; {parts}", re.sub(r"Expires=[^;]*; ", "", cookie)
    ), cookie
    assert value not in secret and value not in "\n".join(store.iterdump())
    page = client.get("/runs", base_url="https://localhost").text
    assert "R1" in page and "Log out" in page and "ann" in page


def test_on_this_machine_the_cookie_is_of_its_port(serve: Serve, store: sqlite3.Connection) -> None:
    client = serve(host="127.0.0.1", allow_host="")
    cookie = _log_in(client, _make(store, "read"))
    assert cookie.startswith("compileboard-80=") and "Secure" not in cookie and "HttpOnly" in cookie
    assert client.get("/runs").status_code == 200


def test_a_login_leads_to_a_path_of_this_site(serve: Serve, store: sqlite3.Connection) -> None:
    client, secret = serve(), _make(store, "read")
    ways = (
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "/\tevil",
        "/logout",
        "/login?next=/x",
        "",
    )
    for way in ("/runs", *ways):
        answer = client.post("/login", data={"token": secret, "next": way}, headers=SAME)
        assert answer.headers["Location"] == ("/runs" if way == "/runs" else "/")


def test_a_login_ends_with_logout_token_time_and_idleness(
    serve: Serve, store: sqlite3.Connection
) -> None:
    client = serve(host="127.0.0.1", allow_host="")
    for number, end in enumerate(("logout", "revoke", "expire", "idle", "old")):
        secret = _make(store, "read", f"ann {number}")
        cookie = _log_in(client, secret).partition(";")[0]
        assert client.get("/runs").status_code == 200
        if end == "logout":
            assert client.post("/logout", headers=SAME).status_code == 303
        elif end == "revoke":
            revoke_token(store, f"ann {number}")
        elif end == "expire":
            store.execute("update tokens set expires_us = 1")
        else:
            passed_us = IDLE_US if end == "idle" else SESSION_US
            column = "last_used_us" if end == "idle" else "expires_us"
            store.execute(f"update sessions set {column} = {column} - {passed_us}")
        client.set_cookie("compileboard-80", cookie.partition("=")[2])  # a thief keeps it
        assert client.get("/runs").status_code == 401, end


def test_a_login_never_goes_on_with_the_cookie_that_was_there(
    serve: Serve, store: sqlite3.Connection
) -> None:
    client, secret = serve(host="127.0.0.1", allow_host=""), _make(store, "read")
    client.set_cookie("compileboard-80", "planted")
    first = _log_in(client, secret)
    second = _log_in(client, secret)
    assert "planted" not in first and first != second
    client.set_cookie("compileboard-80", first.partition("=")[2].partition(";")[0])
    assert client.get("/runs").status_code == 401
    assert store.execute("select count(*) from sessions").fetchone()[0] == 1


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (SAME, 303),
        ({"Origin": "http://localhost"}, 303),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({}, 403),  # a cookie is a browser's, and every browser of today says where a form is from
    ],
)
def test_another_site_changes_nothing_with_a_cookie(
    serve: Serve, store: sqlite3.Connection, headers: dict[str, str], status: int
) -> None:
    client = serve(host="127.0.0.1", allow_host="")
    _log_in(client, _make(store, "write"))
    assert client.post(PIN, data={"title": "new"}, headers=headers).status_code == status
    assert store.execute("select count(*) from run_annotations").fetchone()[0] == (status == 303)
    rebound = client.get("/runs", headers={"Host": "evil.example"})
    assert (rebound.status_code, "R1" in rebound.text) == (403, False)


def test_logins_from_another_site_or_without_https_are_refused(
    serve: Serve, store: sqlite3.Connection
) -> None:
    secret, client = _make(store, "read"), serve(allow_host="localhost,box.lan", trusted_proxies=1)
    cross = client.post("/login", data={"token": secret}, headers={"Origin": "http://evil.example"})
    assert (cross.status_code, "Set-Cookie" in cross.headers) == (403, False)
    plain = client.post("/login", data={"token": secret}, headers={"Host": "box.lan"})
    assert (plain.status_code, "https" in plain.text, "Set-Cookie" in plain.headers) == (
        403,
        True,
        False,
    )
    behind = client.post(
        "/login", data={"token": secret}, headers={"Host": "box.lan", "X-Forwarded-Proto": "https"}
    )
    assert (behind.status_code, "; Secure;" in behind.headers["Set-Cookie"]) == (303, True)


def test_failed_logins_are_few_for_an_address_and_for_all(
    serve: Serve, store: sqlite3.Connection
) -> None:
    client, secret = serve(), _make(store, "read")
    wrong = {"data": {"token": "cb_x"}, "environ_base": {"REMOTE_ADDR": "192.0.2.9"}}
    assert [client.post("/login", **wrong).status_code for _ in range(12)] == [401] * 10 + [429] * 2
    assert int(client.post("/login", **wrong).headers["Retry-After"]) in range(1, 302)
    assert client.post("/login", data={"token": secret}).status_code == 303  # another address
    now_us = time.time_ns() // 1000
    for number in range(190):
        save_login_failure(store, f"10.0.0.{number}", now_us=now_us, window_us=WINDOW_US)
    assert client.post("/login", data={"token": secret}).status_code == 429


def test_wrong_bearer_tokens_are_few_for_an_address(
    serve: Serve, store: sqlite3.Connection
) -> None:
    client, secret = serve(allow_host="localhost", trusted_proxies=1), _make(store, "read")
    ended = _make(store, "read", name="old")
    revoke_token(store, "old")

    def ask(token: str, address: str) -> int:
        headers = _bearer(token) | {"X-Forwarded-For": address}
        return client.get("/api/v1/runs", headers=headers).status_code

    for token in (ended, f"cb_{'0' * 10}_{'e' * 48}"):  # a box with an old token asks on and on
        assert [ask(token, "192.0.2.9") for _ in range(30)] == [401] * 30
    assert [ask(f"cb_{number:010}_{'f' * 48}", "192.0.2.9") for number in range(12)] == [
        401
    ] * 9 + [429] * 3
    answer = client.get("/runs", headers=_bearer(secret) | {"X-Forwarded-For": "192.0.2.9"})
    assert answer.status_code == 429 and int(answer.headers["Retry-After"]) in range(1, 302)
    assert (ask(secret, "192.0.2.10"), client.get("/login").status_code) == (200, 200)


def test_the_first_token_makes_its_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "new.db"
    for name in ("ann", "box-1"):
        assert main(["token", "create", name, "--scope", "read", "--db", str(database)]) == 0
        output = capsys.readouterr()
        assert SECRET.fullmatch(output.out.strip())
        assert ("made an empty database" in output.err) == (name == "ann")
    assert (
        main(["token", "create", "x", "--scope", "root", "--db", str(tmp_path / "other.db")]) == 2
    )
    assert (
        main(["token", "create", "x", "--scope", "read", "--db", str(tmp_path / "absent" / "x.db")])
        == 2
    )
    assert not (tmp_path / "other.db").exists() and not (tmp_path / "absent").exists()


@pytest.mark.parametrize("shift_us", [-WINDOW_US, 3_600_000_000])
def test_failed_logins_of_before_and_of_a_clock_that_was_ahead_block_nobody(
    serve: Serve, store: sqlite3.Connection, shift_us: int
) -> None:
    client, then_us = serve(), time.time_ns() // 1000 + shift_us
    for _ in range(MAX_FAILURES):
        save_login_failure(store, "127.0.0.1", now_us=then_us, window_us=WINDOW_US)
    assert client.post("/login", data={"token": "cb_x"}).status_code == 401
    assert store.execute("select count(*) from login_failures").fetchone()[0] == 1


@pytest.mark.parametrize("read_only", ["no", "yes"])
def test_attempts_at_the_same_time_get_no_more_than_others(
    database: Path, serve: Serve, read_only: str
) -> None:
    app = serve(read_only=read_only).application
    app.config["LOGIN_MEMORY"] = MemoryLoginStore()
    start = threading.Barrier(24)

    def attempt(_number: int) -> int:
        start.wait()
        return app.test_client().post("/login", data={"token": "cb_x"}).status_code

    with ThreadPoolExecutor(24) as pool:
        statuses = list(pool.map(attempt, range(24)))
    assert sorted(statuses) == [401] * 10 + [429] * 14


def test_a_box_cannot_log_in(serve: Serve, store: sqlite3.Connection) -> None:
    answer = serve().post("/login", data={"token": _make(store, "ingest")})
    assert (answer.status_code, "Set-Cookie" in answer.headers) == (403, False)


def test_the_last_use_is_saved_once_a_minute(serve: Serve, store: sqlite3.Connection) -> None:
    client, headers = serve(), _bearer(_make(store, "read"))
    before = store.execute("pragma data_version").fetchone()[0]
    for _ in range(5):
        client.get("/api/v1/runs", headers=headers)
    used_us, address = store.execute("select last_used_us, last_address from tokens").fetchone()
    assert (abs(used_us / 1e6 - time.time()) < 60, address) == (True, "127.0.0.1")
    assert store.execute("pragma data_version").fetchone()[0] == before + 1


@pytest.mark.parametrize(
    ("settings", "headers", "status"),
    [
        ({}, {}, 303),
        ({}, {"X-Forwarded-For": "192.0.2.1"}, 401),  # a proxy that nobody told the server of
        ({}, {"Via": "1.1 proxy"}, 401),
        ({"allow_host": "box.lan"}, {}, 401),
        ({"trusted_proxies": 1}, {}, 401),
        ({"host": "0.0.0.0", "allow_host": "localhost"}, {}, 401),
        ({"reading": "tokens"}, {}, 401),
    ],
)
def test_writing_without_a_token_is_for_this_machine_alone(
    serve: Serve, settings: dict[str, str], headers: dict[str, str], status: int
) -> None:
    client = serve(**{"host": "127.0.0.1", "allow_host": "", "reading": "open", **settings})
    assert client.post(PIN, data={"pinned": "1"}, headers=headers).status_code == status


def test_the_audit_log_names_the_token(serve: Serve, store: sqlite3.Connection) -> None:
    client, headers = serve(), _bearer(_make(store, "write"))
    client.post(PIN, data={"pinned": "1"}, headers=headers)
    _log_in(client, headers["Authorization"][7:])
    changes = client.get("/api/v1/audit", headers=headers).json["data"]
    assert [(change["action"], change["actor"]) for change in changes] == [
        ("login.start", "ann"),
        ("run.annotate", "ann"),
    ]


def test_commands_make_list_and_revoke(
    database: Path, store: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    db = ["--db", str(database)]
    assert main(["token", "create", "box 1", "--scope", "ingest", "--expires", "90d", *db]) == 0
    secret = capsys.readouterr().out.strip()
    assert SECRET.fullmatch(secret)
    assert main(["token", "create", "box 1", "--scope", "read", *db]) == 2
    assert main(["token", "create", "x", "--scope", "root", *db]) == 2
    assert main(["token", "create", "x", "--scope", "read", "--expires", "1w", *db]) == 2
    assert main(["token", "list", *db]) == 0
    out, err = capsys.readouterr()
    assert re.search(rf"{secret[3:13]} live ingest box 1 \(until \S+ .*, never used\)", out)
    assert (
        "has a token already" in err
        and "'root' is unknown" in err
        and "expected a number of days" in err
    )
    assert main(["token", "revoke", "box 1", *db]) == 0
    assert main(["token", "revoke", "box 1", *db]) == 2
    actions = [row[0] for row in store.execute("select action from audit order by id")]
    assert actions == ["token.create", "token.revoke"] and secret not in "\n".join(store.iterdump())


def test_a_comment_is_signed_by_the_login(serve: Serve, store: sqlite3.Connection) -> None:
    keep(store, make_change())
    client, address = serve(reading="open"), f"/api/v1/incidents/{'f' * 16}/comment"
    headers = _bearer(_make(store, "write", "Ann"))
    assert (
        client.post(address, json={"text": "hm", "author": "Bob"}, headers=headers).status_code
        == 400
    )
    comments = client.post(address, json={"text": "hm"}, headers=headers).json["data"]["comments"]
    assert [(comment["author"], comment["text"]) for comment in comments] == [("Ann", "hm")]
    page = client.get(f"/incidents/{'f' * 16}", headers=headers).text
    assert "As <b>Ann</b>" in page and 'name="author"' not in page
    reader = client.get(f"/incidents/{'f' * 16}").text
    assert 'name="action"' not in reader and "Log in" in reader


def test_tokens_are_seen_and_revoked_by_an_admin_alone(
    serve: Serve, store: sqlite3.Connection
) -> None:
    client, admin, writer = (
        serve(),
        _bearer(_make(store, "admin", "root")),
        _bearer(_make(store, "write", "w")),
    )
    token_id = writer["Authorization"][10:20]
    assert 'id="tokens"' in client.get("/activity", headers=admin).text
    assert 'id="tokens"' not in client.get("/activity", headers=writer).text
    assert client.get("/api/v1/tokens", headers=writer).status_code == 403
    assert client.post(f"/tokens/{token_id}/revoke", headers=writer).status_code == 403
    assert client.post(f"/tokens/{token_id}/revoke", headers=admin).status_code == 303
    assert client.get("/api/v1/runs", headers=writer).status_code == 401
    states = {
        row["name"]: row["state"]
        for row in client.get("/api/v1/tokens", headers=admin).json["data"]
    }
    assert states == {"root": "live", "w": "revoked"}
    assert client.post(f"/api/v1/tokens/{token_id}/revoke", headers=admin).status_code == 404


def test_activity_is_narrowed_to_a_person_an_action_and_a_run(
    serve: Serve, store: sqlite3.Connection
) -> None:
    client, headers = serve(reading="open"), _bearer(_make(store, "write", "Ann"))
    client.post(PIN, data={"pinned": "1"}, headers=headers)
    client.post("/runs/R1/delete", headers=headers)
    record_action(store, "run.restore", "R2", ActionOrigin("command", "bob@box"))
    for query, count in (
        ("actor=Ann", 2),
        ("actor=Ann&action=run.delete", 1),
        ("subject=R2", 1),
        ("actor=none", 0),
    ):
        assert len(client.get(f"/api/v1/audit?{query}").json["data"]) == count
        assert client.get(f"/activity?{query}").text.count('data-label="By"><a') == count
    assert 'data-label="By">Ann</td>' in client.get("/activity").text  # who deleted it


def test_no_address_is_open_by_mistake(
    serve: Serve, store: sqlite3.Connection, shared_app: Flask
) -> None:
    client, box = serve(), _bearer(_make(store, "ingest", "box"))
    open_rules, ingest_rules = set(), set()
    for rule in shared_app.url_map.iter_rules():
        for method in sorted(rule.methods or ()):
            address = re.sub(r"<[^>]*>", "1", rule.rule)
            anyone, sender = (
                client.open(address, method=method),
                client.open(address, method=method, headers=box),
            )
            if anyone.status_code != 401:
                open_rules.add(rule.rule)
            elif sender.status_code != 403 and rule.rule != "/login":
                ingest_rules.add(f"{method} {rule.rule}")
            anyone.close(), sender.close()
    assert open_rules == {"/healthz", "/readyz", "/login", "/logout", "/static/<path:filename>"}
    assert ingest_rules == {
        "POST /api/v1/imports",
        *(f"{method} /api/v1/imports/<import_id>" for method in ("GET", "HEAD")),
        *(f"{method} /api/v1/runs/<run_id>/streams/<stream_id>" for method in ("HEAD", "PATCH")),
        *(f"{method} /api/v1/runs/<run_id>/contents" for method in ("GET", "HEAD")),
        "POST /api/v1/texts/missing",
        "POST /api/v1/texts",
        "PUT /api/v1/texts/<digest>",
    }


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"trusted_proxies": 0}, "needs --trusted-proxies 1"),
        ({"host": "0.0.0.0"}, "anyone could send that header"),
        ({"identity_secret_file": "none"}, "No such file"),
        ({"identity_secret_file": "short"}, "at least 16 characters"),
        ({"identity_scopes": "ann"}, "'ann' is not NAME=SCOPE"),
        ({"identity_scopes": "ann=root"}, "'root' is unknown"),
    ],
)
def test_a_proxy_that_anybody_could_play_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short").write_text("0123456789\n")
    given = {"trusted_proxies": 1, "identity_header": "X-Forwarded-User", **settings}
    with pytest.raises(SettingError, match=problem):
        create_app(Settings(**given))


def test_beside_a_proxy_on_this_machine_its_programs_name_people(
    serve: Serve, store: sqlite3.Connection
) -> None:
    client = serve(
        host="127.0.0.1",
        trusted_proxies=1,
        identity_header="X-Forwarded-User",
        identity_scopes="*=none,ann=read",
    )
    named = {"X-Forwarded-User": "ann", "X-Forwarded-For": "192.0.2.7"}
    assert client.get("/runs", headers=named).status_code == 200
    assert client.get("/runs", headers=named | {"X-Forwarded-User": "eve"}).status_code == 403
    elsewhere = client.get("/runs", headers=named, environ_base={"REMOTE_ADDR": "192.0.2.8"})
    assert (elsewhere.status_code, "not from the trusted proxy" in elsewhere.text) == (403, True)


def test_an_ingest_token_is_told_nothing_of_another_senders_run(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    store.execute("insert into run_owners (run_id, owner) values ('R1', 'token:box-1')")
    tokens = [
        create_token(store, name, ("ingest",), created_by="me") for name in ("box-1", "box-2")
    ]
    tokens.append(create_token(store, "reader", ("read",), created_by="me"))
    statuses = [
        client.get(
            "/api/v1/runs/R1/contents", headers={"Authorization": f"Bearer {token}"}
        ).status_code
        for token in tokens
    ]
    assert statuses == [200, 403, 200]
