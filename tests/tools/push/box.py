"""A small box: it sends lines of a stream as the protocol says, and goes on after whatever happens
to a request.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Any

from compileboard.collectors.contract.events import Event
from compileboard.collectors.wire.lines import checksum_of, dump_line
from compileboard.collectors.wire.marks import Heartbeat, StreamEnd, dump_mark

STREAM_PATH = "/api/v1/runs/{}/streams/{}"


@dataclass
class StreamBytes:
    """A stream as a recorder writes it, with its long texts."""

    lines: bytes = b""
    texts: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Event]) -> StreamBytes:
        """Write a stream of events, whole."""
        stream = cls(dump_mark(Heartbeat("1.0")))
        stream.lines += b"".join(dump_line(event, stream.texts.__setitem__) for event in events)
        stream.lines += dump_mark(StreamEnd(len(stream.lines), checksum_of(stream.lines)))
        return stream

    def cut(self, offset: int, max_bytes: int) -> bytes:
        """Return whole lines from an offset on."""
        end = self.lines.rfind(b"\n", offset, offset + max_bytes) + 1
        return self.lines[offset : end or self.lines.index(b"\n", offset) + 1]


def headers_of(offset: int, plain: bytes, *, packed: bool = False) -> dict[str, str]:
    """Return the headers of a PATCH."""
    headers = {"Upload-Offset": str(offset), "Upload-Checksum": f"crc32 {checksum_of(plain):08x}"}
    return headers | ({"Content-Encoding": "gzip"} if packed else {})


class Box:
    """One connection to a server, made anew when it breaks."""

    def __init__(self, port: int, token: str = "", timeout_s: float = 10.0) -> None:
        self.port = port
        self.timeout_s = timeout_s
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connection: HTTPConnection | None = None

    def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Any:
        """Send one request; return (status, headers, body).

        Raises: OSError, HTTPException.
        """
        if self._connection is None:
            self._connection = HTTPConnection("127.0.0.1", self.port, timeout=self.timeout_s)
        try:
            self._connection.request(method, path, body, {**self._headers, **(headers or {})})
            response = self._connection.getresponse()
            return response.status, response.headers, response.read()
        except (OSError, HTTPException):
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(
        self, run_id: str, stream_id: str, stream: StreamBytes, max_bytes: int = 64 << 10
    ) -> int:
        """Send a stream until the server has all of it; return how many requests that took."""
        path, count, offset = STREAM_PATH.format(run_id, stream_id), 0, -1
        while True:
            count += 1
            try:
                if offset < 0:
                    status, headers, body = self.request("HEAD", path)
                else:
                    plain = stream.cut(offset, max_bytes)
                    packed = gzip.compress(plain, 1)
                    status, headers, body = self.request(
                        "PATCH", path, packed, headers_of(offset, plain, packed=True)
                    )
            except (OSError, HTTPException):
                offset = -1
                time.sleep(0.02)
                continue
            offset = int(headers.get("Upload-Offset", -1))
            if status == 409 and (missing := json.loads(body).get("missing")):
                for digest in missing:
                    self._put(digest, stream.texts[digest])
            elif status in (429, 503):
                time.sleep(0.05)
            elif status not in (200, 204, 409, 460, 400, 408):
                raise AssertionError(f"{status}: {body!r}")
            if offset == len(stream.lines):  # a HEAD says it where the last answer was lost
                return count

    def _put(self, digest: str, text: bytes) -> None:
        with suppress(OSError, HTTPException):  # asked for again
            self.request("PUT", f"/api/v1/texts/{digest}", text)
