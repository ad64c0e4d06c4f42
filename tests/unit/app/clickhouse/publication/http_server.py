"""HTTP over this process's ClickHouse: queries, values, settings, inserts, errors, users."""

from __future__ import annotations

import base64
import re
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import lz4.frame
import zstandard

_FORMAT = re.compile(r"\bformat\s+(\w+)\s*;?\s*$", re.IGNORECASE)
_INSERT = re.compile(r"^\s*insert\s+into\b(?!.*\bselect\b)", re.IGNORECASE | re.DOTALL)
_NOT_SETTINGS = {
    "query",
    "database",
    "session_id",
    "query_id",
    "wait_end_of_query",
    "client_protocol_version",
}
_CODECS = {
    "lz4": lz4.frame.decompress,
    "zstd": lambda body: zstandard.ZstdDecompressor().decompressobj().decompress(body),
    "gzip": lambda body: zlib.decompress(body, 16 + zlib.MAX_WBITS),
    "deflate": zlib.decompress,
}


class ChdbServer(ThreadingHTTPServer):
    """A server with one user and its password; `delay_s` is how long each answer takes."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.user, self.password = "board", "p@ss:word/?"
        self.delay_s = 0.0
        self.statements: list[str] = []


@contextmanager
def serve_chdb(folder: Path) -> Iterator[ChdbServer]:
    """Serve the databases of a folder until the block ends."""
    with ChdbServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ChdbServer

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self._read_body()
        values = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        if self.headers.get_content_type() == "multipart/form-data":
            opening = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
            for part in BytesParser(policy=HTTP).parsebytes(opening + body).iter_parts():
                name = part.get_param("name", header="content-disposition")
                values[str(name)] = part.get_payload(decode=True).decode()
            body = b""
        elif "query" not in values:
            head, end, rows = body.partition(
                b"FORMAT Native\n"
            )  # of an insert; its rows are no text
            values["query"], body = (
                (head.decode() + "FORMAT Native", rows) if end else (body.decode(), b"")
            )
        time.sleep(self.server.delay_s)
        if not self._is_known():
            words = (
                f"Code: 516. DB::Exception: {self.server.user}: Authentication failed. "
                "(AUTHENTICATION_FAILED)"
            )
            self._answer(403, words.encode(), {"X-ClickHouse-Exception-Code": "516"})
            return
        try:
            answer, form = self._run(values, body)
        except Exception as error:
            code = re.search(r"Code: (\d+)", str(error))
            self._answer(
                500,
                str(error).encode(),
                {"X-ClickHouse-Exception-Code": code[1] if code else "1002"},
            )
            return
        self._answer(200, answer, {"X-ClickHouse-Format": form, "X-ClickHouse-Timezone": "UTC"})

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        codec = self.headers.get("Content-Encoding")
        return _CODECS[codec](body) if codec else body

    def _is_known(self) -> bool:
        word = base64.b64encode(f"{self.server.user}:{self.server.password}".encode()).decode()
        return self.headers.get("Authorization") == f"Basic {word}"

    def _run(self, values: dict[str, str], body: bytes) -> tuple[bytes, str]:
        # Not above: it blocks SIGPIPE in the thread that imports it, for all that is started there
        # later
        import chdb

        sql = values["query"]
        self.server.statements.append(sql)
        with closing(chdb.connect(str(self.server.folder))) as connection:
            if values.get("database"):
                connection.query(f"use `{values['database']}`")
            for name, value in values.items():
                if name not in _NOT_SETTINGS and not name.startswith("http_"):
                    text = value.replace("\\", "\\\\").replace("'", "\\'")
                    connection.query(f"set {name} = '{text}'")
            if _INSERT.match(sql) and body:
                with tempfile.NamedTemporaryFile(suffix=".native") as file:
                    file.write(body)
                    file.flush()
                    connection.query(_FORMAT.sub(f"from infile '{file.name}' format Native", sql))
                return b"", "Native"
            named = _FORMAT.search(sql)
            form = named[1] if named else values.get("default_format", "TabSeparated")
            return connection.query(_FORMAT.sub("", sql), form).bytes(), form

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
