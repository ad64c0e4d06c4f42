"""The recorder reads again what the database did not take."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from collectors.events import BenchMeasured
from collectors.observe.spool import Spool
from collectors.record.manifest import Manifest
from collectors.record.recorder import Recorder
from collectors.record.said import say_event
from collectors.store.errors import StoreError


def test_what_a_locked_database_refused_is_recorded_by_the_next_step(tmp_path: Path) -> None:
    folder, database = tmp_path / "spool", tmp_path / "t.db"
    folder.mkdir()
    manifest = Manifest("RUN", str(database), "a run", 1)
    recorder = Recorder(folder, manifest, patience_ms=1)
    recorder.start()
    spool = Spool(str(folder), "RUN", str(database), lambda: {"run_id": "RUN", "pid": 1})
    spool.write("cudagraph_skip", {"reason": "cpu device"}, context=[None, 0, 0, 0, None])
    say_event(folder, BenchMeasured("b", 2, 1, "local", "Net", "performance"))
    with closing(sqlite3.connect(database, isolation_level=None)) as holder:
        holder.execute("begin immediate")
        with pytest.raises(StoreError):
            recorder.step()
    assert recorder.step() == 3, "the process, its record and what a command said, none of them lost"
    assert recorder.step() == 0
    spool.close()
    recorder.connection.close()
