"""Make values storable that JSON allows and a database does not: lone surrogates, endless integers, endless nesting.

Python reads NaN and Infinity as JSON, and nobody else does: they become texts.
"""

from __future__ import annotations

import re
from operator import is_
from typing import Any

_DEEPEST = 60
_TOO_DEEP = "<nested too deeply>"
_LARGEST = 2**63 - 1
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")  # how Python keeps a byte that is not UTF-8


def clean(value: Any, depth: int = 0) -> Any:
    """Give a JSON value with every text encodable as UTF-8, every number finite and in 64 bits, and a bounded depth.

    What is so already is returned itself, not a copy.
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # nan, inf, -inf
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST else hex(value)
    if depth >= _DEEPEST:
        return _TOO_DEEP
    if isinstance(value, dict):
        return _clean_dict(value, depth)
    if isinstance(value, list):
        if all(map(_is_plain, value)):
            return value
        copy = [clean(entry, depth + 1) for entry in value]
        return value if all(map(is_, copy, value)) else copy
    if isinstance(value, tuple):
        return [clean(entry, depth + 1) for entry in value]
    if isinstance(value, set | frozenset):
        return sorted((clean(entry, depth + 1) for entry in value), key=repr)
    return clean_text(repr(value))


def _clean_dict(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    for key, entry in value.items():  # one plain loop: most of what a log holds comes through here
        if not (type(key) is str and key.isascii()):
            break
        if type(entry) is str and entry.isascii():
            continue
        if not _is_plain(entry) and clean(entry, depth + 1) is not entry:
            break
    else:
        return value
    return {
        key if _is_name(key) else clean_text(str(key)): entry if _is_plain(entry) else clean(entry, depth + 1)
        for key, entry in value.items()
    }


def _is_plain(value: Any) -> bool:
    """Say quickly whether a value is surely clean: nearly all are, and a compile's metrics have a hundred."""
    kind = type(value)
    if kind is str:
        return str.isascii(value)
    if kind is int:
        return bool(-_LARGEST <= value <= _LARGEST)
    return value is None or kind is bool or (kind is float and value - value == 0)


def _is_name(key: Any) -> bool:
    return type(key) is str and key.isascii()


def clean_text(text: str) -> str:
    """Write lone surrogates as escapes: \\xe9 for a byte of an argument or a path that is not UTF-8, else \\ud800."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        bytes_shown = _ESCAPED_BYTE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text)
        return bytes_shown.encode("utf-8", "backslashreplace").decode("utf-8")
    return text
