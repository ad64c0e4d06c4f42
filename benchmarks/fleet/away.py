"""A server is away for an hour of events and comes back: what arrives, and what the box's memory
and disk took.

    python -m benchmarks.fleet.away [--events 360000] [--outbox-size 128MiB]

The hour is compressed to its number of events, by default 100 a second, each twentieth with a text
of 8 KiB. A process writes them as a recorder does while the sender tries a server that is not
there. Then one comes back at that address. The outbox is smaller than what comes, so that texts
have to go.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks.common import Row, print_table
from compileboard.collectors.contract.events import ArtifactSeen, CompileStarted, Event
from compileboard.collectors.logs.source import EventBatch
from compileboard.collectors.push.outbox import list_waiting, measure_bytes
from compileboard.collectors.push.sender import STATUS_NAME, spawn_sender
from compileboard.collectors.push.target import Target
from compileboard.collectors.record.outbox_sink import OutboxSink
from compileboard.collectors.terminal.values import read_size
from tests.unit.push.push_server import push_server

BATCH_EVENTS, TEXT_EVERY = 500, 20


def make_batches(event_count: int, seed: str = "0", process_id: str = "P") -> Iterator[list[Event]]:
    """Yield events as a busy program has them."""
    dice = random.Random(seed)
    for first in range(0, event_count, BATCH_EVENTS):
        batch: list[Event] = []
        for number in range(first, min(first + BATCH_EVENTS, event_count)):
            if number % TEXT_EVERY:
                batch.append(
                    CompileStarted(
                        process_id, number, number, f"0/{number}", function="forward", file="a.py"
                    )
                )
            else:
                text = dice.randbytes(4 << 10).hex()
                batch.append(
                    ArtifactSeen(process_id, number, number, name="graph", state="kept", text=text)
                )
        yield batch


def write(root: Path, address: str, event_count: int, max_bytes: int) -> int:
    """Write the hour, as a process of its own; print its largest memory after a tenth and at its
    end, and its disk.
    """
    sink = OutboxSink(root, "RUN", Target(address), max_bytes)
    early_bytes = most_used_bytes = 0
    for number, batch in enumerate(make_batches(event_count)):
        sink.ingest(EventBatch(batch))
        if number % 20 == 0:
            most_used_bytes = max(most_used_bytes, measure_bytes(root))
        if number == event_count // BATCH_EVENTS // 10:
            early_bytes = peak_bytes()
    sink.finish()
    sink.close()
    print(sink.lost_count, early_bytes, peak_bytes(), max(most_used_bytes, measure_bytes(root)))
    return 0


def peak_bytes() -> int:
    """Return the largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def deliver(root: Path) -> tuple[float, int]:
    """Wait until the sender that waits for the server has sent all; return its seconds and its
    largest memory.
    """
    began_s, largest_bytes = time.monotonic(), 0
    spawn_sender(root)  # as the next command does, if it gave up
    while any(True for _ in list_waiting(root)):
        with suppress(OSError, ValueError, KeyError):
            pid = json.loads((root / STATUS_NAME).read_text())["pid"]
            status = Path(f"/proc/{pid}/status").read_text()
            largest_bytes = max(largest_bytes, int(status.partition("VmHWM:")[2].split()[0]) << 10)
        time.sleep(0.1)
    return time.monotonic() - began_s, largest_bytes


def main() -> int:
    """Write, deliver and print a table; 1 if anything is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=360_000)
    parser.add_argument("--outbox-size", type=read_size, default=128 << 20)
    parser.add_argument("--write", nargs=2, metavar=("ROOT", "URL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        return write(
            Path(arguments.write[0]), arguments.write[1], arguments.events, arguments.outbox_size
        )
    with tempfile.TemporaryDirectory() as folder, push_server() as server:
        root = Path(folder) / "outbox"
        server.fault = lambda method, path: "cut"  # away
        sizes = ["--events", str(arguments.events), "--outbox-size", str(arguments.outbox_size)]
        command = [
            sys.executable,
            "-m",
            "benchmarks.fleet.away",
            *sizes,
            "--write",
            str(root),
            server.address,
        ]
        began_s = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        wrote_s = time.monotonic() - began_s
        lost_count, early_bytes, late_bytes, disk_bytes = map(int, done.stdout.split())
        assert any(True for _ in list_waiting(root)), "nothing waited: the server was not away"
        server.fault = lambda method, path: None
        sent_s, sender_bytes = deliver(root)
        lines = server.lines("RUN")
        event_count = sum(b'"kind":' in line for line in lines)
        is_whole = b'"mark":"end"' in lines[-1]
        rows = [
            Row(
                "events that arrived", f"{event_count:,}", f"{arguments.events:,} made", reach="all"
            ),
            Row("events without room, counted", f"{lost_count:,}", reach="0"),
            Row(
                "texts that arrived, dropped",
                f"{len(server.texts):,}, {len(set(server.dropped)):,}",
            ),
            Row(
                "disk at most",
                f"{disk_bytes / 1e6:.0f} MB",
                f"{arguments.outbox_size / 1e6:.0f} MB",
                reach="within",
            ),
            Row(
                "recorder's memory",
                f"{late_bytes / 1e6:.0f} MB",
                f"{early_bytes / 1e6:.0f} MB at a tenth",
                reach="=",
            ),
            Row("sender's memory", f"{sender_bytes / 1e6:.0f} MB"),
            Row("written in", f"{wrote_s:.0f} s", f"{arguments.events / wrote_s:,.0f} events/s"),
            Row("delivered in", f"{sent_s:.0f} s", f"{event_count / sent_s:,.0f} events/s"),
        ]
        print_table(
            "A server away for an hour of events",
            rows,
            headings=("what", "measured", "of", "", "reach"),
        )
    return 0 if event_count + lost_count == arguments.events and is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
