"""A locked database is reported, and what waits in the spool is not called recorded."""

from __future__ import annotations

import argparse
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.bench.execution.runner import BenchReport, finish
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.record.facts import describe_run, make_spool
from compileboard.collectors.record.live import Recording


def test_a_database_locked_from_the_first_moment_is_said_with_its_reason(tmp_path: Path) -> None:
    lines: list[str] = []
    database, spool = tmp_path / "lock.db", tmp_path / "spool"
    config = RunConfig(name="locked", database=str(database))
    manifest = describe_run(
        config, {}, argv=["x"], cwd="/", code_folder=str(tmp_path), source="bench"
    )
    make_spool(spool, manifest)
    with closing(sqlite3.connect(database, isolation_level=None)) as holder:
        holder.execute("begin exclusive")
        recording = Recording(spool, manifest, lines.append)
        recording.open()
        recording.step()
        recording.end("finished", exit_code=0)
    (line,) = lines
    assert line.startswith(f"not recorded yet; the next command records it from {spool}: ")
    assert "locked by another program" in line
    assert "locked by another program" in str(recording.trouble)


def test_bench_does_not_say_recorded_of_what_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    arguments = argparse.Namespace(db="lock.db", explain=False, server=None)
    assert finish(BenchReport("RUN", trouble="lock.db is locked"), arguments, lines.append) == 0
    assert "files in upstream's formats are missing: lock.db is locked" in lines[0]
    assert lines[1].startswith("not recorded yet: 0 results")
