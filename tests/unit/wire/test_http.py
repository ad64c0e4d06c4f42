"""When a request is sent again, and what is said of one that may have arrived."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from compileboard.collectors.wire.http import Connection, ServerUnavailable


class Closing(socketserver.StreamRequestHandler):
    """Reads one request of each connection, answers where the server has an answer left, and hangs
    up.
    """

    server: Any

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        self.server.request_count += 1
        if self.server.answers:
            self.wfile.write(self.server.answers.pop(0))


@pytest.fixture
def server() -> Iterator[Any]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Closing) as server:
        server.request_count, server.answers = 0, []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


def test_what_was_kept_and_is_closed_meanwhile_is_opened_again(server: Any) -> None:
    server.answers += [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + digit for digit in (b"1", b"2")
    ]
    with closing(Connection(f"http://127.0.0.1:{server.server_address[1]}", {})) as connection:
        assert [connection.request("GET", "/").document for _ in range(2)] == [1, 2]
    assert server.request_count == 2


def test_a_request_that_may_have_arrived_is_not_sent_again(server: Any) -> None:
    connection = Connection(f"http://a:secret@127.0.0.1:{server.server_address[1]}", {})
    with pytest.raises(ServerUnavailable, match="broke off before it answered") as away:
        connection.request("POST", "/", b"")
    assert (away.value.may_have_arrived, server.request_count, "secret" in str(away.value)) == (
        True,
        1,
        False,
    )


def test_a_server_that_is_not_there_has_taken_nothing() -> None:
    with pytest.raises(
        ServerUnavailable, match=r"http://127\.0\.0\.1:1 does not answer: Connection refused"
    ) as away:
        Connection("http://127.0.0.1:1", {}).request("POST", "/", b"")
    assert not away.value.may_have_arrived
    with pytest.raises(ServerUnavailable, match="https_proxy holds no address"):
        Connection("https://example.com", {"https_proxy": "http://"}).request("GET", "/")
