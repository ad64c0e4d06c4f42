"""The `--limit-…` options of commands that read untrusted logs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from typing import Any

import click

from compileboard.collectors.logs.streams import Limits
from compileboard.collectors.terminal.values import read_count, read_size
from compileboard.command_line import Option, Value

# torch writes about 250 rows per MB of log: 64 GiB correspond to the limits on records and rows.
DEFAULT_LIMITS = Limits(64 << 30, 1000, 200_000, 20_000_000, 20_000_000)
LIMITS = {
    "bytes": (
        "Most unpacked bytes of compressed files and archives of a PATH, as 200G. Default: 64G."
    ),
    "ratio": (
        "Largest unpacked ÷ packed size of a file; real logs reach 180. Default: "
        f"{DEFAULT_LIMITS.ratio}."
    ),
    "entries": f"Most entries in archives. Default: {DEFAULT_LIMITS.entries}.",
    "records": f"Most records to import. Default: {DEFAULT_LIMITS.records}.",
    "rows": f"Most rows to write into the database. Default: {DEFAULT_LIMITS.rows}.",
}


def limit_options(function: Callable[..., int]) -> Callable[..., int]:
    for (name, text), default in reversed(
        list(zip(LIMITS.items(), astuple(DEFAULT_LIMITS), strict=True))
    ):
        words: dict[str, Any] = {
            "type": Value(read_size if name == "bytes" else read_count),
            "default": default,
            "metavar": "N",
            "help": text,
            "cls": Option,
            "group": "Limits on what others sent",
        }
        function = click.option(f"--limit-{name}", **words)(function)
    return function


def pop_limits(values: dict[str, Any]) -> Limits:
    return Limits(*(values.pop(f"limit_{name}") for name in LIMITS))
