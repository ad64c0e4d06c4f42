"""Compress texts for the store. The first byte says how, so that a later way can stand beside this one."""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path

PLAIN = b"\x01"
PRIMED = b"\x02"  # with the dictionary below


@cache
def _dictionary() -> bytes:
    # Typical events; never edit it: bodies written with it need it to be read. A better one is a new way.
    return Path(__file__).with_name("dictionary_2.txt").read_bytes()


def pack(text: str, *, primed: bool = True) -> bytes:
    """Compress a text; `primed` suits event bodies, 2–3 times smaller with the dictionary."""
    compressor = zlib.compressobj(6, zdict=_dictionary()) if primed else zlib.compressobj(6)
    return (PRIMED if primed else PLAIN) + compressor.compress(text.encode()) + compressor.flush()


def unpack(blob: bytes) -> str:
    """Read back what `pack` wrote.

    Raises: ValueError if the blob is damaged or of a later version.
    """
    way, body = blob[:1], blob[1:]
    if way not in (PLAIN, PRIMED):
        raise ValueError(f"unknown compression {way!r}; written by a newer CompileBoard?")
    try:
        expander = zlib.decompressobj(zdict=_dictionary()) if way == PRIMED else zlib.decompressobj()
        text = expander.decompress(body) + expander.flush()
    except zlib.error as error:
        raise ValueError(f"a stored text is damaged: {error}") from None
    if not expander.eof:
        raise ValueError("a stored text is damaged: it breaks off")
    return text.decode()
