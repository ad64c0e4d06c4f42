"""Make values storable that JSON allows and a database does not: lone surrogates, endless integers, endless nesting."""

from __future__ import annotations

from typing import Any

_DEEPEST = 60
_TOO_DEEP = "<nested too deeply>"


def clean(value: Any, depth: int = 0) -> Any:
    """Copy a JSON value with every text encodable as UTF-8, every integer within 64 bits, and a bounded depth."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return value
    if isinstance(value, int):
        return value if value.bit_length() < 64 else hex(value)
    if depth >= _DEEPEST:
        return _TOO_DEEP
    if isinstance(value, dict):
        return {clean_text(str(key)): clean(entry, depth + 1) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [clean(entry, depth + 1) for entry in value]
    if isinstance(value, set | frozenset):
        return sorted((clean(entry, depth + 1) for entry in value), key=repr)
    return clean_text(repr(value))


def clean_text(text: str) -> str:
    """Replace lone surrogates, which JSON's \\ud800 can bring in."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text
