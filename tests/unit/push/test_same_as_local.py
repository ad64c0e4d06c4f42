"""A pushed run has the same rows as one recorded into a database, its trace log too."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from werkzeug.serving import make_server

from compileboard.app import create_app
from compileboard.app.core.settings import Settings
from compileboard.collectors.contract.events import Event, ProcessStarted, RunStarted
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.logs.source import EventBatch
from compileboard.collectors.logs.sqlite_sink import SqliteSink
from compileboard.collectors.logs.trace_source import read_hooked_log
from compileboard.collectors.push import sender
from compileboard.collectors.push.outbox import list_waiting
from compileboard.collectors.push.sender import Sender
from compileboard.collectors.push.target import Target
from compileboard.collectors.record import outbox_sink
from compileboard.collectors.record.outbox_sink import OutboxSink
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.store.ingest.ingestor import HELD_WHOLE
from compileboard.collectors.store.migrations import migrate
from tests.tools.trace_logs import read_trace_log
from tests.unit.decode.recorded_logs import log_bytes

LOG = "torch2.11-cuda-zoo_recompiles"
TABLES = {
    "events": "process_id, sequence, kind, time_us",
    "artifacts left join payloads on payloads.id = payload_id": (
        "sequence, name, state, digest, compile_key"
    ),
    "logs": (
        "process_id, name, size_bytes, end_offset_bytes, line_count, record_count, payloads, "
        "last_us"
    ),
    "trace_files join trace_pieces using (run_id, name)": "name, size_bytes, position, body",
    "run_totals": "*",
}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "dedicated_log_torch_trace_x.log"
    path.write_bytes(log_bytes(LOG))
    return path


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    database = tmp_path / "server.db"
    migrate(str(database))
    server = make_server("127.0.0.1", 0, create_app(Settings(db=str(database))), threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def record(sink: OutboxSink | SqliteSink, log: Path) -> None:
    """Record what the hooks tell of the log's process, then the log itself."""
    captured = list(read_trace_log(log, "hooked"))
    events: list[Event] = [
        RunStarted("r", 0, 0, "R", "run"),
        ProcessStarted("hooked", -1, captured[0].time_us, "R", 1),
    ]
    events += [e for line in captured for e in Decoder().decode(line) if type(e) not in HELD_WHOLE]
    sink.ingest(EventBatch(events))
    read_hooked_log(sink, Decoder(), log, "hooked")
    sink.save_trace_file(log)


def read(database: Path, table: str) -> list[tuple[object, ...]]:
    with closing(open_reader(database)) as reader:
        reader.row_factory = sqlite3.Row
        rows = reader.execute(f"select {TABLES[table]} from {table}")
        return sorted((tuple(row) for row in rows), key=repr)


def push(root: Path, address: str, log: Path) -> tuple[int, int, int]:
    sink = OutboxSink(root, "R", Target(address), 64 << 20)
    record(sink, log)
    sink.finish()
    sink.close()
    with closing(Sender(root, {})) as sending:
        while waiting := list(list_waiting(root)):
            sending.step(waiting)
    return sink.count_compiles()


def test_a_pushed_run_has_the_rows_of_a_recorded_one(
    tmp_path: Path, address: str, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "LINGER_S", 0.05)
    monkeypatch.setattr(outbox_sink, "spawn_sender", lambda root: None)
    with closing(SqliteSink.open(str(tmp_path / "local.db"), "R")) as sink:
        record(sink, log)
        counts = sink.count_compiles()
    for _again in range(2):  # a recorder that starts anew tells everything under another stream
        assert push(tmp_path / "outbox", address, log) == counts
        for table in TABLES:
            rows = read(tmp_path / "server.db", table)
            assert rows == read(tmp_path / "local.db", table)
            assert rows
