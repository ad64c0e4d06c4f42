"""Torch's own logs of a recorded run, read beside what the hooks recorded."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from compileboard.collectors.contract.events import Event, ProcessStarted, RunStarted
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.pipeline.sqlite_sink import SqliteSink
from compileboard.collectors.pipeline.trace_source import read_hooked_log
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
    """Record the log's events as the hooks would have, with the process's pid."""
    connection = open_writer(tmp_path / "t.db")
    migrate_connection(connection)
    captured = list(read_trace_log(log, "hooked"))
    pid = int(log.read_text().split()[2])
    events: list[Event] = [
        RunStarted("r", 0, 0, "R", "run"),
        ProcessStarted("hooked", -1, captured[0].time_us, "R", pid),
    ]
    events += [e for record in captured for e in Decoder().decode(record) if type(e) not in HELD_WHOLE]
    Ingestor(connection).ingest("R", events)
    yield connection
    connection.close()


def counts(store: sqlite3.Connection) -> dict[str, int]:
    tables = ("events", "compiles", "artifacts", "spans", "guard_sets")
    return {table: store.execute(f"select count(*) from {table}").fetchone()[0] for table in tables}


def test_a_log_adds_what_the_hooks_do_not_see_and_nothing_else(store: sqlite3.Connection, log: Path) -> None:
    before = counts(store)
    assert read_hooked_log(SqliteSink(store, "t.db", "R"), Decoder(), log)
    after = counts(store)
    assert (after["events"], after["compiles"]) == (before["events"], before["compiles"])
    assert after["artifacts"] > before["artifacts"] == 0
    loose = store.execute("select distinct name from artifacts where compile_key is null").fetchall()
    assert [row["name"] for row in loose] == []


def test_reading_again_adds_nothing(store: sqlite3.Connection, log: Path) -> None:
    for _ in range(2):
        read_hooked_log(SqliteSink(store, "t.db", "R"), Decoder(), log)
    first = counts(store)
    read_hooked_log(SqliteSink(store, "t.db", "R"), Decoder(), log)
    assert counts(store) == first


def test_a_log_of_another_process_is_left_alone(store: sqlite3.Connection, log: Path) -> None:
    log.write_bytes(log.read_bytes().replace(b" 4386 ", b" 99999 "))
    assert not read_hooked_log(SqliteSink(store, "t.db", "R"), Decoder(), log)
    assert counts(store)["artifacts"] == 0


@pytest.mark.parametrize(("first_s", "whose"), [(500, "first"), (1999, "first"), (2500, "second")])
def test_a_log_of_a_pid_that_was_used_twice_is_the_process_that_lived_then(
    store: sqlite3.Connection, first_s: int, whose: str
) -> None:
    minute_us = 60_000_000
    for name, started_s in (("first", 100), ("second", 2100)):
        process = ProcessStarted(name, -1, started_s * 1_000_000, "R", 77)
        Ingestor(store).ingest("R", [process])
    sink = SqliteSink(store, "t.db", "R")
    assert sink.find_process(77, first_s * 1_000_000) == whose
    assert sink.find_process(77, 2_100_000_000 - minute_us) == "second", "clocks may differ by a minute"
    assert sink.find_process(78, first_s * 1_000_000) is None
