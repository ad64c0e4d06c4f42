"""What several commands of the collector take, and how all of them speak."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress

import click

from compileboard.collectors.terminal.command_hints import DEFAULT_DATABASE
from compileboard.collectors.terminal.values import read_pair
from compileboard.command_line import Value

db_option = click.option(
    "--db",
    default=DEFAULT_DATABASE,
    type=click.Path(readable=False),
    metavar="FILE",
    help=f"Database file. Default: {DEFAULT_DATABASE} in this folder.",
)
tag_option = click.option(
    "--tag",
    "tags",
    multiple=True,
    type=Value(read_pair),
    metavar="KEY=VALUE",
    help="Tag to find the run by; repeatable.",
)


def print_message(text: str) -> None:
    """Print one line of our own, apart from the program's output."""
    if sys.stderr is None:  # closed by the caller; print() would then take stdout
        return
    with suppress(OSError, ValueError):  # nobody reads it any more: no reason to leave the program alone
        print(f"compileboard: {text}", file=sys.stderr, flush=True)


def count_megabytes(label: str, total_bytes: int = 0) -> Callable[[int], None]:
    """Return what shows how many bytes are done: on a terminal, a line that is written anew every quarter second."""
    if sys.stderr is None or not sys.stderr.isatty():
        return lambda _bytes: None
    total = f" of {total_bytes / 1e6:,.0f}" if total_bytes else ""
    shown_s = time.monotonic()

    def show(done_bytes: int) -> None:
        nonlocal shown_s
        if time.monotonic() - shown_s > 0.25:
            shown_s = time.monotonic()
            sys.stderr.write(f"\r{label}: {done_bytes / 1e6:,.0f}{total} MB \x1b[K\r")
            sys.stderr.flush()

    return show
