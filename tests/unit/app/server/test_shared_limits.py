"""Failed logins and logins of servers with two workers each: counted once, whichever worker is
asked.
"""

from __future__ import annotations

import os
import signal
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from email.message import Message
from pathlib import Path

import pytest

from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.tokens import create_token, revoke_token
from tests.tools.observed import wait_for
from tests.tools.serving import Server, serving
from tests.unit.app.recorded import RUN, record_run

WORKERS = ("--workers", "2")
CLOSED = (*WORKERS, "--reading", "tokens")
SAME = {"Sec-Fetch-Site": "same-origin"}


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Answer with the redirect itself."""


def ask(
    url: str, method: str = "GET", data: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, Message, str]:
    request = urllib.request.Request(url, data, headers or {}, method=method)
    try:
        answer = urllib.request.build_opener(NoRedirect).open(request, timeout=20)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return answer.status, answer.headers, answer.read().decode(errors="replace")


def log_in(server: Server, secret: str) -> tuple[int, dict[str, str]]:
    """Return the status of a login, and the headers of a browser that is logged in."""
    form = urllib.parse.urlencode({"token": secret}).encode()
    status, headers, _ = ask(f"{server.address}/login", "POST", form, SAME)
    return status, {**SAME, "Cookie": headers.get("Set-Cookie", "").partition(";")[0]}


def list_workers(server: Server) -> list[int]:
    children = (
        Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    )
    is_same = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    return [int(pid) for pid, command in is_same.items() if b"\0follow\0" not in command]


def kill_worker(server: Server) -> None:
    """Kill one worker, and wait for the one in its place."""
    killed, *_ = before = list_workers(server)
    os.kill(killed, signal.SIGKILL)
    wait_for(
        lambda: len(list_workers(server)) == len(before) and killed not in list_workers(server)
    )


def make_token(database: Path, scope: str) -> str:
    with closing(open_writer(database)) as writer:
        return create_token(writer, scope, (scope,), created_by="me")


def test_failed_logins_are_counted_over_all_workers_and_servers(database: Path) -> None:
    secret = make_token(database, "read")
    with serving(database, *CLOSED) as first, serving(database, *CLOSED) as second:
        with ThreadPoolExecutor(8) as pool:
            statuses = list(
                pool.map(lambda n: log_in((first, second)[n % 2], "cb_x")[0], range(40))
            )
        assert Counter(statuses) == {401: 10, 429: 30}
        kill_worker(first)
        assert [log_in(server, secret)[0] for server in (first, second)] == [429, 429]
        with closing(open_writer(database)) as writer:
            writer.execute("update login_failures set failed_us = failed_us - 300000000")
        assert [log_in(server, secret)[0] for server in (first, second)] == [303, 303]


@pytest.mark.nightly
def test_people_log_in_where_nothing_is_written(database: Path) -> None:
    secret = make_token(database, "read")
    with closing(open_writer(database)) as writer:
        record_run(writer)
        writer.execute("pragma wal_checkpoint(truncate)")
    before = database.read_bytes()
    with serving(database, *CLOSED, "--read-only") as server:
        page = f"{server.address}/runs/{RUN}"
        assert ask(page, headers={"Accept": "text/html"})[1]["Location"].startswith("/login")
        status, browser = log_in(server, secret)
        assert status == 303
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(lambda _: ask(page, headers=browser)[0], range(16))) == {200}
            kill_worker(server)
            assert set(pool.map(lambda _: ask(page, headers=browser)[0], range(16))) == {200}
        assert ask(f"{page}/delete", "POST", b"", browser)[0] == 403
        assert ask(f"{server.address}/logout", "POST", b"", browser)[0] == 303
        assert ask(page, headers=browser)[0] == 401
        with ThreadPoolExecutor(8) as pool:
            assert Counter(pool.map(lambda _: log_in(server, "cb_x")[0], range(20))) == {
                401: 10,
                429: 10,
            }
    assert database.read_bytes() == before


@pytest.mark.nightly
def test_a_login_where_nothing_is_written_ends_with_its_token(database: Path) -> None:
    secret = make_token(database, "read")
    with serving(database, *CLOSED, "--read-only") as server:
        _, browser = log_in(server, secret)
        forged = {
            **browser,
            "Cookie": f"{browser['Cookie'][:-1]}{'A' if browser['Cookie'][-1] != 'A' else 'B'}",
        }
        statuses = [
            ask(f"{server.address}/runs", headers=headers)[0] for headers in (browser, forged)
        ]
        with closing(open_writer(database)) as writer:
            revoke_token(writer, "read")
        assert [*statuses, ask(f"{server.address}/runs", headers=browser)[0]] == [200, 401, 401]
