"""Decompress gzip, zstd, xz and bzip2 with constant memory, recognised by their first bytes.

Several concatenated streams and trailing bytes are accepted, as by the usual tools.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from compileboard.collectors.sources.streams import CHUNK_BYTES, Chunks, SourceDamaged

HEAD_BYTES = 512  # one tar header, more than any other magic needs
_IN_BYTES = 64 * 1024
_MOST_LAYERS = 3  # log.gz.zst happens by accident; a file that unpacks to itself goes on forever
_MEMORY_BYTES = 128 << 20  # what xz -9 and zstd --ultra -22 --long=27 need at most
_ZSTD_IN_BYTES = (
    512  # nothing else bounds what comes out of an input: 16 MiB, at a frame's start 32
)
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPED = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18", re.DOTALL)
_BZIP2 = re.compile(rb"BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)", re.DOTALL)

Unpack = Callable[[Chunks, str], Iterator[bytes]]


class _Decoder(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Unzstd:
    """zstandard's decoder with the others' interface; 4 bytes of input may return 128 KiB."""

    needs_input = True

    def __init__(self) -> None:
        import zstandard

        self._errors = (zstandard.ZstdError, MemoryError)
        self._decoder = zstandard.ZstdDecompressor(max_window_size=_MEMORY_BYTES).decompressobj()

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        try:
            return self._decoder.decompress(data)
        except self._errors as error:
            raise ValueError(error) from None


class _Inflate:
    def __init__(self, window_bits: int) -> None:
        self._it = zlib.decompressobj(window_bits)

    @property
    def eof(self) -> bool:
        return self._it.eof

    @property
    def needs_input(self) -> bool:
        return not self._it.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._it.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._it.decompress(self._it.unconsumed_tail + data, max_length)


def peel(stream: Chunks, where: str, watch: Callable[[int], None] | None = None) -> Chunks:
    for _ in range(_MOST_LAYERS):
        unpack = find_unpack(stream.peek(HEAD_BYTES))
        if unpack is None:
            break
        stream = Chunks(unpack(stream, where), [stream], watch)
    return stream


def find_unpack(head: bytes) -> Unpack | None:
    if head.startswith(b"\x1f\x8b\x08"):
        return unpack_gzip
    if _is_zstd(head):
        return unpack_zstd
    if head.startswith(b"\xfd7zXZ\x00"):
        return unpack_xz
    return unpack_bzip2 if _BZIP2.match(head) else None


def _is_zstd(head: bytes) -> bool:
    return head.startswith(_ZSTD) or _ZSTD_SKIPPED.match(head) is not None


def unpack_gzip(stream: Chunks, where: str) -> Iterator[bytes]:
    return _unpack(
        stream, where, "gzip", lambda: _Inflate(31), lambda rest: rest.startswith(b"\x1f\x8b")
    )


def unpack_deflate(stream: Chunks, where: str) -> Iterator[bytes]:
    return _unpack(stream, where, "deflate", lambda: _Inflate(-15), None)


def unpack_bzip2(stream: Chunks, where: str) -> Iterator[bytes]:
    return _unpack(
        stream, where, "bzip2", bz2.BZ2Decompressor, lambda rest: rest.startswith(b"BZh")
    )


def unpack_xz(stream: Chunks, where: str) -> Iterator[bytes]:
    def make() -> _Decoder:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY_BYTES)

    return _unpack(stream, where, "xz", make, lambda rest: rest.startswith(b"\xfd7zXZ"))


def unpack_zstd(stream: Chunks, where: str) -> Iterator[bytes]:
    try:
        yield from _unpack(stream, where, "zstd", _Unzstd, _is_zstd, _ZSTD_IN_BYTES)
    except ImportError:
        raise SourceDamaged(
            f"{where}: it is compressed with zstd, which needs a package; pip install "
            "zstandard, or unpack it first."
        ) from None


def _unpack(
    stream: Chunks,
    where: str,
    kind: str,
    make: Callable[[], _Decoder],
    goes_on: Callable[[bytes], bool] | None,
    in_bytes: int = _IN_BYTES,
) -> Iterator[bytes]:
    decoder, out_bytes = make(), 0
    data = stream.read(in_bytes) or b""
    while True:
        try:
            chunk = decoder.decompress(data, CHUNK_BYTES)
        except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
            raise damaged(where, kind, out_bytes, f"does not decode ({error})") from None
        out_bytes += len(chunk)
        yield chunk
        data = b""
        if decoder.eof:
            data = decoder.unused_data.lstrip(b"\0")
            while goes_on and len(data) < HEAD_BYTES and (more := stream.read(in_bytes)):
                data = (data + more).lstrip(b"\0")
            if goes_on is None or not goes_on(data):
                return
            decoder = make()
        elif decoder.needs_input:
            data = stream.read(in_bytes) or b""
            if not data and not chunk:
                stream.check()
                raise damaged(where, kind, out_bytes, "ends too early")


def damaged(where: str, kind: str, out_bytes: int, what: str) -> SourceDamaged:
    return SourceDamaged(
        f"{where}: the {kind} data {what} after {out_bytes:,} unpacked bytes, which were read; "
        "copy the file again, or pack the log again."
    )
