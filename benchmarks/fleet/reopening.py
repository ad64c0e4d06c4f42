"""How long others wait while a sealed run is put back.

    python -m benchmarks.fleet.reopening [--rows N]

A recorded run grows to N rows of spans and events, and is sealed. It is put back in steps, then in
one transaction; a second process writes a note every 20 ms meanwhile.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks.common import Row, print_table
from compileboard.collectors.store.connection import checkpoint, open_writer, write_transaction
from compileboard.collectors.store.dashboard import annotate
from compileboard.collectors.store.large_runs import reopen_large_run
from compileboard.collectors.store.reopening import reopen_run
from compileboard.collectors.store.sealing import seal_run
from tests.unit.app.explored import explore

EVERY_S = 0.02


def grow(board: sqlite3.Connection, run_id: str, row_count: int) -> int:
    """Copy the run's spans and events until it has so many; return how many it has."""
    names = {
        table: [
            row["name"] for row in board.execute("select name from pragma_table_info(?)", (table,))
        ]
        for table in ("spans", "events")
    }
    own = ", ".join(name for name in names["spans"] if name != "id")
    others = ", ".join(
        f"{name} + :step" if name == "sequence" else name for name in names["events"]
    )
    spans = (
        f"select {own} from spans where lane_id in (select id from lanes where run_id = "
        ":run_id) limit :most"
    )
    events = f"select {others} from events where run_id = :run_id limit :most"
    count, step = 0, 0
    while count < row_count:
        step = 10_000_000 + 2 * step
        values = {"run_id": run_id, "step": step, "most": (row_count - count) // 2 + 1}
        with write_transaction(board):
            board.execute(f"insert into spans ({own}) {spans}", values)
            board.execute(f"insert into events ({', '.join(names['events'])}) {events}", values)
        count = sum(
            board.execute(f"select count(*) from {query}", {"run_id": run_id}).fetchone()[0]
            for query in (
                "spans where lane_id in (select id from lanes where run_id = :run_id)",
                "events where run_id = :run_id",
            )
        )
    checkpoint(board)
    return count


def write_notes(
    path: str, run_id: str, is_over: Event, waits: multiprocessing.Queue[list[float]]
) -> None:
    """Write again and again, and measure how long each takes."""
    waited = []
    with closing(open_writer(path, busy_timeout_ms=600_000)) as writer:
        while not is_over.is_set():
            began_s = time.monotonic()
            annotate(writer, run_id, title=f"note {began_s}")
            waited.append(time.monotonic() - began_s)
            time.sleep(EVERY_S)
    waits.put(waited)


def reopen_at_once(board: sqlite3.Connection, run_id: str) -> None:
    """Put the rows back in one transaction, as of a small run."""
    with write_transaction(board):
        reopen_run(board, run_id)


def measure(
    board: sqlite3.Connection,
    path: str,
    run_id: str,
    reopen: Callable[[sqlite3.Connection, str], object],
) -> Row:
    """Seal the run, put it back and return the times."""
    (pub, other) = board.execute(
        "select pub, (select id from runs where id <> :id) from runs where id = :id", {"id": run_id}
    ).fetchone()
    columns = "run_id, run_pub, rows_pub, rows_run_pub, rows_count, rows_us, published_us"
    board.execute(
        f"insert or replace into published_runs ({columns}) values (?, ?, 1, ?, 1, 0, 0)",
        (run_id, pub, pub),
    )
    seal_run(board, run_id, now_us=2**60)
    return time_beside_writer(path, other, reopen.__name__, lambda: reopen(board, run_id))


def time_beside_writer(path: str, run_id: str, label: str, work: Callable[[], object]) -> Row:
    """Return what work takes, and how long a second process waits that writes notes to a run
    meanwhile.
    """
    is_over = multiprocessing.Event()
    waits: multiprocessing.Queue[list[float]] = multiprocessing.Queue()
    process = multiprocessing.Process(target=write_notes, args=(path, run_id, is_over, waits))
    process.start()
    time.sleep(1)
    before, began_s = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    work()
    took_s, after = time.monotonic() - began_s, resource.getrusage(resource.RUSAGE_SELF)
    is_over.set()
    waited = sorted(waits.get())
    process.join()
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    p99_s = statistics.quantiles(waited, n=100, method="inclusive")[98]
    return Row(
        label,
        (
            f"{took_s:.1f} s, CPU {cpu_s:.1f} s; {len(waited)} writes, p99 {p99_s:.3f} s, longest "
            f"{waited[-1]:.3f} s"
        ),
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure both ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--folder", help="where the board is made; default: a temporary folder")
    parser.add_argument("--steps-only", action="store_true", help="leave out the one transaction")
    parsed = parser.parse_args(arguments)
    ways = (reopen_large_run,) if parsed.steps_only else (reopen_large_run, reopen_at_once)
    with tempfile.TemporaryDirectory(dir=parsed.folder) as folder:
        path = str(Path(folder, "board.db"))
        explore(Path(path))
        with closing(open_writer(path)) as board:
            (run_id,) = board.execute(
                "select run_id from lanes group by run_id order by count(*) desc"
            ).fetchone()
            count = grow(board, run_id, parsed.rows)
            board.execute("update runs set heartbeat_us = 1, state = 'finished'")
            rows = [measure(board, path, run_id, reopen) for reopen in ways]
        print_table(f"{count:,} rows of one run", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
