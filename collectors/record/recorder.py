"""Record a run's spool into its database or outbox until the run is over."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TypeVar

from compileboard.collectors.contract.events import (
    Event,
    RecordsLost,
    ReproCaptured,
    RunEnded,
    RunStarted,
)
from compileboard.collectors.contract.rejects import IngestResult
from compileboard.collectors.contract.spool_format import MANIFEST_NAME
from compileboard.collectors.contract.values import clean, clean_text
from compileboard.collectors.decode import break_texts as break_registry
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.records import PathNamer, qualify
from compileboard.collectors.logs.read_source import SourceReader
from compileboard.collectors.logs.source import EventBatch, RunSink, pump
from compileboard.collectors.logs.sqlite_sink import SqliteSink
from compileboard.collectors.logs.trace_source import read_hooked_log
from compileboard.collectors.push.outbox import outbox_root
from compileboard.collectors.push.target import Target
from compileboard.collectors.record.crashes import promote_crashes
from compileboard.collectors.record.git import build_history_event
from compileboard.collectors.record.own_repros import note_own_repro
from compileboard.collectors.record.page_faults import FaultWatch
from compileboard.collectors.record.spool import Manifest, writers_alive
from compileboard.collectors.record.spool_source import SpoolSource
from compileboard.collectors.store.connection import (
    BUSY_TIMEOUT_MS,
    StoreError,
    describe_error,
    explained,
)

HEARTBEAT_S = 5.0
# Limits while the program runs, whose signals must be passed on; at its end git gets more time if
# needed.
HISTORY_S, HISTORY_MOST_S = 0.5, 5.0
# The program has ended and its shell waits; the rest is left to `serve` or `index`.
INDEX_MOST_S = 0.5
Result = TypeVar("Result")


def open_sink(manifest: Manifest, busy_timeout_ms: int) -> RunSink:
    """Open the run's database, or its outbox and an optional local database.

    Raises StoreError; TargetError if the server's address is invalid.
    """
    if not manifest.server:
        return SqliteSink.open(manifest.database, manifest.run_id, busy_timeout_ms=busy_timeout_ms)
    from compileboard.collectors.record.outbox_sink import OutboxSink  # imports an HTTP client

    root, target = outbox_root(os.environ), Target.of(manifest)
    return OutboxSink(
        root,
        manifest.run_id,
        target,
        manifest.outbox_bytes,
        manifest.database,
        busy_timeout_ms=busy_timeout_ms,
    )


def _list_folders(manifest: Manifest) -> list[str]:
    """Return the working directory, and the folders of the command's scripts."""
    cwd = manifest.cwd or os.getcwd()
    scripts = (os.path.join(cwd, word) for word in manifest.argv if word.endswith(".py"))
    return list(dict.fromkeys((cwd, *map(os.path.dirname, scripts))))


