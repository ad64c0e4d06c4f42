"""Boxes push through a faulty proxy to a server that is killed; then every row is compared."""

from __future__ import annotations

import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from compileboard.collectors.contract.events import (
    ArtifactSeen,
    Event,
    ProcessStarted,
    RecordsLost,
    RunEnded,
    RunStarted,
    SpanSeen,
    load_event,
)
from compileboard.collectors.store.connection import open_reader, open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate
from tests.tools.observed import ROOT
from tests.tools.push.box import Box, StreamBytes
from tests.tools.push.proxy import FaultyProxy
from tests.tools.serving import server_environ

BATCH_EVENTS = 500
# What is compared of each: numbers that SQLite gives in the order of arrival are left out.
CONTENTS = {
    "events": "run_id, process_id, sequence, kind, time_us",
    "processes": "run_id, id, pid, rank",
    "compiles": "run_id, process_id, generation, compile_id, outcome",
    "artifacts left join payloads on payloads.id = payload_id": (
        "run_id, process_id, sequence, state, digest"
    ),
    "spans": "begin_us, duration_us, depth, compile_id",
    "span_totals": "span_count, ended_count, total_us, exclusive_us",
    "payloads where digest not in (select digest from sent_texts)": "digest, size_bytes",
    "run_totals": "*",
    "runs": "id, name, state, started_us, ended_us",
    "run_rejects": "run_id, kind",
}


@dataclass(frozen=True)
class FleetResult:
    """How it went: requests, faults, and the contents that differ."""

    request_count: int
    event_count: int
    faults: dict[str, int]
    kill_count: int
    seconds: float
    differing: list[str]


def build_events(recorded: list[str], number: int) -> list[Event]:
    """Return a box's events: recorded ones under a run of its own, and a log's artifacts and
    spans.
    """
    run_id, suffix = f"01FAULTS{number:018d}", f"-{number}"
    events: list[Event] = []
    for line in recorded:
        event = load_event(line)
        if isinstance(event, (RunStarted, RunEnded, ProcessStarted, RecordsLost)):
            event = replace(event, run_id=run_id)
        events.append(replace(event, process_id=event.process_id + suffix))
    process_id = next(event.process_id for event in events if isinstance(event, ProcessStarted))
    for position in range(60):
        at = 1_000_000 + 50 * position
        events += [
            SpanSeen(process_id, at, at, name=f"phase {position % 7}", phase="B", at_us=at),
            SpanSeen(process_id, at + 1, at, name=f"phase {position % 7}", phase="E", at_us=at + 9),
        ]
    for position in range(6):
        text = f"graph {number % 3} {position} " * 900  # boxes share texts
        at = 2_000_000 + position
        events.append(
            ArtifactSeen(
                process_id, at, at, name="graph", state="kept", size_bytes=len(text), text=text
            )
        )
    return events


def push_all(
    folder: Path,
    recorded: list[str],
    box_count: int,
    kill_count: int,
    *,
    share: float = 0.1,
    seed: int = 0,
) -> FleetResult:
    """Push with that many boxes while the server is killed that often; compare with the same events
    stored here.
    """
    pushed, local = folder / "pushed.db", folder / "local.db"
    migrate(str(pushed))
    migrate(str(local))
    boxes = [build_events(recorded, number) for number in range(box_count)]
    chance, port, counts = random.Random(seed), _find_port(), [0] * box_count
    proxy, stop, begin_s = FaultyProxy(port, share, seed), threading.Event(), time.monotonic()
    killer = threading.Thread(target=_serve_and_kill, args=(pushed, port, kill_count, chance, stop))

    def push(number: int) -> None:
        box = Box(proxy.port)
        stream = StreamBytes.of(boxes[number])
        counts[number] = box.send(_run_id(boxes[number]), "s1", stream, max_bytes=16 << 10)
        box.close()

    threads = [
        threading.Thread(target=push, args=(number,), daemon=True) for number in range(box_count)
    ]
    killer.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    killer.join()
    proxy.close()
    seconds = time.monotonic() - begin_s
    _store(local, boxes)
    differing = [name for name in CONTENTS if _read(pushed, name) != _read(local, name)]
    return FleetResult(
        sum(counts), sum(map(len, boxes)), proxy.counts, kill_count, seconds, differing
    )


def _run_id(events: list[Event]) -> str:
    return next(event.run_id for event in events if isinstance(event, RunStarted))


def _find_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _serve_and_kill(
    database: Path, port: int, kill_count: int, chance: random.Random, stop: threading.Event
) -> None:
    """Serve until told to stop; kill the server that often meanwhile, each time when it has
    answered for a moment.
    """
    for number in range(kill_count + 1):
        with _server(database, port):
            while not stop.is_set() and not _answers(port):
                time.sleep(0.05)
            if number < kill_count:
                stop.wait(chance.uniform(0.05, 0.3))
            else:
                stop.wait()


@contextmanager
def _server(database: Path, port: int) -> Iterator[None]:
    command = [
        sys.executable,
        "-m",
        "compileboard.app",
        "serve",
        "--db",
        str(database),
        "--port",
        str(port),
    ]
    environ = server_environ(
        database.parent / "home", COMPILEBOARD_FOLLOW="no", COMPILEBOARD_WORKERS="2"
    )
    server = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environ,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _store(database: Path, boxes: list[list[Event]]) -> None:
    with closing(open_writer(database)) as connection:
        for events in boxes:
            ingestor = Ingestor(connection, str(database))
            for begin in range(0, len(events), BATCH_EVENTS):
                ingestor.ingest(_run_id(events), events[begin : begin + BATCH_EVENTS])


def _read(database: Path, table: str) -> list[tuple[object, ...]]:
    with closing(open_reader(database)) as reader:
        reader.row_factory = sqlite3.Row
        rows = reader.execute(f"select {CONTENTS[table]} from {table}")
        return sorted((tuple(row) for row in rows), key=repr)
