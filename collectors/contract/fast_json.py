"""Read and write JSON, several times as fast where orjson is installed."""

from __future__ import annotations

import json
from typing import Any

try:
    import orjson
except ImportError:  # a collector of the standard library alone reads logs all the same
    orjson = None  # type: ignore[assignment]


def loads(text: bytes) -> Any:
    """Parse a JSON text.

    Raises: ValueError (UnicodeDecodeError among them) or RecursionError if it is none.
    """
    if orjson is not None:
        try:
            return orjson.loads(text)
        except ValueError:
            pass  # NaN, lone surrogates, integers beyond 64 bits: torch writes them, json reads them
    return json.loads(text.decode())


_encode = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps makes a new one each time


def dumps(value: Any) -> str:
    """Write a JSON text without spaces."""
    if orjson is not None:
        try:
            return orjson.dumps(value).decode()
        except TypeError:
            pass  # integers beyond 64 bits, lone surrogates, keys that are no texts
    return _encode(value)
