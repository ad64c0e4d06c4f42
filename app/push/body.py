"""Request bodies of pushing clients: received and unpacked within limits, compared with their
checksum.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge
from werkzeug.wsgi import get_input_stream

from compileboard.app.push.refusals import PushRefused
from compileboard.collectors.wire.lines import LARGEST_RATIO, checksum_of, digest_of
from compileboard.collectors.wire.texts import SentText

SILENCE_S = 30.0
BODY_READ = "compileboard.body_read"  # in the environment of a request whose body was received
BLOCK_BYTES = 64 << 10
RATIO_FROM_BYTES = 1 << 20  # below it any ratio is harmless
_CHECKSUM = re.compile(r"crc32 ([0-9a-fA-F]{1,8})")


def receive_body(environ: dict[str, Any], most_bytes: int, most_plain_bytes: int) -> bytes:
    """Receive and unpack a body of a known length. Raises PushRefused."""
    expected = check_length(environ, most_bytes)
    encoding = environ.get("HTTP_CONTENT_ENCODING", "").strip().lower() or "identity"
    if encoding not in ("identity", "gzip"):
        raise PushRefused(
            400, f"Content-Encoding: expected gzip or nothing, got {encoding[:40]!r}."
        )
    body = _receive(environ, expected, most_bytes)
    return body if encoding == "identity" else unpack_gzip(body, most_plain_bytes)


def check_length(environ: dict[str, Any], most_bytes: int) -> int:
    """Return the Content-Length. Raises PushRefused if it is missing or too large."""
    text = environ.get("CONTENT_LENGTH") or ""
    if not text.isascii() or not text.isdigit() or environ.get("HTTP_TRANSFER_ENCODING"):
        raise PushRefused(411, "Content-Length: expected the number of bytes of the body.")
    if len(text) > 18 or int(text) > most_bytes:
        raise PushRefused(413, f"The body is {text[:18]} bytes; expected {most_bytes:,} at most.")
    return int(text)


def _receive(environ: dict[str, Any], expected: int, most_bytes: int) -> bytes:
    connection = environ.get("gunicorn.socket")
    if connection is not None:
        connection.settimeout(SILENCE_S)
    environ[BODY_READ] = True
    blocks = []
    try:
        stream = get_input_stream(environ, max_content_length=most_bytes)
        while block := stream.read(BLOCK_BYTES):
            blocks.append(block)
    except RequestEntityTooLarge:
        raise PushRefused(413, f"The body is longer than {most_bytes:,} bytes.") from None
    except (ClientDisconnected, OSError):
        raise PushRefused(408, "The body came too slowly, or broke off. Send it again.") from None
    body = b"".join(blocks)
    if len(body) != expected:
        raise PushRefused(460, f"{len(body):,} of {expected:,} bytes came. Send it again.")
    return body


def unpack_gzip(body: bytes, most_bytes: int) -> bytes:
    """Unpack a body up to its limit. Raises PushRefused beyond it."""
    most = min(most_bytes, max(RATIO_FROM_BYTES, len(body) * LARGEST_RATIO))
    expander = zlib.decompressobj(wbits=31)
    try:
        plain = expander.decompress(body, most + 1)
    except zlib.error:
        raise PushRefused(460, "The body is no gzip, or is damaged. Send it again.") from None
    if len(plain) > most:
        raise PushRefused(
            413,
            (
                f"It unpacks to more than {most:,} bytes: expected {most_bytes:,}, and "
                f"{LARGEST_RATIO}× its size."
            ),
        )
    if not expander.eof or expander.unused_data:
        raise PushRefused(
            460, "The body's gzip breaks off, or something follows it. Send it again."
        )
    return plain


def unpack_texts(texts: Iterable[SentText], most_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Unpack texts up to a common limit; yield each with its digest.

    Raises PushRefused beyond the limit, or for a wrong digest.
    """
    left_bytes = most_bytes
    for text in texts:
        plain = unpack_gzip(text.body, left_bytes) if text.is_packed else text.body
        left_bytes -= len(plain)
        if left_bytes < 0:
            raise PushRefused(
                413, f"The texts are more than {most_bytes:,} bytes; send fewer at once."
            )
        if digest_of(plain) != text.digest:
            raise PushRefused(
                460, f"A text is {digest_of(plain)}, not {text.digest}. Send it again."
            )
        yield text.digest, plain


def check_checksum(given: str | None, plain: bytes) -> None:
    """Compare a body with its checksum. Raises PushRefused."""
    match = _CHECKSUM.fullmatch(given or "")
    if match is None:
        raise PushRefused(
            400, f"Upload-Checksum: expected crc32 and 8 hex digits, got {str(given)[:40]!r}."
        )
    if int(match[1], 16) != checksum_of(plain):
        raise PushRefused(460, "The body is not what its checksum tells. Send it again.")


def format_checksum(checksum: int) -> str:
    return f"crc32 {checksum:08x}"
