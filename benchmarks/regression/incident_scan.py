"""Time the incident scan: `python -m benchmarks.regression.incident_scan [--days N] [--models N]`.

A history of nightly runs is made (benchmarks.store.result_history). All of it is scanned once, and
then its newest days come one by one, as on a dashboard that serves. Reading and writing the
database are part of it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from contextlib import closing
from itertools import islice
from pathlib import Path

from benchmarks.common import Row, print_table, scratch_folder
from benchmarks.store.result_history import record_days
from compileboard.app.incidents.update import UpdateReport, update_incidents
from compileboard.collectors.store.connection import checkpoint, open_writer
from compileboard.collectors.store.migrations import migrate

REPEATS = 5


def measure_update(
    database: Path, *, everything: bool = False
) -> tuple[float, float, UpdateReport]:
    """Return wall seconds, CPU seconds and what an update did."""
    wall, cpu = time.perf_counter(), time.process_time()
    done = update_incidents(database, everything=everything)
    return time.perf_counter() - wall, time.process_time() - cpu, done


def main(argv: list[str] | None = None) -> int:
    """Make the history, bring incidents up to date, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.regression.incident_scan", description=__doc__
    )
    parser.add_argument("--days", type=int, default=400)
    parser.add_argument("--models", type=int, default=200)
    arguments = parser.parse_args(argv)
    with scratch_folder() as folder:
        database = Path(folder, "history.db")
        migrate(database)
        with closing(open_writer(database)) as connection:
            days = record_days(connection, arguments.days, arguments.models)
            for _run_id in islice(days, arguments.days - REPEATS):
                pass
            checkpoint(connection)
            first = measure_update(database, everything=True)
            again = [measure_update(database, everything=True) for _ in range(REPEATS)]
            grown = [measure_update(database) for _run_id in days]
    what = f"{first[2].series_count} series × {arguments.days - REPEATS} runs"
    rows = [
        _row(
            f"{what}, the first time: {len(first[2].new_ids)} incidents with their evidence",
            [first],
            "",
        ),
        _row(f"{what}, again", again, "≤ 20 s"),
        _row("one new run of all models", grown, "≤ 1 s"),
    ]
    print_table("Incidents brought up to date", rows, headings=("what", "wall", "CPU", "", "reach"))
    return 0


def _row(what: str, measured: list[tuple[float, float, UpdateReport]], reach: str) -> Row:
    wall, cpu = (statistics.median(times[position] for times in measured) for position in (0, 1))  # type: ignore[misc]
    return Row(what, f"{wall:.2f} s", f"{cpu:.2f} s", "", reach)


if __name__ == "__main__":
    sys.exit(main())
