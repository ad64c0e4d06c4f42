"""Measure the demo's history with `python -m examples.demo_history`, optionally beside a server
that shows it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import click

from compileboard.collectors.store.connection import StoreError
from compileboard.collectors.terminal import values as command_hints
from compileboard.command_line import SETTINGS, Command, run_group
from compileboard.exit_codes import INTERRUPTED
from examples.demo_history.history import HistoryStopped, end, find_setup, measure_history
from examples.demo_history.repository import NoRepository


def describe_pages(address: str | None) -> list[str]:
    """Return lines that say which pages to open and what they show."""
    where = f"{address}/" if address else "the dashboard (compileboard serve)"
    return [
        f"open {where} and look for",
        (
            "  encoder: 3 graph breaks since it prints in forward, until a later version takes the "
            "print out"
        ),
        "  ranker: graph breaks and a recompile since it scores a random half of the candidates",
        "  ranker: a version that fails to compile, with its commit and line",
    ]


def print_message(text: str) -> None:
    """Print a line that begins with this command's name."""
    print(f"demo history: {text}", file=sys.stderr, flush=True)


@click.command(cls=Command, context_settings={**SETTINGS, "allow_interspersed_args": False})
@click.option("--db", default=command_hints.DEFAULT_DATABASE, metavar="FILE", help="Database file.")
@click.option(
    "--backend",
    metavar="NAME",
    help="Backend of torch._dynamo. Default: inductor on a GPU, eager on a CPU.",
)
@click.option("--again", is_flag=True, help="Measure versions again that the database has.")
@click.option(
    "--port",
    default=8000,
    metavar="N",
    help="Port of the server, for the addresses that are printed.",
)
@click.argument(
    "command",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="[-- COMMAND]",
    help="Server to start first.",
)
def demo_history(
    db: str, backend: str | None, again: bool, port: int, command: tuple[str, ...]
) -> int:
    """Measure a small project's history, version by version, on this machine.

    A command given after -- starts a server of the same database first, and stops it at the end.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    server = None
    try:
        server = subprocess.Popen(command) if command else None
        address = f"http://127.0.0.1:{port}" if command else None
        measure(
            db,
            backend,
            lambda: server is None or server.poll() is None,
            again=again,
            address=address,
        )
        return server.wait() if server else 0
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        if server:
            end(server)


def main(argv: list[str] | None = None) -> int:
    """Run the command; return the server's exit code, or 0."""
    return run_group(demo_history, argv, "python -m examples.demo_history")


def measure(
    database: str,
    backend: str | None,
    go_on: Callable[[], bool],
    *,
    again: bool,
    address: str | None = None,
) -> None:
    """Measure the history until done or the server ends. An error is printed, and the server keeps
    running.
    """
    try:
        setup = find_setup(database, backend)
        print_message(
            f"measuring the versions of a small project that {database} does not have yet, on "
            f"{setup.device} with "
            f"backend {setup.backend}; the first one tells how long the others take"
        )
        count = measure_history(setup, print_message, again=again, go_on=go_on)
        if not go_on():
            return
        runs = "1 run" if count == 1 else f"{count} runs"
        print_message(f"recorded {runs}" if count else "it has them all; nothing to measure")
        for line in describe_pages(address):
            print_message(line)
    except (HistoryStopped, NoRepository, StoreError, OSError, subprocess.TimeoutExpired) as error:
        print_message(f"it stops here: {error}")
    except KeyboardInterrupt:
        print_message(
            "stopped; what is measured is kept, and the same command goes on with the rest"
        )
        raise


if __name__ == "__main__":
    sys.exit(main())
