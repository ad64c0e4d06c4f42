"""Delivery over HTTP within a deadline. Only a message that certainly did not arrive may be
retried.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.parse import SplitResult, urlsplit

from compileboard.app.core.resources import __version__


class DeliveryFailed(Exception):
    """The message did not arrive; it may be retried."""


class DeliveryUnknown(Exception):
    """The message may have arrived; it must not be retried."""


@contextmanager
def hold_deadline(
    find_socket: Callable[[], socket.socket | None], seconds: float
) -> Iterator[None]:
    def cut() -> None:
        connection = find_socket()
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


MOST_ANSWER_BYTES = 300
LEAST_SECRET = 6  # shorter parts of an address are no secrets, and parts of words
PROXIES = ("https_proxy", "HTTPS_PROXY")


def post_json(
    url: str, body: bytes, headers: Mapping[str, str], timeout_s: float, environ: Mapping[str, str]
) -> None:
    """POST a body. Raises DeliveryFailed if it was not accepted, DeliveryUnknown if it may have
    been.

    Neither error names the URL, which is a secret.
    """
    parts = _split(url)
    connection = _connect(parts, timeout_s, environ)
    try:
        with hold_deadline(lambda: connection.sock, 2 * timeout_s):
            _open(connection, parts, timeout_s)
            answer, text = _talk(connection, parts, body, headers, timeout_s)
    finally:
        connection.close()
    if 200 <= answer.status < 300:
        return
    if 300 <= answer.status < 400:
        raise DeliveryFailed(
            f"{parts.hostname} answered {answer.status}, a redirect, which is not followed; "
            "give its target"
        )
    text = _redact(f"{answer.reason[:80]}: {text}", parts)
    raise DeliveryFailed(f"{parts.hostname} answered {answer.status} {text}".rstrip(": "))


def _redact(text: str, parts: SplitResult) -> str:
    whole = f"{parts.path}?{parts.query}"
    pieces = {whole, *re.split("[/?&=]", whole), parts.path, parts.query, parts.password or ""}
    for piece in sorted(
        (piece for piece in pieces if len(piece) >= LEAST_SECRET), key=len, reverse=True
    ):
        text = text.replace(piece, "…")
    return text


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
        good = (
            parts.scheme in ("http", "https")
            and parts.hostname
            and (parts.port or 1)
            and url.isascii()
        )
    except ValueError:
        good = False
    if not good or any(character.isspace() or character < " " for character in url.strip()):
        raise DeliveryFailed("the variable holds no address; expected https://… or http://…")
    return parts


def _connect(
    parts: SplitResult, timeout_s: float, environ: Mapping[str, str]
) -> http.client.HTTPConnection:
    host, port = str(parts.hostname), parts.port
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    context = ssl.create_default_context()
    proxy = next((environ[name] for name in PROXIES if environ.get(name)), "")
    if not proxy or _is_private_address(
        host, environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    ):
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    through = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    if not through.hostname:
        raise DeliveryFailed("HTTPS_PROXY holds no address; expected http://host:port")
    connection = http.client.HTTPSConnection(
        through.hostname, through.port, timeout=timeout_s, context=context
    )
    connection.set_tunnel(host, port)
    return connection


def _is_private_address(host: str, no_proxy: str) -> bool:
    names = [part.strip().lstrip(".").lower() for part in no_proxy.split(",") if part.strip()]
    return any(name == "*" or f".{host}".endswith(f".{name}") for name in names)


def _open(connection: http.client.HTTPConnection, parts: SplitResult, timeout_s: float) -> None:
    try:
        connection.connect()
    except TimeoutError:
        raise DeliveryFailed(
            f"{parts.hostname} did not let us connect within {timeout_s:g} s"
        ) from None
    except ssl.SSLCertVerificationError as error:
        raise DeliveryFailed(
            f"{parts.hostname}'s certificate cannot be trusted: {error.verify_message}"
        ) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DeliveryFailed(f"cannot connect to {parts.hostname}: {_explain(error)}") from None


def _talk(
    connection: http.client.HTTPConnection,
    parts: SplitResult,
    body: bytes,
    headers: Mapping[str, str],
    timeout_s: float,
) -> tuple[http.client.HTTPResponse, str]:
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    shared = {
        "Content-Type": "application/json; charset=utf-8",
        "User-Agent": f"CompileBoard/{__version__}",
    }
    broken = _hand_over(connection, path, body, {**shared, "Connection": "close", **headers})
    try:
        answer = connection.getresponse()  # also of who refuses a message without reading all of it
    except (OSError, http.client.HTTPException, ValueError) as error:
        if broken:
            raise DeliveryFailed(
                f"{parts.hostname} broke off before it had the message: {broken}"
            ) from None
        raise _explain_silence(error, parts, timeout_s) from None
    try:
        text = answer.read(MOST_ANSWER_BYTES).decode(errors="replace")
    except (OSError, http.client.HTTPException):  # the status has said what matters
        text = ""
    return answer, " ".join(text.split())


def _hand_over(
    connection: http.client.HTTPConnection, path: str, body: bytes, headers: Mapping[str, str]
) -> str:
    try:
        connection.request("POST", path, body, headers)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return _explain(error)
    return ""


def _explain_silence(error: Exception, parts: SplitResult, timeout_s: float) -> DeliveryUnknown:
    if isinstance(error, TimeoutError):
        return DeliveryUnknown(
            f"{parts.hostname} took the message and did not answer within {timeout_s:g} s"
        )
    return DeliveryUnknown(f"{parts.hostname} broke off before it answered: {_explain(error)}")


def _explain(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or type(error).__name__
