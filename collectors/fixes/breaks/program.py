"""Whole programs as the pages show them."""

from __future__ import annotations

import textwrap


def program(text: str) -> str:
    """Return a program's text without the indentation and the empty line that it is written with."""
    return textwrap.dedent(text).lstrip("\n")


def with_settings(text: str, *statements: str) -> str:
    """Return a program that runs statements right after its imports."""
    lines = text.splitlines()
    last_import = max(i for i, line in enumerate(lines) if line.startswith(("import ", "from ")))
    return "\n".join([*lines[: last_import + 1], "", *statements, *lines[last_import + 1 :]]) + "\n"
