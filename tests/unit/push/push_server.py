"""A small server that keeps streams and texts by the wire's protocol, and fails as it is told: for
tests of boxes.
"""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from compileboard.app.push.receive import unpack_texts
from compileboard.collectors.contract.events import Event
from compileboard.collectors.push.delivery import list_texts
from compileboard.collectors.wire.lines import checksum_of, digest_of, load_line, read_line
from compileboard.collectors.wire.marks import Mark, load_mark
from compileboard.collectors.wire.texts import split_texts
from compileboard.version import VERSION

Refusal = Callable[[str, bytes], "int | None"]  # method, body as it is unpacked: a status
Fault = Callable[
    [str, str], "str | int | None"
]  # method, path: a status, "lost" (done, not answered), "cut", None


class PushServer(ThreadingHTTPServer):
    """Streams and texts in memory. `fault` is asked before each request."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.streams: dict[tuple[str, str], bytearray] = {}
        self.texts: dict[str, bytes] = {}
        self.dropped: list[str] = []
        self.deleted: set[str] = set()
        self.requests: Counter[str] = Counter()  # by method
        self.largest_bytes = 0  # of a PATCH, unpacked
        self.token: str | None = None
        self.fault: Fault = lambda method, path: None
        self.refusal: Refusal = lambda method, body: None
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A box that went away is nothing to tell of."""

    def lines(self, run_id: str) -> list[bytes]:
        """Return all lines of a run, stream by stream."""
        with self.lock:
            streams = [
                bytes(body) for (of_run, _), body in self.streams.items() if of_run == run_id
            ]
        return [line for body in streams for line in body.splitlines()]

    def read(self, run_id: str) -> tuple[list[Event], list[Mark]]:
        """Return the events and marks of a run, the texts put in."""
        events: list[Event] = []
        marks: list[Mark] = []
        for line in self.lines(run_id):
            body = read_line(line)
            if "mark" in body:
                marks.append(load_mark(body))
            else:
                events.append(load_line(body, self._find_text))
        return events, marks

    def _find_text(self, digest: str) -> str | None:
        body = self.texts.get(digest)
        return None if body is None else body.decode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body of an answer are two writes
    server: PushServer

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self._handle()

    do_GET = do_PATCH = do_POST = do_PUT = do_HEAD

    def _handle(self) -> None:
        server = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = server.fault(self.command, self.path)
        with server.lock:
            server.requests[self.command] += 1
        if fault == "cut":
            self._hang_up()
            return
        if isinstance(fault, int):
            self._answer(fault, {"error": f"told to answer {fault}"}, Retry_After="0")
            return
        if (
            server.token is not None
            and self.headers.get("Authorization") != f"Bearer {server.token}"
        ):
            self._answer(401, {"error": "no such token"})
            return
        if self.headers.get("Content-Encoding") == "gzip":
            try:
                body = gzip.decompress(body)
            except OSError:
                self._answer(460, {"error": "no gzip"})
                return
        if refusal := server.refusal(self.command, body):
            self._answer(refusal, {"error": "not this one"})
            return
        with server.lock:
            status, answer, headers = self._serve(self.path.partition("?")[0].split("/")[3:], body)
        if fault == "lost":
            self._hang_up()
            return
        self._answer(status, answer, **headers)

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _serve(self, path: list[str], body: bytes) -> tuple[int, dict[str, Any], dict[str, str]]:
        server = self.server
        if not path:
            return 200, {"ok": True, "version": VERSION}, {}
        if path == ["texts", "missing"]:
            question = json.loads(body)
            server.dropped += question["dropped"]
            return (
                200,
                {
                    "data": {
                        "missing": [
                            digest for digest in question["digests"] if digest not in server.texts
                        ]
                    }
                },
                {},
            )
        if path == ["texts"]:
            server.texts |= dict(unpack_texts(split_texts(body), 16 << 20))
            return 204, {}, {}
        if path[0] == "texts":
            if digest_of(body) != path[1]:
                return 460, {"error": "another text"}, {}
            server.texts[path[1]] = body
            return 201, {}, {}
        if path[1] in server.deleted:
            return 410, {"error": "deleted"}, {}
        stored = (
            server.streams.setdefault((path[1], path[3]), bytearray())
            if self.command == "PATCH"
            else None
        )
        if stored is None:
            stored = server.streams.get((path[1], path[3]), bytearray())
        return (
            self._append(stored, body)
            if self.command == "PATCH"
            else (200, {}, self._state(stored))
        )

    def _append(self, stored: bytearray, body: bytes) -> tuple[int, dict[str, Any], dict[str, str]]:
        server, offset = self.server, int(self.headers["Upload-Offset"])
        server.largest_bytes = max(server.largest_bytes, len(body))
        if self.headers["Upload-Checksum"] != f"crc32 {checksum_of(body):08x}":
            return 460, {"error": "checksum"}, {}
        if offset > len(stored):
            return 409, {"error": "a gap"}, self._state(stored)
        missing = [
            digest
            for digest in list_texts(body)
            if digest not in server.texts and digest not in server.dropped
        ]
        if missing:
            return 409, {"error": "texts first", "missing": missing}, self._state(stored)
        assert body.endswith(b"\n")
        stored += body[len(stored) - offset :]
        return 204, {}, self._state(stored)

    def _state(self, stored: bytearray) -> dict[str, str]:
        return {
            "Upload_Offset": str(len(stored)),
            "Upload_Checksum": f"crc32 {checksum_of(bytes(stored)):08x}",
        }

    def _answer(self, status: int, answer: dict[str, Any], **headers: str) -> None:
        body = b"" if status == 204 else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def push_server(port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[PushServer]:
    """Serve until the block ends."""
    with PushServer(port, tls) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        serving.start()
        try:
            yield server
        finally:
            server.shutdown()
            serving.join()
