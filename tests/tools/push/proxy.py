"""A proxy before a server that drops, delays, cuts, repeats, reorders and damages requests."""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

FAULTS = ("drop", "lose_answer", "cut", "repeat", "delay", "stale", "damage")
DELAY_S = 0.3
TIMEOUT_S = 30.0


@dataclass
class FaultyProxy:
    """A listener at `port` of loopback; `share` of the requests have one of FAULTS, each takes
    `delay_s` longer.
    """

    server_port: int
    share: float
    seed: int = 0
    delay_s: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._stale = b""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _address = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.settimeout(TIMEOUT_S)
            while request := read_message(client):
                answer = self._pass_on(request)
                if not answer:
                    return  # as a connection that breaks
                client.sendall(answer)

    def _pass_on(self, request: bytes) -> bytes:
        fault = self._random.choice(FAULTS) if self._random.random() < self.share else "none"
        self.counts[fault] = self.counts.get(fault, 0) + 1
        time.sleep(self.delay_s)
        if fault == "drop":
            return b""
        if fault == "cut":
            self._send(request[: self._random.randrange(1, len(request))])
            return b""
        if fault == "delay":
            time.sleep(self._random.uniform(0, DELAY_S))
        if fault == "repeat":
            threading.Thread(target=self._send, args=(request,), daemon=True).start()
        if fault == "stale" and self._stale:
            self._send(self._stale)
        if fault == "damage" and b"\r\n\r\n" in request[:-4]:
            position = self._random.randrange(request.index(b"\r\n\r\n") + 4, len(request))
            request = (
                request[:position] + bytes([request[position] ^ 0xFF]) + request[position + 1 :]
            )
        else:
            self._stale = request
        answer = self._send(request)
        return b"" if fault == "lose_answer" else answer

    def _send(self, request: bytes) -> bytes:
        try:
            with socket.create_connection(
                ("127.0.0.1", self.server_port), timeout=TIMEOUT_S
            ) as server:
                server.sendall(request)
                return read_message(server, is_head=request.startswith(b"HEAD"))
        except OSError:
            return b""


def read_message(stream: socket.socket, *, is_head: bool = False) -> bytes:
    """Read one HTTP message whole; empty where the stream ends.

    Raises: OSError.
    """
    message = b""
    while b"\r\n\r\n" not in message:
        block = stream.recv(65536)
        if not block:
            return b""
        message += block
    head = message.partition(b"\r\n\r\n")[0]
    length = 0
    for line in head.lower().split(b"\r\n")[1:]:
        if line.startswith(b"content-length:") and not is_head:
            length = int(line.split(b":")[1])
    while len(message) < len(head) + 4 + length:
        block = stream.recv(65536)
        if not block:
            return b""
        message += block
    return message
