"""Text, code and numbers from runs as Markdown that cannot become markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from compileboard.app.format import NOT_RECORDED

MOST_TABLE_ROWS = 10
_LONGEST = 200
_APART = "\u200b"  # zero-width: shows nothing, and keeps @name, #12 and http:// from becoming links
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u200b\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_SPECIAL = re.compile(r"([\\`*_\[\]|~$#>])")


def prose(text: str | None, longest: int = _LONGEST) -> str:
    """Return text on one line as plain words: no markup, link or mention."""
    flat = _flat(text, longest)
    if not flat:
        return f"_{NOT_RECORDED}_"
    flat = _SPECIAL.sub(r"\\\1", flat.replace("&", "&amp;").replace("<", "&lt;"))
    flat = re.sub(r"(@|\\#|://|\bwww(?=\.)|\bGH(?=-\d))", rf"\1{_APART}", flat)
    return re.sub(r"^(\d+)([.)]\s)", r"\1\\\2", re.sub(r"^([-+=])", r"\\\1", flat))


def code(text: str | None, longest: int = _LONGEST) -> str:
    """Return code on one line in enough backticks; pipes are escaped for tables."""
    flat = _flat(text, longest)
    if not flat:
        return f"_{NOT_RECORDED}_"
    fence = "`" * (max((len(run) for run in re.findall("`+", flat)), default=0) + 1)
    space = " " if flat.startswith("`") or flat.endswith("`") or len(fence) > 1 else ""
    # A table cell ends at a pipe even inside backticks, and a backslash before it stays one.
    return f"{fence}{space}{flat}{space}{fence}".replace("\\|", "\\\u200b|").replace("|", "\\|")


def _flat(text: str | None, longest: int) -> str:
    flat = " ".join(_CONTROL.sub(" ", text or "").split())
    return flat if len(flat) <= longest else flat[: longest - 1].rstrip() + "…"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table; a heading that ends in ">" marks a column of numbers."""
    heads = [column.removesuffix(">") for column in columns]
    lines = [heads, ["--:" if column.endswith(">") else ":--" for column in columns], *rows]
    return [f"| {' | '.join(line)} |" for line in lines]
