"""Torch's own logs of a recorded run, read beside what the hooks recorded."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from compileboard.collectors.contract.events import Event, ProcessStarted, RunStarted
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.logs.sqlite_sink import SqliteSink
from compileboard.collectors.logs.trace_source import read_hooked_log
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import HELD_WHOLE, Ingestor
from compileboard.collectors.store.migrations import migrate_connection
from tests.tools.trace_logs import read_trace_log
from tests.unit.decode.recorded_logs import log_bytes

LOG = "torch2.11-cuda-zoo_recompiles"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "dedicated_log_torch_trace_x.log"
    path.write_bytes(log_bytes(LOG))
    return path


@pytest.fixture
def store(tmp_path: Path, log: Path) -> sqlite3.Connection:
    """Record the log's events as the hooks would have."""
    connection = open_writer(tmp_path / "t.db")
    migrate_connection(connection)
    captured = list(read_trace_log(log, "hooked"))
    events: list[Event] = [
        RunStarted("r", 0, 0, "R", "run"),
        ProcessStarted("hooked", -1, captured[0].time_us, "R", 1),
    ]
    events += [
        e for record in captured for e in Decoder().decode(record) if type(e) not in HELD_WHOLE
    ]
    Ingestor(connection).ingest("R", events)
    yield connection
    connection.close()


def counts(store: sqlite3.Connection) -> dict[str, int]:
    tables = ("events", "compiles", "artifacts", "spans", "guard_sets")
    return {table: store.execute(f"select count(*) from {table}").fetchone()[0] for table in tables}


def test_a_log_adds_what_the_hooks_do_not_see_and_nothing_else(
    store: sqlite3.Connection, log: Path
) -> None:
    before = counts(store)
    read_hooked_log(SqliteSink(store, "t.db", "R"), Decoder(), log, "hooked")
    after = counts(store)
    assert (after["events"], after["compiles"]) == (before["events"], before["compiles"])
    assert after["artifacts"] > before["artifacts"] == 0
    loose = store.execute(
        "select distinct name from artifacts where compile_key is null"
    ).fetchall()
    assert [row["name"] for row in loose] == []


def test_reading_again_adds_nothing(store: sqlite3.Connection, log: Path) -> None:
    for _ in range(2):
        read_hooked_log(SqliteSink(store, "t.db", "R"), Decoder(), log, "hooked")
    first = counts(store)
    read_hooked_log(SqliteSink(store, "t.db", "R"), Decoder(), log, "hooked")
    assert counts(store) == first
