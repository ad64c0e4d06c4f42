"""Compress an answer of which a large part is always the same: that part is compressed once."""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache

_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # gzip, deflate, no time, no system
_KEY_BYTES = 256


def _deflate(text: bytes, level: int, mode: int) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(text) + packer.flush(mode)


@lru_cache(maxsize=4)
def _deflate_fixed(text: bytes) -> bytes:
    # A full flush ends at a byte, and nothing behind it refers to what is before it.
    return _deflate(text, 9, zlib.Z_FULL_FLUSH)


def pack_around(body: bytes, fixed: bytes) -> bytes:
    """Compress as gzip does; where `fixed` is in the body, only what is around it is compressed now.

    Source: RFC 1951, 3.2.3: blocks of deflate follow each other, the last one says so.
    """
    at = body.rfind(fixed[:_KEY_BYTES]) if fixed else -1  # finding the whole of a megabyte takes ten times as long
    parts = []
    if at >= 0 and body.startswith(fixed, at):
        parts = [_deflate(body[:at], 1, zlib.Z_FULL_FLUSH), _deflate_fixed(fixed)]
    rest = body[at + len(fixed) :] if parts else body
    parts.append(_deflate(rest, 1, zlib.Z_FINISH))
    return b"".join([_HEAD, *parts, struct.pack("<II", zlib.crc32(body), len(body) & 0xFFFFFFFF)])
