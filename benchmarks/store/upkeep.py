"""Back up, verify and prune a database that is written meanwhile.

    python -m benchmarks.store.upkeep COPY.db

Each command runs in a process of its own. Beside it a writer commits a small transaction every 20
ms, as recorders do. The database is changed and pruned, so give a copy; the backup is made beside
it and deleted.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from benchmarks.common import ROOT, Row, clean_environment, percentile, print_table
from compileboard.collectors.store.connection import checkpoint, open_writer, write_transaction

WRITE_PAUSE_S = 0.02
CHECKPOINT_EVERY = 50  # transactions
WAIT_MS = 60_000


@dataclass
class Writer:
    """What a writer met: seconds of each transaction, and the most bytes that the write-ahead log
    had.
    """

    database: Path
    transaction_s: list[float] = field(default_factory=list)
    max_log_bytes: int = 0

    def write(self, stop: threading.Event) -> None:
        """Commit small transactions until it is told to stop."""
        with closing(
            open_writer(self.database, create=False, busy_timeout_ms=WAIT_MS)
        ) as connection:
            (run_id,) = connection.execute("select max(id) from runs").fetchone()
            while not stop.is_set():
                began_s = time.perf_counter()
                with write_transaction(connection):
                    connection.execute(
                        "update runs set heartbeat_us = heartbeat_us + 1 where id = ?", (run_id,)
                    )
                self.transaction_s.append(time.perf_counter() - began_s)
                if len(self.transaction_s) % CHECKPOINT_EVERY == 0:
                    checkpoint(connection)
                with suppress(OSError):
                    size_bytes = Path(f"{self.database}-wal").stat().st_size
                    self.max_log_bytes = max(self.max_log_bytes, size_bytes)
                stop.wait(WRITE_PAUSE_S)


def read_own_bytes(pid: int) -> int:
    """Return the memory that is a process's own: pages of the database that it has mapped are
    not.
    """
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def measure(what: str, arguments: Sequence[str], database: Path) -> Row:
    """Run a command beside a writer; return its row."""
    writer, stop = Writer(database), threading.Event()
    thread = threading.Thread(target=writer.write, args=(stop,))
    thread.start()
    before, began_s, max_bytes, silent_s = (
        resource.getrusage(resource.RUSAGE_CHILDREN),
        time.monotonic(),
        0,
        0.0,
    )
    command = [sys.executable, "-m", "compileboard.app", *arguments, "--db", str(database)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=clean_environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines: list[float] = []
    reading = threading.Thread(
        target=lambda: lines.extend(time.monotonic() for _line in process.stdout or ())
    )
    reading.start()
    while process.poll() is None:
        max_bytes = max(max_bytes, read_own_bytes(process.pid))
        time.sleep(0.1)
    ended_s = time.monotonic()
    reading.join()
    stop.set()
    thread.join()
    moments = [began_s, *lines, ended_s]
    silent_s = max(after - earlier for earlier, after in pairwise(moments))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return Row(
        f"{what}, exit {process.returncode}",
        f"{ended_s - began_s:.0f} s, CPU {cpu_s:.0f} s, {max_bytes / 1e6:.0f} MB",
        f"{max(writer.transaction_s):.2f} s, p99 "
        f"{percentile(writer.transaction_s, 0.99) * 1000:.0f} ms "
        f"of {len(writer.transaction_s):,}",
        f"{writer.max_log_bytes / 1e6:.0f} MB",
        f"{silent_s:.0f} s",
    )


def main(argv: list[str] | None = None) -> int:
    """Run the commands and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store.upkeep", description=__doc__)
    parser.add_argument(
        "database", type=Path, metavar="COPY.db", help="a copy of one of benchmarks.store.multiply"
    )
    parser.add_argument("--older-than", default="720d", help="what is pruned")
    parser.add_argument("--only", nargs="*", default=["backup", "verify", "prune"])
    given = parser.parse_args(argv)
    size_gb = given.database.stat().st_size / 1e9
    backup = given.database.with_name(f"{given.database.name}.backup")
    commands = {
        "backup": ["backup", str(backup)],
        "verify": ["verify"],
        "prune": ["prune", "--older-than", given.older_than],
    }
    rows = []
    for name in given.only:
        rows.append(measure(name, commands[name], given.database))
        shutil.rmtree(backup, ignore_errors=True)
    print_table(
        f"Commands over {size_gb:.1f} GB, beside a writer",
        rows,
        headings=(
            "command",
            "took",
            "a transaction beside it, longest",
            "write-ahead log",
            "longest without a line",
        ),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
