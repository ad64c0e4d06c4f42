"""Send requests to a server over one persistent connection, each with the token."""

from __future__ import annotations

import gzip
import http.client
import os
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import Any, BinaryIO
from urllib.parse import quote

from compileboard.collectors.contract.values import clean_text
from compileboard.collectors.push.target import Target
from compileboard.collectors.wire.http import MAX_ANSWER_BYTES, Answer, Connection
from compileboard.collectors.wire.lines import MAX_RATIO, WIRE_VERSION
from compileboard.version import VERSION

MAX_PAUSE_S = 3600.0


class ServerResponse(Answer):
    """A response of a CompileBoard server."""

    @property
    def body(self) -> Mapping[str, Any]:
        """Return the body as an object, empty if it is not one."""
        document = self.document
        return document if isinstance(document, dict) else {}

    @property
    def offset(self) -> int | None:
        text = self.headers.get("upload-offset", "")
        return int(text) if text.isdigit() else None

    @property
    def pause_s(self) -> float:
        text = self.headers.get("retry-after", "").strip()
        if text.isdigit():
            return min(float(text), MAX_PAUSE_S)
        try:
            return min(max(parsedate_to_datetime(text).timestamp() - time(), 0.0), MAX_PAUSE_S)
        except (ValueError, TypeError):
            return 0.0

    def describe(self) -> str:
        words = self.body.get("error") or http.client.responses.get(self.status, "")
        words = " ".join(clean_text(str(words)).split())[:200]
        return f"{self.status} {words}".strip()


class Client:
    """A connection to one server, which sends its token with every request.

    Raises TargetError if the token cannot be read or must not be sent.
    """

    def __init__(self, target: Target, environment: Mapping[str, str] = os.environ) -> None:
        self.target = target
        token = target.read_token(environment)
        self.has_token = token is not None
        self._headers = {
            "User-Agent": f"compileboard/{VERSION} wire/{WIRE_VERSION}",
            "Accept": "application/json",
        }
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._connection = Connection(target.server, environment)
        self.answer_count = 0

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | BinaryIO | None = None,
        **headers: str,
    ) -> ServerResponse:
        """Send a request below /api/v1; underscores in header names become hyphens. Raises
        ServerUnavailable.
        """
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._ask(method, f"api/v1/{path}", body, named)

    def ask_page(self, path: str, max_bytes: int = MAX_ANSWER_BYTES) -> ServerResponse:
        return self._ask("GET", path, None, {}, max_bytes)

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | BinaryIO | None,
        headers: Mapping[str, str],
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> ServerResponse:
        address = f"{self.target.base}/{path}"
        answer = self._connection.request(
            method, address, body, {**self._headers, **headers}, max_bytes
        )
        self.answer_count += 1
        return ServerResponse(answer.status, answer.headers, answer.content)

    def close(self) -> None:
        self._connection.close()


def pack(body: bytes) -> tuple[bytes, dict[str, str]]:
    packed = gzip.compress(body, 1, mtime=0)
    if len(packed) < len(body) <= len(packed) * MAX_RATIO:
        return packed, {"Content_Encoding": "gzip"}
    return body, {}


def quote_path(text: str) -> str:
    return quote(text, safe="")


OF_CONTENT = (400, 413)  # refused for their content; other requests may be accepted
# Of one run: others may be accepted. A 500 may be caused by the content or not, so nothing is given
# up.
OF_ONE_RUN = (400, 403, 404, 409, 410, 413, 426, 460, 500)


class Refused(Exception):
    """The server refused the request and asks to wait `pause_s`."""

    def __init__(self, reason: str, status: int, pause_s: float = 0.0) -> None:
        super().__init__(reason)
        self.pause_s = pause_s
        self.is_token = status in (401, 403)
        self.is_deleted = status == 410
        self.is_of_one = status in OF_ONE_RUN


def explain(answer: ServerResponse) -> str:
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


def refuse(answer: ServerResponse) -> Refused:
    return Refused(explain(answer), answer.status, answer.pause_s)


def find_value(answer: ServerResponse, name: str, kind: type) -> Any:
    data = answer.body.get("data")
    for body in (answer.body, data):
        if isinstance(body, dict) and isinstance(body.get(name), kind):
            return body[name]
    return None
