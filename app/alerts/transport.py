"""Delivery over HTTP within a deadline; only what certainly did not arrive is retried."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.client import responses
from urllib.parse import SplitResult, urlsplit

from compileboard.collectors.wire.http import Connection, ServerAway


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


def post_json(
    url: str, body: bytes, headers: Mapping[str, str], timeout_s: float, environ: Mapping[str, str]
) -> None:
    """POST a body. Raises DeliveryFailed if it was not accepted, DeliveryUnknown if it may have
    been.

    Neither error names the URL, which is a secret.
    """
    parts = _split(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Content-Type": "application/json; charset=utf-8", "Connection": "close", **headers}
    try:
        with (
            closing(Connection(url.strip(), environ, timeout_s)) as connection,
            hold_deadline(lambda: connection.sock, 2 * timeout_s),
        ):
            answer = connection.request("POST", path, body, headers, MOST_ANSWER_BYTES)
    except ServerAway as error:
        raise (DeliveryUnknown if error.may_have_arrived else DeliveryFailed)(
            _redact(str(error), parts)
        ) from None
    if 200 <= answer.status < 300:
        return
    if 300 <= answer.status < 400:
        raise DeliveryFailed(
            f"{parts.hostname} answered {answer.status}, a redirect, which is not followed; "
            "give its target"
        )
    text = _redact(" ".join(answer.content.decode(errors="replace").split()), parts)
    reason = f"{answer.status} {responses.get(answer.status, '')}"
    raise DeliveryFailed(f"{parts.hostname} answered {reason}: {text}".rstrip(": "))


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
