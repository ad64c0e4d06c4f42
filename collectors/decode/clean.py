"""Make values storable that JSON allows and a database does not: lone surrogates, endless integers, endless nesting."""

from __future__ import annotations

from typing import Any

_DEEPEST = 60
_TOO_DEEP = "<nested too deeply>"
_LARGEST = 2**63 - 1


def clean(value: Any, depth: int = 0) -> Any:
    """Give a JSON value with every text encodable as UTF-8, every integer within 64 bits, and a bounded depth.

    What is so already is returned itself, not a copy.
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST else hex(value)
    if depth >= _DEEPEST:
        return _TOO_DEEP
    if isinstance(value, dict):
        return _clean_dict(value, depth)
    if isinstance(value, list):
        copy = [entry if _is_clean(entry) else clean(entry, depth + 1) for entry in value]
        return value if all(map(_same, copy, value)) else copy
    if isinstance(value, tuple):
        return [clean(entry, depth + 1) for entry in value]
    if isinstance(value, set | frozenset):
        return sorted((clean(entry, depth + 1) for entry in value), key=repr)
    return clean_text(repr(value))


def _clean_dict(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    changed = False
    copy = {}
    for key, entry in value.items():
        # Inlined for speed: nearly all entries are plain, and a compile's metrics have a hundred.
        kind = type(entry)
        if kind is bool or entry is None or kind is float or (kind is str and entry.isascii()):
            new = entry
        else:
            new = clean(entry, depth + 1)
            changed = changed or new is not entry
        if type(key) is not str or not key.isascii():
            changed, key = True, clean_text(str(key))
        copy[key] = new
    return copy if changed else value


def _is_clean(entry: Any) -> bool:
    return type(entry) is str and entry.isascii()


def _same(one: Any, other: Any) -> bool:
    return one is other


def clean_text(text: str) -> str:
    """Replace lone surrogates, which JSON's \\ud800 can bring in."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text