class Recorder:
    """The recorder of one run. The caller must hold the spool's lock."""

    def __init__(
        self, folder: Path, manifest: Manifest, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self.sink = open_sink(manifest, busy_timeout_ms)
        roots = [clean_text(root) for root in (manifest.git.get("root"), manifest.cwd) if root]
        namer = PathNamer(roots)
        self._decoder = Decoder(namer, qualify if manifest.keep_source else None)
        self._source_reader = SourceReader(namer) if manifest.keep_source else None
        self.source = SpoolSource(
            folder,
            self._decoder,
            keep_examples=manifest.keep_source,
            own_process_id=manifest.recorder_process_id,
            load_registry=self._load_registry,
        )
        for kind, trouble in manifest.troubles:
            self._reject_fact(kind, trouble)
        self.faults = FaultWatch(folder)
        self._failed_tasks: set[str] = set()
        self._end_events: list[
            Event
        ] = []  # recorded ones, reported again before the spool is deleted
        self._beat_s = 0.0
        self._history_kept = False

    def start(self) -> None:
        m = self.manifest
        if m.late:
            return
        described = {
            field.name: clean(getattr(m, field.name))
            for field in fields(RunStarted)
            if hasattr(m, field.name)
        }
        self._store(
            [
                RunStarted(
                    process_id=m.recorder_process_id, sequence=0, time_us=m.started_us, **described
                )
            ]
        )

    def step(self) -> int:
        """Record data written since the last step; return the number of new events.

        Raises StoreError; unrecorded data is read again by the next step.
        """
        self.sink.check_file()
        new_count = 0

        def handle_batch(batch: EventBatch, result: IngestResult) -> None:
            nonlocal new_count
            new_count += result.new_count
            self._watch_faults(batch)
            self._read_source(batch)
            self._note_repros(batch)

        pump(self.source, self.sink, handle_batch)
        counted: list[Event] = self._run_optional(
            "page faults", lambda: list(self.faults.step()), []
        )
        if counted:
            self._store(counted)
        self._store_history(HISTORY_S)
        if time.monotonic() >= self._beat_s:
            self.sink.send_heartbeat()
            self._beat_s = time.monotonic() + HEARTBEAT_S
        return new_count

    def _store(self, events: list[Event]) -> None:
        batch = EventBatch(events)
        self.source.count_unstored(self.sink.ingest(batch))
        self._watch_faults(batch)

    def _watch_faults(self, batch: EventBatch) -> None:
        for event in batch.events:
            self._run_optional("page faults", partial(self.faults.track, event), None)

    def _read_source(self, batch: EventBatch) -> None:
        if self._source_reader is not None:
            self.sink.save_source(
                self._run_optional("source", partial(self._source_reader.read, batch.events), [])
            )
            self._source_reader.unsaved.clear()

    def _note_repros(self, batch: EventBatch) -> None:
        home_folder, run_id = self.folder.parent.parent, self.manifest.run_id
        folders = _list_folders(self.manifest)
        for event in batch.events:
            if isinstance(event, ReproCaptured):
                programs = (event.program, event.dynamo_program)
                self._run_optional(
                    "own repros",
                    partial(note_own_repro, home_folder, run_id, event.manifest, programs, folders),
                    None,
                )

    def _load_registry(self, path: str) -> None:
        self._run_optional(
            "graph break registry", partial(break_registry.load_registry, path), None
        )

    def _reject_fact(self, kind: str, reason: str) -> None:
        self.source.reader.reject(MANIFEST_NAME, kind, example=reason)

    def _run_optional(self, name: str, task: Callable[[], Result], instead: Result) -> Result:
        """Run an optional task. An error ends only that task, and is counted as a reject of the
        run.

        Raises StoreError, sqlite3.Error and subprocess.TimeoutExpired, after which it is retried.
        """
        if name in self._failed_tasks:
            return instead
        try:
            return task()
        except (StoreError, sqlite3.Error, subprocess.TimeoutExpired):
            raise
        except Exception as error:
            self._failed_tasks.add(name)
            self._reject_fact("not_asked", f"{name}: {describe_error(error)}")
            return instead

    def end(self) -> None:
        """Record the end of the run once its manifest has it, and the losses.

        Raises StoreError if they cannot be stored.
        """
        m = self.manifest
        if m.ended_us is None:
            return
        if not writers_alive(self.folder) and promote_crashes(self.folder, m.signal):
            self.step()
        with explained(m.database):
            self._read_traces()
        self._store_history(HISTORY_MOST_S)
        events: list[Event] = [
            RecordsLost(process_id, -sum(losses.values()), m.ended_us, m.run_id, losses)
            for process_id, losses in sorted(self.source.reader.losses().items())
        ]
        events += self._run_optional("page faults", lambda: list[Event](self.faults.end()), [])
        if m.state is not None and not m.late:
            events.append(
                RunEnded(
                    process_id=m.recorder_process_id,
                    sequence=1,
                    time_us=m.ended_us,
                    run_id=m.run_id,
                    state=m.state,
                    exit_code=m.exit_code,
                    signal=m.signal,
                )
            )
        events = [event for event in events if event not in self._end_events]
        self._store(events)
        self._end_events += events
        with suppress(StoreError):
            self._run_optional("search index", lambda: self.sink.index(INDEX_MOST_S), None)
        self.sink.save_run_rejects(self.source.reader.rejects)

    def _store_history(self, timeout_s: float) -> None:
        """Record once the commits before the run's own. This is not done at its start, because the
        run would have to wait for git.
        """
        if self._history_kept:
            return
        m = self.manifest
        with suppress(subprocess.TimeoutExpired):
            ask = partial(build_history_event, m.git, m.recorder_process_id, timeout_s=timeout_s)
            event = self._run_optional("commits", ask, None)
            if event is not None:
                self._store([event])
            self._history_kept = True

    def _read_traces(self) -> None:
        m = self.manifest
        if m.trace_folder is None or self.sink.is_deleted or not m.keep_source:
            return
        rejects = self.source.reader.rejects
        for path in sorted(Path(m.trace_folder).glob("*.log")):
            process_id = self.source.trace_writers.get(path.name, (0, None))[1]
            try:
                if process_id is not None:
                    read_hooked_log(self.sink, self._decoder, path, process_id)
                    if m.level == "full":
                        self.sink.save_trace_file(path)
                elif path.parent.parent == self.folder:
                    raise ValueError("the hooks did not see the process that wrote it")
            except (StoreError, sqlite3.Error):
                raise
            except Exception as error:
                if path.name not in rejects:  # retried before the spool is deleted
                    self.source.reader.reject(path.name, "bad_log", example=describe_error(error))

    def close(self) -> None:
        self.sink.close()

    def discard_spool(self) -> bool:
        """Delete the spool once it is fully recorded and no process can write to it.

        Raises StoreError; the spool then still exists.
        """
        if writers_alive(self.folder) or self.manifest.ended_us is None:
            return False
        self.sink.check_readable()
        # Moved away first and checked again: a process that opens its file now finds the folder
        # gone, and creates it anew for the next command.
        aside = self.folder.with_name(f"{self.folder.name}~{os.getpid()}")
        self.folder.rename(aside)
        self.folder = self.source.reader.folder = aside
        if writers_alive(aside):
            return False
        self.step()
        self.end()
        self.sink.finish()
        shutil.rmtree(aside, ignore_errors=True)
        return True
