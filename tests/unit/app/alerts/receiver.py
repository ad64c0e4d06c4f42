"""Receivers of alerts for tests: a real HTTP server and a real SMTP conversation."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Hook:
    """The requests to a webhook; `answer` is the status that it answers, or waits for `go_on` where
    it is none.
    """

    url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    answer: Callable[[int], int | None] = lambda number: 200
    reply: str = "what the receiver says"
    go_on: threading.Event = field(default_factory=threading.Event)
    came: threading.Event = field(default_factory=threading.Event)

    @property
    def documents(self) -> list[Any]:
        return [json.loads(body) for body in self.bodies]


@contextmanager
def receive_http() -> Iterator[Hook]:
    """Run an HTTP server that keeps what is posted."""
    hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            hook.headers.append(dict(self.headers))
            hook.came.set()
            status = hook.answer(len(hook.bodies))
            if status is None:
                hook.go_on.wait(60)
                status = 200
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "http://127.0.0.1:9/elsewhere")
            self.end_headers()
            self.wfile.write(hook.reply.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a sender that ended, or waited long enough, is what these tests are about

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        hook.url = f"http://127.0.0.1:{server.server_address[1]}/hook?token=hunter2"
        try:
            yield hook
        finally:
            hook.go_on.set()
            server.shutdown()
            thread.join()


@dataclass
class Mailbox:
    """The mails to an SMTP server; `say` may answer a command with another line."""

    port: int = 0
    bodies: list[bytes] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    say: dict[str, str] = field(
        default_factory=dict
    )  # a command's beginning -> the answer; "" breaks off

    @property
    def mails(self) -> list[EmailMessage]:
        return [message_from_bytes(body, policy=policy.default) for body in self.bodies]  # type: ignore[misc]


@contextmanager
def receive_mail() -> Iterator[Mailbox]:
    """Run an SMTP server that keeps what it takes."""
    box = Mailbox()

    class Handler(socketserver.StreamRequestHandler):
        timeout = 60

        def answer(self, command: str, line: str) -> bool:
            reply_line = next(
                (reply for start, reply in box.say.items() if command.upper().startswith(start)),
                line,
            )
            if reply_line:
                self.wfile.write(f"{reply_line}\r\n".encode())
            return bool(reply_line)

        def handle(self) -> None:
            self.wfile.write(b"220 test ESMTP\r\n")
            while line := self.rfile.readline().decode().strip():
                box.commands.append(line)
                if line.upper() == "DATA" and "DATA" not in box.say:
                    self.wfile.write(b"354 go on\r\n")
                    body = b"".join(iter(self.read_line, b".\r\n"))
                    if "END" not in box.say:
                        box.bodies.append(body)
                    line = "END"
                if not self.answer(line, "250 good"):
                    return

        def read_line(self) -> bytes:
            return self.rfile.readline() or b".\r\n"  # whoever breaks off ends the mail as well

    class Server(socketserver.ThreadingTCPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        box.port = server.server_address[1]
        try:
            yield box
        finally:
            server.shutdown()
            thread.join()
