"""Parse command-line values. A ValueError says what was expected."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import sys
from collections.abc import Sequence

from compileboard.collectors.store.connection import find_address

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, with two spaces between its columns."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows
    ]


def first_line(text: str, most: int = 160) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= most else line[:most].rsplit(" ", 1)[0] + " …"


def read_count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"expected a number from 1 up, got {text!r}")
    return int(text)


def read_seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"expected seconds above 0, got {text!r}")
    return value


def read_fraction(text: str) -> float:
    value = read_seconds(text)
    if value > 1:
        raise ValueError(f"expected a share between 0 and 1, got {text!r}")
    return value


def read_pair(text: str) -> tuple[str, str]:
    key, value = read_key(text, "KEY=VALUE")
    if value is None:
        raise ValueError(f"expected KEY=VALUE, got {text!r}")
    return key, value


def read_key(text: str, expected: str = "KEY or KEY=VALUE") -> tuple[str, str | None]:
    """Parse KEY=VALUE, or KEY alone with the value None. Raises ValueError if KEY is empty."""
    key, equals, value = text.partition("=")
    if not key.strip():
        raise ValueError(f"expected {expected}, got {text!r}")
    return key.strip(), value if equals else None


def read_tag(text: str) -> tuple[str, str]:
    """Parse KEY=VALUE; a single word is the value of `tag`. Raises ValueError if KEY is empty."""
    key, value = read_key(text, "KEY=VALUE or a word")
    return ("tag", key) if value is None else (key, value)


def read_size(text: str) -> int:
    """Parse a number of bytes such as 500M or 8G. Raises ValueError unless it is positive, in a
    known unit.
    """
    digits = text.strip().upper().removesuffix("B").removesuffix("I")
    unit = digits[-1:] if digits[-1:].isalpha() else ""
    number = digits[: len(digits) - len(unit)]
    if unit not in UNITS or not number.isdigit() or int(number) < 1:
        raise ValueError(f"expected a size such as 500M or 8G, got {text!r}")
    return int(number) * UNITS[unit]


DEFAULT_DATABASE = "compileboard.db"
PACKAGES = {"compileboard-collect": "collectors", "compileboard": "app"}


def collector_command(*words: str, database: str = DEFAULT_DATABASE, then: str = "") -> str:
    return _format_command("compileboard-collect", words, database, then)


def dashboard_command(*words: str, database: str = DEFAULT_DATABASE) -> str:
    return _format_command("compileboard", words, database, "")


def _format_command(script: str, words: tuple[str, ...], database: str, then: str) -> str:
    parts = [_program_name(script), *map(shlex.quote, words)]
    if database != DEFAULT_DATABASE:
        parts += ["--db", shlex.quote(find_address(database))]
    return " ".join([*parts, then] if then else parts)


def _program_name(script: str) -> str:
    invoked = sys.argv[0] if sys.argv else ""
    if os.path.basename(invoked) == "__main__.py":
        original = getattr(sys, "orig_argv", None) or ["python"]
        in_clone = any(package in original for package in PACKAGES.values())
        return (
            f"{shlex.quote(original[0])} -m {'' if in_clone else 'compileboard.'}{PACKAGES[script]}"
        )
    if os.path.basename(invoked) in PACKAGES:
        folder = os.path.dirname(invoked)  # started by its path, so neither command is on PATH
        return (
            shlex.quote(os.path.join(folder, script))
            if folder and not shutil.which(script)
            else script
        )
    return script if shutil.which(script) else f"python -m compileboard.{PACKAGES[script]}"


def count_text(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"
