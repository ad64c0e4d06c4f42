"""Time every page over a small and a large database in turns.

    python -m benchmarks.serve.two_sizes SMALL.db LARGE.db

The pages are asked of the application itself, without a network. CPU time is little disturbed by a
busy machine: the ratio is of it. Values that fill an address are drawn anew for each request, from
those that both databases have: of the most frequent graph breaks of each, the large database has
other ones, of more runs and periods.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import sys
import time
from contextlib import closing
from pathlib import Path

from werkzeug.test import Client

from benchmarks.common import Row, percentile, print_table
from benchmarks.serve.pages import fill, list_addresses, read_values
from compileboard.app import create_app
from compileboard.app.core.settings import Settings

REACH_MS = 300
REACH_RATIO = 1.5


def open_client(database: Path) -> Client:
    """Open an application over a database.

    Raises: SystemExit where it cannot read it.
    """
    client = create_app(Settings(db=str(database))).test_client()
    answer = client.get("/healthz")
    if answer.status_code != 200:
        raise SystemExit(f"{database}: {answer.get_data(as_text=True)}")
    return client


def time_page(client: Client, address: str) -> tuple[float, float] | None:
    """Ask for a page; return milliseconds of wall and of CPU, none where the database has nothing
    for it.
    """
    began_s, before_s = time.perf_counter(), time.process_time()
    answer = client.get(address)
    answer.get_data()
    took = (time.perf_counter() - began_s) * 1000, (time.process_time() - before_s) * 1000
    return took if answer.status_code == 200 else None


def make_row(what: str, template: str, times: list[list[tuple[float, float]]]) -> Row:
    """Make a page's row: p95 of the wall and median CPU of the large database, of the small one,
    and their ratio.
    """
    small, large = [percentile([wall for wall, _cpu in of_size], 0.95) for of_size in times]
    small_cpu, large_cpu = (statistics.median(cpu for _wall, cpu in of_size) for of_size in times)
    is_of_run = "/runs/" in template
    return Row(
        f"{what} `{template}`",
        f"{large:.0f} ms, CPU {large_cpu:.0f} ms",
        f"{small:.0f} ms, CPU {small_cpu:.0f} ms",
        f"{large_cpu / max(small_cpu, 0.1):.2f}",
        f"≤ {REACH_MS} ms" if is_of_run else f"≤ {REACH_MS} ms, ≤ {REACH_RATIO}",
    )


def describe(database: Path) -> str:
    """Return in words how large a database is."""
    with closing(
        sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
    ) as connection:
        runs, compilations = connection.execute(
            "select count(*), sum(record_count) from run_totals"
        ).fetchone()
    return f"{runs:,} runs, {compilations:,} compilations, {database.stat().st_size / 1e9:.1f} GB"


def share_values(
    small: dict[str, list[str]], large: dict[str, list[str]]
) -> list[dict[str, list[str]]]:
    """Leave out what the other database lacks, in the order of the small one; what they share
    nothing of stays.
    """
    both = {name: [value for value in small[name] if value in set(large[name])] for name in small}
    return [
        {name: both[name] or choices for name, choices in own.items()} for own in (small, large)
    ]


def main(argv: list[str] | None = None) -> int:
    """Ask for each page and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serve.two_sizes", description=__doc__
    )
    parser.add_argument("small", type=Path, metavar="SMALL.db", help="of benchmarks.store.multiply")
    parser.add_argument("large", type=Path, metavar="LARGE.db")
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument(
        "--only", default="", help="only addresses that, or whose names, contain this"
    )
    arguments = parser.parse_args(argv)
    databases = (arguments.small, arguments.large)
    clients = [open_client(database) for database in databases]
    values = share_values(*(read_values(database) for database in databases))
    rows = []
    for what, template, _has_chart in list_addresses(values[0], arguments.only):
        times: list[list[tuple[float, float]]] = [[], []]
        for number in range(-2, arguments.requests):
            for of_size, client, of_database in zip(times, clients, values):
                took = time_page(client, fill(template, of_database, number))
                if number >= 0 and took:
                    of_size.append(took)
        if all(times):
            rows.append(make_row(what, template, times))
    print_table(
        f"Pages of two databases, p95 of {arguments.requests} requests and median CPU",
        rows,
        *(
            f"{name}: {describe(database)}."
            for name, database in zip(("Large", "Small"), databases[::-1])
        ),
        headings=("address", "large", "small", "CPU ratio", "reach"),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
