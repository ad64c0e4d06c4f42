"""Record a program with our hooks and recorder in this process; list its causes and fixes."""

from __future__ import annotations

import contextlib
import io
import runpy
import tempfile
import time
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.fixes.causes import Cause
from compileboard.collectors.observe import hooks
from compileboard.collectors.record.recorder import Recorder
from compileboard.collectors.record.spool import Manifest
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.store.run_causes import load_causes
from tests.integration.fixes.running import Outcome, patched_compile, restored_settings

DATABASE, RUN = "run.db", "R"


@cache
def record_causes(text: str) -> list[Cause]:
    """Record one program into a database of its own, once a process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(text, encoding="utf-8")
        return record_program(path)


def record_program(path: Path) -> list[Cause]:
    with tempfile.TemporaryDirectory() as folder:
        return _record_program(path, Path(folder))


def _record_program(path: Path, folder: Path) -> list[Cause]:
    with (
        restored_settings(),
        patched_compile(Outcome(), "compiled"),
        contextlib.redirect_stdout(io.StringIO()),
        warnings.catch_warnings(),
        recorded(folder, path.parent) as recorder,
    ):
        warnings.simplefilter("ignore")
        with contextlib.suppress(Exception):  # what ends the program is recorded too
            runpy.run_path(str(path), run_name="__main__")
    try:
        return load_causes(recorder.sink.connection, RUN)
    finally:
        recorder.sink.connection.close()


@contextlib.contextmanager
def recorded(folder: Path, cwd: Path | None = None) -> Iterator[Recorder]:
    """Record what this process does into the folder's database."""
    spool, database = folder / "spool", folder / DATABASE
    spool.mkdir()
    migrate(database)
    config = RunConfig(name="program", database=str(database))
    manifest = Manifest(
        name="program",
        database=str(database),
        run_id=RUN,
        started_us=time.time_ns() // 1000,
        cwd=str(cwd or folder),
        recorder_process_id="recorder",
        environment={},
    )
    manifest.write(spool)
    recorder = Recorder(spool, manifest)
    hooks.install_hooks(RUN, str(spool), config)
    try:
        yield recorder
    finally:
        hooks.uninstall_hooks()
    recorder.start()
    recorder.step()
