"""Tables of the documentation that a command writes."""

from __future__ import annotations

from collections.abc import Iterable


def fill_table(text: str, name: str, lines: Iterable[str]) -> str:
    """Return a page with the lines of one table, which stands between comments, written anew."""
    start, end = f"<!-- {name} -->\n", "<!-- end -->"
    before, _start, rest = text.partition(start)
    return "\n".join([before + start.rstrip("\n"), *lines, end + rest.partition(end)[2]])
