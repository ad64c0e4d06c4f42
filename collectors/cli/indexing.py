"""`index`: add runs to the search index."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing

import click

from compileboard.collectors.cli.common import count_megabytes, db_option, print_message
from compileboard.collectors.store.connection import (
    StoreError,
    checkpoint,
    open_reader,
    open_writer,
)
from compileboard.collectors.store.search import index_run, list_pending
from compileboard.command_line import Command

PrintLine = Callable[[str], None]
CHECKPOINT_EVERY = 100  # runs: thousands of small ones would fill gigabytes of the log


@click.command(cls=Command)
@db_option
@click.argument(
    "runs", nargs=-1, metavar="[RUN ...]", help="Run's ID, its start, or latest. Default: all runs."
)
def index(db: str, runs: tuple[str, ...]) -> int:
    """Index runs for search: all, or those given. Indexed texts are skipped.

    `import` and `run` index automatically; use this for older databases and for runs they skipped.
    """
    return index_runs(db, runs, print_line=print_message)


def index_runs(database: str, run_ids: Sequence[str], *, print_line: PrintLine) -> int:
    open_reader(database).close()  # refuses a missing or older one before a writer could create it
    # Imported here because `import` does not need it, and it takes 0.1 s.
    from compileboard.collectors.terminal.run_summary import need_run

    with closing(open_writer(database)) as connection:
        chosen = [need_run(connection, given, database) for given in run_ids] or list_pending(
            connection
        )
        if not chosen:
            print_line(f"{database}: every run is in the search index")
        for number, run_id in enumerate(chosen, 1):
            where = f"{number} of {len(chosen)}: " if len(chosen) > 1 else ""
            print_line(
                index_one(connection, run_id, where=where) or f"{where}run {run_id}: nothing new"
            )
            if number % CHECKPOINT_EVERY == 0:
                checkpoint(connection)
        checkpoint(connection)
    return 0


def index_one(connection: sqlite3.Connection, run_id: str, *, where: str = "") -> str | None:
    began_s = time.monotonic()
    done = index_run(connection, run_id, progress=count_megabytes(f"{where}indexing"))
    if not done.complete:
        return f"{where}run {run_id} was deleted meanwhile"
    if not done.document_count:
        return None
    took_s = time.monotonic() - began_s
    texts = "1 text" if done.document_count == 1 else f"{done.document_count:,} texts"
    return (
        f"{where}run {run_id}: {texts} ({done.text_bytes / 1e6:.1f} MB) indexed for search in "
        f"{took_s:.1f} s"
    )


def index_after(connection: sqlite3.Connection, run_id: str, print_line: PrintLine) -> None:
    try:
        message = index_one(connection, run_id)
    except StoreError as error:
        message = f"not in the search index yet: {error}"
    if message:
        print_line(message)
