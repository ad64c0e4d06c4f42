"""HTTP requests over one kept connection. Redirects are not followed, so that the token goes to one
address only.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from typing import Any, BinaryIO
from urllib.parse import quote, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from compileboard.collectors.contract.secrets import scrub_text
from compileboard.collectors.contract.values import clean_text
from compileboard.collectors.push.target import Target
from compileboard.collectors.wire.lines import LARGEST_RATIO, WIRE_VERSION
from compileboard.version import VERSION

CONNECT_S, ANSWER_S = 10.0, 60.0
MOST_ANSWER_BYTES = 1 << 20
LONGEST_PAUSE_S = 3600.0
STALE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)


class ServerAway(OSError):
    """The server cannot be reached or closed the connection before answering."""


@dataclass(frozen=True)
class ServerAnswer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: Mapping[str, Any]
    content: bytes = b""

    @property
    def offset(self) -> int | None:
        text = self.headers.get("upload-offset", "")
        return int(text) if text.isdigit() else None

    @property
    def pause_s(self) -> float:
        text = self.headers.get("retry-after", "").strip()
        if text.isdigit():
            return min(float(text), LONGEST_PAUSE_S)
        try:
            return min(max(parsedate_to_datetime(text).timestamp() - time(), 0.0), LONGEST_PAUSE_S)
        except (ValueError, TypeError):
            return 0.0

    def describe(self) -> str:
        words = self.body.get("error") or http.client.responses.get(self.status, "")
        words = " ".join(clean_text(str(words)).split())[:200]
        return f"{self.status} {words}".strip()


class Client:
    """A connection to one server that sends its token with every request.

    Raises TargetError if the token cannot be read or must not be sent.
    """

    def __init__(self, target: Target, environment: Mapping[str, str] = os.environ) -> None:
        self.target = target
        self._environment = environment
        token = target.read_token(environment)
        self.has_token = token is not None
        self._headers = {
            "User-Agent": f"compileboard/{VERSION} wire/{WIRE_VERSION}",
            "Accept": "application/json",
        }
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._connection: http.client.HTTPConnection | None = None
        self.answer_count = 0

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | BinaryIO | None = None,
        **headers: str,
    ) -> ServerAnswer:
        """Send a request below /api/v1; underscores in header names become hyphens. Raises
        ServerAway.
        """
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            size_bytes = len(body) if isinstance(body, bytes) else os.fstat(body.fileno()).st_size
            named["Content-Length"] = str(size_bytes)
        return self._ask(
            method, f"{self.target.base}/api/v1/{path}", body, named, MOST_ANSWER_BYTES
        )

    def ask_page(self, path: str, most_bytes: int = MOST_ANSWER_BYTES) -> ServerAnswer:
        return self._ask("GET", f"{self.target.base}/{path}", None, {}, most_bytes)

    def _ask(
        self,
        method: str,
        address: str,
        body: bytes | BinaryIO | None,
        headers: Mapping[str, str],
        most_bytes: int,
    ) -> ServerAnswer:
        was_open = self._connection is not None
        try:
            try:
                return self._send(method, address, body, headers, most_bytes)
            except STALE:
                self.close()
                if not was_open or not isinstance(body, (bytes, type(None))):
                    raise
                return self._send(
                    method, address, body, headers, most_bytes
                )  # what was kept open was closed there
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise ServerAway(
                f"{self.target.server} has no certificate that this machine trusts "
                f"({error.verify_message}); name "
                "its authority's file in SSL_CERT_FILE"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ServerAway(f"{self.target.server} does not answer: {_describe(error)}") from None

    def _send(
        self,
        method: str,
        address: str,
        body: bytes | BinaryIO | None,
        headers: Mapping[str, str],
        most_bytes: int,
    ) -> ServerAnswer:
        connection = self._connection = self._connection or self._connect()
        try:
            connection.request(method, address, body, {**self._headers, **headers})
        except (BrokenPipeError, ConnectionResetError):
            if body is None:
                raise
            # A body that is refused for its size is not read to its end: the answer may be there.
        response = connection.getresponse()
        content = response.read(most_bytes)
        self.answer_count += 1
        if response.will_close or not response.isclosed():
            self.close()
        try:
            answer = json.loads(content) if content else {}
        except (ValueError, RecursionError):
            answer = {}
        return ServerAnswer(
            response.status,
            {name.lower(): value for name, value in response.getheaders()},
            answer if isinstance(answer, dict) else {},
            content,
        )

    def _connect(self) -> http.client.HTTPConnection:
        target = self.target
        if (
            not target.is_tls
        ):  # proxies of the environment are for https:// alone: they would read what passes
            connection = http.client.HTTPConnection(target.host, target.port, timeout=CONNECT_S)
        else:
            context = ssl.create_default_context()
            proxy = getproxies_environment().get("https")
            if proxy and not proxy_bypass_environment(target.host):
                parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
                connection = http.client.HTTPSConnection(
                    parts.hostname or "", parts.port or 8080, timeout=CONNECT_S, context=context
                )
                login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()
                basic = (
                    {"Proxy-Authorization": f"Basic {base64.b64encode(login).decode()}"}
                    if parts.username
                    else {}
                )
                connection.set_tunnel(target.host, target.port, basic)
            else:
                connection = http.client.HTTPSConnection(
                    target.host, target.port, timeout=CONNECT_S, context=context
                )
        connection.connect()
        connection.sock.settimeout(ANSWER_S)
        return connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _describe(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return scrub_text(clean_text(" ".join(words.split()))[:200]) or type(error).__name__


def pack(body: bytes) -> tuple[bytes, dict[str, str]]:
    packed = gzip.compress(body, 1, mtime=0)
    if len(packed) < len(body) <= len(packed) * LARGEST_RATIO:
        return packed, {"Content_Encoding": "gzip"}
    return body, {}


def quote_path(text: str) -> str:
    return quote(text, safe="")


OF_CONTENT = (400, 413)  # for what a request holds; others of the same kind may be taken
# Of one run: others may be taken. 500 may be for what a request holds, or not: nothing is given up
# for it.
OF_ONE_RUN = (400, 403, 404, 409, 410, 413, 426, 460, 500)


class Refused(Exception):
    """The server refused the request. `pause_s` is how long it asks to wait."""

    def __init__(self, words: str, status: int, pause_s: float = 0.0) -> None:
        super().__init__(words)
        self.pause_s = pause_s
        self.is_token = status in (401, 403)
        self.is_deleted = status == 410
        self.is_of_one = status in OF_ONE_RUN


def explain(answer: ServerAnswer) -> str:
    actions = {
        401: (
            "the token is missing, wrong, expired or revoked; make one on the server with "
            "`token create`"
        ),
        403: "the token lacks the scope `ingest`, or the run is another sender's",
        404: "there is no such address; is it a CompileBoard server of this version?",
        410: "the run was deleted or pruned on the server",
        426: "the server is older than this collector; upgrade the server",
        507: "the server's disk is full",
    }
    if 300 <= answer.status < 400:
        return (
            "the server redirects to "
            f"{answer.headers.get('location', 'another address')[:200]}; give that to --server"
        )
    action = actions.get(answer.status)
    return (
        f"{action} ({answer.describe()})" if action else f"the server answers {answer.describe()}"
    )


def refuse(answer: ServerAnswer) -> Refused:
    return Refused(explain(answer), answer.status, answer.pause_s)


def find_value(answer: ServerAnswer, name: str, kind: type) -> Any:
    data = answer.body.get("data")
    for body in (answer.body, data):
        if isinstance(body, dict) and isinstance(body.get(name), kind):
            return body[name]
    return None
