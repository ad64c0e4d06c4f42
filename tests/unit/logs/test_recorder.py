"""The recorder reads again what the database did not take."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.observe.spool_writer import Spool
from compileboard.collectors.record.recorder import Recorder
from compileboard.collectors.record.spool import Manifest, append_event
from compileboard.collectors.store.connection import DATABASE_VERSION, StoreError, StoreTooNew
from compileboard.collectors.store.migrations import migrate_connection


def test_what_a_locked_database_refused_is_recorded_by_the_next_step(tmp_path: Path) -> None:
    folder, database = tmp_path / "spool", tmp_path / "t.db"
    folder.mkdir()
    manifest = Manifest(run_id="RUN", database=str(database), name="a run", started_us=1)
    recorder = Recorder(folder, manifest, busy_timeout_ms=1)
    recorder.start()
    spool = Spool(str(folder), "RUN", str(database), lambda: {"run_id": "RUN", "pid": 1})
    spool.write("cudagraph_skip", {"reason": "cpu device"}, context=[None, 0, 0, 0, None])
    append_event(folder, BenchMeasured("b", 2, 1, "local", "Net", "performance"))
    with closing(sqlite3.connect(database, isolation_level=None)) as holder:
        holder.execute("begin immediate")
        with pytest.raises(StoreError):
            recorder.step()
    assert recorder.step() == 3, (
        "the process, its record and what a command said, none of them lost"
    )
    assert recorder.step() == 0
    spool.close()
    recorder.sink.connection.close()


def test_a_recorder_writes_nothing_into_a_database_that_was_migrated_beneath_it(
    tmp_path: Path,
) -> None:
    folder, database = tmp_path / "spool", tmp_path / "t.db"
    folder.mkdir()
    recorder = Recorder(
        folder, Manifest(run_id="RUN", database=str(database), name="a run", started_us=1)
    )
    recorder.start()
    append_event(folder, BenchMeasured("b", 2, 1, "local", "Net", "performance"))
    with closing(sqlite3.connect(database, isolation_level=None)) as newer:
        newer.execute(f"pragma user_version = {DATABASE_VERSION + 1}")
        message = (
            rf"t\.db was migrated to database version {DATABASE_VERSION + 1} while .*Start it again"
        )
        with pytest.raises(StoreTooNew, match=message):
            recorder.step()
        with pytest.raises(StoreTooNew, match=message):
            migrate_connection(recorder.sink.connection)
        assert newer.execute("select count(*) from results").fetchone() == (0,)
        newer.execute(f"pragma user_version = {DATABASE_VERSION}")
    assert recorder.step() == 1, "the result waited in the spool"
    recorder.close()


BESIDE = {
    "FaultWatch.track": "page faults",
    "FaultWatch.step": "page faults",
    "FaultWatch.end": "page faults",
    "build_history_event": "commits",
    "SqliteSink.index": "search index",
    "break_registry.load_registry": "graph break registry",
}


@pytest.mark.parametrize(("function", "name"), BESIDE.items())
def test_what_is_beside_the_recording_fails_as_a_reject_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, name: str
) -> None:
    monkeypatch.setattr(
        f"compileboard.collectors.record.recorder.{function}", lambda *_, **__: 1 // 0
    )
    folder, database = tmp_path / "spool", tmp_path / "t.db"
    folder.mkdir()
    recorder = Recorder(
        folder, Manifest(run_id="RUN", database=str(database), name="a run", started_us=1)
    )
    recorder.start()
    spool = Spool(
        str(folder), "RUN", str(database), lambda: {"run_id": "RUN", "pid": 1, "registry": "none"}
    )
    for step in range(2):
        spool.write("cudagraph_skip", {"reason": "cpu device"}, context=[None, 0, 0, 0, None])
        assert recorder.step() == 2 - step, "the process and its first record, then the second"
    spool.close()
    recorder.manifest = recorder.manifest.end("finished", 9)
    recorder.end()
    (reject,) = recorder.sink.connection.execute(
        "select file_name, kind, reject_count, example from run_rejects"
    )
    assert tuple(reject)[:3] == ("run.json", "not_asked", 1)
    assert reject["example"].startswith(f"{name}: ZeroDivisionError: ")
    assert recorder.sink.connection.execute("select state from runs").fetchone()[0] == "finished"
    recorder.close()
