"""Names as parts of an address: whatever a model is called, its page can be opened.

What browsers and servers would change on the way (`..`, `//`, control characters) is written as `~` and two digits.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile(r"[~\x00-\x1f\x7f]|^/|(?<=/)/|/$|(?:(?<=/)|^)\.{1,2}(?=/|$)")
_WRITTEN = re.compile(r"~([0-7][0-9A-F])")
_EMPTY = "~"


def write_name(name: str) -> str:
    """Write a name as the end of an address."""
    return _UNSAFE.sub(lambda it: "".join(f"~{ord(one):02X}" for one in it[0]), name) or _EMPTY


def read_name(written: str) -> str:
    """Read a name that `write_name` wrote; one that was typed by hand may stay as it is."""
    return "" if written == _EMPTY else _WRITTEN.sub(lambda it: chr(int(it[1], 16)), written)
