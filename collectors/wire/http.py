"""HTTP requests: of clients to their server, of alerts to webhooks, of `check` to GitHub.

Requests are meant for one server. Redirects are not followed, and a proxy from the environment is
used only for https://, because it could read anything else. Clients import this module, so it needs
only the standard library.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from compileboard.collectors.contract.secrets import scrub_text
from compileboard.version import VERSION

CONNECT_S, ANSWER_S = 10.0, 60.0
MAX_ANSWER_BYTES = 1 << 20
PROXY_PORT = 8080
_STALE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)
_FAILURES = (OSError, http.client.HTTPException, ValueError)


class ServerUnavailable(OSError):
    """There was no complete response. `may_have_arrived` is True if the server may have taken the
    request.
    """

    def __init__(self, message: str, *, may_have_arrived: bool = False) -> None:
        super().__init__(message)
        self.may_have_arrived = may_have_arrived


@dataclass(frozen=True)
class Answer:
    """A server's response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes = b""

    @cached_property
    def document(self) -> Any:
        """Return the body as JSON, None if it is not JSON."""
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            return None


class Connection:
    """A persistent connection to the server of an address; the first request opens it."""

    def __init__(
        self, address: str, environ: Mapping[str, str], timeout_s: float = ANSWER_S
    ) -> None:
        parts = urlsplit(address)
        self._is_tls, self._host = parts.scheme == "https", parts.hostname or ""
        self._port = parts.port or (443 if self._is_tls else 80)
        self._label = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._environ, self._timeout_s, self._connect_s = (
            environ,
            timeout_s,
            min(timeout_s, CONNECT_S),
        )
        self._connection: http.client.HTTPConnection | None = None

    @property
    def sock(self) -> socket.socket | None:
        """Return the open socket, None before the first request and after the last."""
        return self._connection.sock if self._connection is not None else None

    def request(
        self,
        method: str,
        path: str,
        body: bytes | BinaryIO | None = None,
        headers: Mapping[str, str] | None = None,
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> Answer:
        """Send a request and return its response, with at most `max_bytes` of its body.

        It is repeated only if the server had closed a kept connection. Raises ServerUnavailable.
        """
        was_open = self._connection is not None
        named = {"User-Agent": f"CompileBoard/{VERSION}", **(headers or {})}
        if body is not None:
            size_bytes = len(body) if isinstance(body, bytes) else os.fstat(body.fileno()).st_size
            named["Content-Length"] = str(size_bytes)
        try:
            return self._send(method, path, body, named, max_bytes)
        except ServerUnavailable as error:
            self.close()
            is_stale = was_open and isinstance(error.__cause__, _STALE)
            if not is_stale or not isinstance(body, (bytes, type(None))):
                raise
        return self.request(method, path, body, headers, max_bytes)

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | BinaryIO | None,
        headers: Mapping[str, str],
        max_bytes: int,
    ) -> Answer:
        connection = self._connection or self._connect()
        broken: Exception | None = None
        try:
            connection.request(method, path, body, headers)
        except TimeoutError as error:
            raise ServerUnavailable(
                f"{self._label} did not take the request within {self._timeout_s:g} s"
            ) from error
        except _FAILURES as error:
            # A server that refuses a body for its size has responded, and reads no more of it
            broken = error
        try:
            response = connection.getresponse()
            content = response.read(max_bytes)
        except _FAILURES as error:
            if broken is not None:
                reason = _describe_error(broken)
                raise ServerUnavailable(
                    f"{self._label} broke off before it had the request: {reason}"
                ) from broken
            if isinstance(error, TimeoutError):
                reason = f"took the request and did not answer within {self._timeout_s:g} s"
            else:
                reason = f"broke off before it answered: {_describe_error(error)}"
            raise ServerUnavailable(f"{self._label} {reason}", may_have_arrived=True) from error
        if response.will_close or not response.isclosed():
            self.close()
        return Answer(
            response.status, {name.lower(): value for name, value in response.getheaders()}, content
        )

    def _connect(self) -> http.client.HTTPConnection:
        try:
            connection = self._connection = self._prepare()
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            raise ServerUnavailable(
                f"{self._label} has no certificate that this machine trusts "
                f"({error.verify_message}); name its "
                "authority's file in SSL_CERT_FILE"
            ) from error
        except TimeoutError as error:
            raise ServerUnavailable(
                f"{self._label} does not answer: no connection within {self._connect_s:g} s"
            ) from error
        except _FAILURES as error:
            raise ServerUnavailable(
                f"{self._label} does not answer: {_describe_error(error)}"
            ) from error
        connection.sock.settimeout(self._timeout_s)
        return connection

    def _prepare(self) -> http.client.HTTPConnection:
        if not self._is_tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._connect_s)
        context, environ = ssl.create_default_context(), self._environ
        proxy = environ.get("https_proxy") or environ.get("HTTPS_PROXY")
        without = {"no": environ.get("no_proxy") or environ.get("NO_PROXY") or ""}
        if not proxy or proxy_bypass_environment(self._host, without):
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._connect_s, context=context
            )
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        if not parts.hostname:
            raise ServerUnavailable("https_proxy holds no address; expected http://HOST:PORT")
        connection = http.client.HTTPSConnection(
            parts.hostname, parts.port or PROXY_PORT, timeout=self._connect_s, context=context
        )
        login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()
        basic = (
            {"Proxy-Authorization": f"Basic {base64.b64encode(login).decode()}"}
            if parts.username
            else {}
        )
        connection.set_tunnel(self._host, self._port, basic)
        return connection

    def close(self) -> None:
        """Close the connection. The next request opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _describe_error(error: Exception) -> str:
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return scrub_text(" ".join(words.split())[:200]) or type(error).__name__
