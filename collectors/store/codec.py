"""Convert values to JSON and compress texts.

A text's first byte names its compression, so that another one can be added.
"""

from __future__ import annotations

import json
import threading
from functools import cache
from pathlib import Path
from typing import Any

try:
    import orjson
except ImportError:  # a collector without the server's libraries stores all the same, only slower
    orjson = None  # type: ignore[assignment]

ZSTD = b"\x03"
ZSTD_PRIMED = b"\x04"  # Compressed with the dictionary below.
_LEVEL = 3
_LEVEL_LARGE = 1  # three quarters of the time of 3 for 1.5 % more bytes
_encode = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps makes a new one each time


def dumps(value: Any) -> str:
    if orjson is not None:
        try:
            return orjson.dumps(value).decode()
        except TypeError:
            pass  # integers beyond 64 bits, lone surrogates, keys that are no texts
    return _encode(value)


@cache
def _dictionary() -> bytes:
    # Typical events; never edit it: bodies written with it need it to be read. A better one is a
    # new way.
    return Path(__file__).with_name("dictionary_2.txt").read_bytes()


class _ThreadCompressors(threading.local):
    """Compressors of one thread. They are fast to use, slow to create, and not thread-safe."""

    def __init__(self) -> None:
        import zstandard  # Not in the observed process, which never stores.

        primed = zstandard.ZstdCompressionDict(
            _dictionary(), dict_type=zstandard.DICT_TYPE_RAWCONTENT
        )
        primed.precompute_compress(level=_LEVEL)
        self.error = zstandard.ZstdError
        self.compressors: dict[bool, Any] = {
            True: zstandard.ZstdCompressor(level=_LEVEL, dict_data=primed, write_checksum=True),
            False: zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True),
        }
        self.large = zstandard.ZstdCompressor(level=_LEVEL_LARGE, write_checksum=True)
        self.expanders: dict[bool, Any] = {
            True: zstandard.ZstdDecompressor(dict_data=primed),
            False: zstandard.ZstdDecompressor(),
        }


@cache
def _zstd() -> _ThreadCompressors:
    return _ThreadCompressors()


def pack(text: str, *, primed: bool = True) -> bytes:
    body = text.encode(
        "utf-8", "surrogatepass"
    )  # as it is read: half a pair in a text is no reason to lose it
    return (ZSTD_PRIMED if primed else ZSTD) + bytes(_zstd().compressors[primed].compress(body))


def pack_large(body: bytes) -> bytes:
    return ZSTD + bytes(_zstd().large.compress(body))


def unpack(blob: bytes) -> str:
    """Decompress to text. Lone surrogates become replacement characters.

    Raises ValueError if it is damaged or of a later version.
    """
    body = unpack_bytes(blob)
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body.decode("utf-8", "surrogatepass").encode("utf-8", "replace").decode()


def unpack_bytes(blob: bytes) -> bytes:
    """Decompress to bytes. Raises ValueError if they are damaged or of a later version."""
    way, body = blob[:1], blob[1:]
    if way not in (ZSTD, ZSTD_PRIMED):
        raise ValueError(f"unknown compression {way!r}; written by a newer CompileBoard?")
    zstd = _zstd()
    try:
        return bytes(zstd.expanders[way == ZSTD_PRIMED].decompress(body))
    except zstd.error as error:
        raise ValueError(f"a stored text is damaged: {error}") from None


def measure_unpacked(blob: bytes, most: int) -> int:
    """Return a text's unpacked size in bytes without unpacking it, at most `most`. 0 if it is
    invalid.
    """
    from zstandard import ZstdError, frame_content_size

    try:
        size = int(frame_content_size(blob[1:])) if blob[:1] in (ZSTD, ZSTD_PRIMED) else 0
    except ZstdError:
        return 0
    return min(size, most) if size >= 0 else most  # -1: it does not tell, as ours do
