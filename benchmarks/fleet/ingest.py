"""Ingest over HTTP, and pages meanwhile.

    python -m benchmarks.fleet.ingest --seconds 60 --boxes 8

Boxes send recorded events as streams over loopback, one request after another each, to the real
server with two workers; another client opens pages. The boxes share the machine's cores with the
server. With `--board` the server has runs already: the database that is given is written into, so
give a copy. Its runs are not indexed for search.
"""

from __future__ import annotations

import argparse
import gzip
import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from urllib.parse import urlsplit

from benchmarks.common import Row, describe_machine, percentile, print_table, scratch_folder
from benchmarks.fleet.recorded import build_stream, cut, read_lines
from benchmarks.serve.server import ask, serving
from compileboard.collectors.store.connection import open_reader, open_writer
from compileboard.collectors.store.migrations import migrate
from tests.tools.push.box import STREAM_PATH, Box, headers_of

PAGES = ("/", "/runs", "/graph_breaks", "/recompiles", "/runs/{run}")
PAGE_PAUSE_S = 0.2
# The runs that a board has: a server that is new to them would index each for search.
LEAVE_UNINDEXED = """
insert or replace into search_runs (run_id, indexed_us)
select id, 1 << 60
from runs
"""


@dataclass(frozen=True)
class Request:
    """A request as it goes over the wire."""

    run_id: str
    body: bytes
    headers: dict[str, str]


@dataclass
class Measured:
    """Seconds of each request and page, and what was refused for the time being."""

    request_s: list[float] = field(default_factory=list)
    page_s: list[float] = field(default_factory=list)
    later_count: int = 0
    failures: list[str] = field(default_factory=list)


def build_requests(count: int) -> Iterator[list[Request]]:
    """Yield the requests of each run."""
    for number in range(count):
        run_id, lines = build_stream(number)
        yield [
            Request(run_id, gzip.compress(plain, 1), headers_of(offset, plain, packed=True))
            for offset, plain in cut(lines)
        ]


def push(
    port: int, waiting: SimpleQueue[list[Request]], until_s: float, measured: Measured
) -> None:
    """Send streams, one after another, until the time is over."""
    box = Box(port, timeout_s=60)
    while time.monotonic() < until_s:
        try:
            requests = waiting.get_nowait()
        except Empty:
            measured.failures.append("the boxes ran out of streams")
            return
        for request in requests:
            while True:
                begin_s = time.perf_counter()
                status, headers, body = box.request(
                    "PATCH", STREAM_PATH.format(request.run_id, "s"), request.body, request.headers
                )
                if status not in (429, 503):
                    break
                measured.later_count += 1
                time.sleep(float(headers.get("Retry-After", 1)))
            measured.request_s.append(time.perf_counter() - begin_s)
            if status != 204:
                measured.failures.append(f"{status} {body[:200]!r}")


def browse(url: str, run_id: str, until_s: float, measured: Measured) -> None:
    """Open pages, one after another, until the time is over."""
    while time.monotonic() < until_s:
        for page in PAGES:
            answer = ask(url, page.format(run=run_id))
            measured.page_s.append(answer.seconds)
            if answer.status != 200:
                measured.failures.append(f"{page}: {answer.status}")
            time.sleep(PAGE_PAUSE_S)


def read_cpu_s() -> float:
    """Return the processor time so far of this process's children and theirs: the server and what
    it starts.
    """
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            values = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(values[1])
            used[int(folder.name)] = sum(
                map(int, values[11:15])
            )  # its own, and that of children that ended
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(used[pid] for pid in mine - {os.getpid()}) / os.sysconf("SC_CLK_TCK")


def measure(
    database: Path, seconds: float, box_count: int, run_count: int
) -> tuple[Measured, float, int, float]:
    """Return what was measured, for how long, how many events are stored then, and the server's CPU
    time.
    """
    waiting: SimpleQueue[list[Request]] = SimpleQueue()
    requests = list(build_requests(run_count))
    for of_run in requests:
        waiting.put(of_run)
    measured = Measured()
    migrate(str(database))
    with closing(open_writer(database)) as writer:
        writer.execute(LEAVE_UNINDEXED)
    with serving(database, COMPILEBOARD_WORKERS="2", COMPILEBOARD_PUSH_RATE_MIB="100000") as url:
        port = urlsplit(url).port or 80
        push(port, waiting, time.monotonic() + 1, Measured())  # what starts late: threads, caches
        with closing(open_reader(database)) as reader:
            (before_count,) = reader.execute("select count(*) from events").fetchone()
        begin_s, before_cpu_s = time.monotonic(), read_cpu_s()
        until_s = begin_s + seconds
        threads = [
            threading.Thread(target=push, args=(port, waiting, until_s, measured))
            for _ in range(box_count)
        ]
        threads.append(
            threading.Thread(target=browse, args=(url, requests[0][0].run_id, until_s, measured))
        )
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        duration_s, cpu_s = time.monotonic() - begin_s, read_cpu_s() - before_cpu_s
        with closing(open_reader(database)) as reader:
            (after_count,) = reader.execute("select count(*) from events").fetchone()
    return measured, duration_s, after_count - before_count, cpu_s


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--boxes", type=int, default=8)
    parser.add_argument(
        "--runs", type=int, default=0, help="runs to send; enough for 15,000 events/s by default"
    )
    parser.add_argument(
        "--board",
        type=Path,
        metavar="COPY.db",
        help="of benchmarks.store.multiply; else an empty one",
    )
    given = parser.parse_args()
    run_count = given.runs or int(given.seconds * 15_000 / len(read_lines()))
    with scratch_folder() as folder:
        board = given.board or folder / "b.db"
        measured, duration_s, event_count, cpu_s = measure(
            board, given.seconds, given.boxes, run_count
        )
    for failure in measured.failures[:5]:
        print(failure)
    rows = [
        Row("events a second", f"{event_count / duration_s:,.0f}", reach="8,000"),
        Row("server's CPU for 1,000 events, pages too", f"{cpu_s / event_count * 1000:.3f} s"),
        Row("request, p99", f"{percentile(measured.request_s, 0.99):.2f} s", reach="1 s"),
        Row("request, median", f"{percentile(measured.request_s, 0.5):.2f} s"),
        Row("page, p95", f"{percentile(measured.page_s, 0.95) * 1000:.0f} ms", reach="300 ms"),
        Row("page, median", f"{percentile(measured.page_s, 0.5) * 1000:.0f} ms"),
        Row("told to come later", f"{measured.later_count}"),
    ]
    print_table(
        f"{given.boxes} boxes, {duration_s:.0f} s, {len(measured.page_s)} pages",
        rows,
        describe_machine(),
    )


if __name__ == "__main__":
    main()
