"""Bring a run's spool into its database, again and again until the run is over."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from compileboard.collectors.contract.events import Event, RecordsLost, RunEnded, RunStarted
from compileboard.collectors.contract.spool_format import JOURNAL_NAME, MANIFEST_NAME, RECORDS_SUFFIX
from compileboard.collectors.decode import break_registry
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.paths import PathNamer, qualify
from compileboard.collectors.decode.records import Captured
from compileboard.collectors.decode.values import clean, clean_text
from compileboard.collectors.pipeline.trace_reader import TraceReader, list_rejects
from compileboard.collectors.runs.git import build_history_event
from compileboard.collectors.runs.page_faults import FaultWatch
from compileboard.collectors.spool.journal import read_journal
from compileboard.collectors.spool.lock import writers_alive
from compileboard.collectors.spool.manifest import Manifest
from compileboard.collectors.spool.reader import SpoolReader
from compileboard.collectors.store.connection import (
    BUSY_TIMEOUT_MS,
    checkpoint,
    open_reader,
    open_writer,
    write_transaction,
)
from compileboard.collectors.store.errors import StoreError, StoreMoved, describe_error, explain
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.ingest.source_files import save_run_rejects, save_trace_file
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.search_index import index_run

BATCH = 500
HEARTBEAT_S = 5.0
# The program runs and its signals are to be passed on; at its end git gets more time, if it needed that.
HISTORY_S, HISTORY_MOST_S = 0.5, 5.0
INDEX_MOST_S = 0.5  # the program has ended and its shell waits; what is left is for `serve` or `index`
Result = TypeVar("Result")


class Recorder:
    """Record one run. Give it the spool's lock first: two recorders of one spool would only do the work twice."""

    def __init__(self, folder: Path, manifest: Manifest, *, patience_ms: int = BUSY_TIMEOUT_MS) -> None:
        self.folder = folder
        self.manifest = manifest
        self.connection = open_writer(manifest.database, busy_timeout_ms=patience_ms)
        try:
            with explained(manifest.database):
                migrate_connection(self.connection)
                self._file = _identity(manifest.database)
        except BaseException:
            self.connection.close()
            raise
        self.ingestor = Ingestor(self.connection, manifest.database)
        self.reader = SpoolReader(folder, manifest.keep_source)
        roots = [clean_text(root) for root in (manifest.git.get("root"), manifest.cwd) if root]
        self.decoder = Decoder(PathNamer(roots), qualify if manifest.keep_source else None)
        for kind, trouble in manifest.troubles:
            self.reader.reject(MANIFEST_NAME, kind, example=trouble)
        self.faults = FaultWatch(folder)
        self._failed_tasks: set[str] = set()
        self._beat_s = 0.0
        self._history_kept = False
        self.deleted = False

    def start(self) -> None:
        """Record that the run began."""
        m = self.manifest
        if m.late:
            return
        described = {one.name: clean(getattr(m, one.name)) for one in fields(RunStarted) if hasattr(m, one.name)}
        self._ingest([RunStarted(process_id=m.recorder_process_id, sequence=0, time_us=m.started_us, **described)])

    def step(self) -> int:
        """Record what was written since the last step; return how many events were new.

        Raises: StoreError in words; what could not be recorded is read again by the next step.
        """
        self._check_place()
        mark = self.reader.mark()
        events = self._events()
        new = 0
        try:
            while batch := list(islice(events, BATCH)):
                new += self._ingest(batch)
        except BaseException:
            self.reader.rewind(mark)
            raise
        counted: list[Event] = self._beside("page faults", lambda: list(self.faults.step()), [])
        if counted:
            self._ingest(counted)
        self._keep_history(HISTORY_S)
        if time.monotonic() >= self._beat_s:
            with explained(self.manifest.database):
                self.ingestor.touch(self.manifest.run_id)
                checkpoint(self.connection)
            self._beat_s = time.monotonic() + HEARTBEAT_S
        return new

    def _check_place(self) -> None:
        """Notice that the database was deleted or replaced: the open file is then nobody's any more."""
        found = _identity(self.manifest.database)
        if found != self._file:
            said = "was deleted" if found is None else "was replaced by another file"
            raise StoreMoved(f"{self.manifest.database} {said} while it was being recorded into.")

    def _events(self) -> Iterator[Event]:
        for captured in self.reader.read():
            yield from self._decode(captured)
        yield from read_journal(self.reader)

    def _decode(self, captured: Captured) -> list[Event]:
        def reject(kind: str, reason: str) -> None:
            self._reject(captured.process_id, captured.sequence, kind, reason)

        registry_path = captured.extra.get("registry")
        if isinstance(registry_path, str):
            self._beside("graph break registry", partial(break_registry.learn, registry_path), None)
        try:
            return self.decoder.decode(captured, lambda what: reject("bad_field", what))
        except Exception as error:
            reject("not_decoded", f"{type(error).__name__}: {error}")
            return []

    def _reject(self, process_id: str, sequence: int, kind: str, reason: str) -> None:
        """Count a record that cannot be recorded as it came."""
        file_name = JOURNAL_NAME if process_id == self.manifest.recorder_process_id else process_id + RECORDS_SUFFIX
        self.reader.reject(file_name, kind, example=f"record {sequence}: {reason}")

    def _ingest(self, batch: list[Event]) -> int:
        result = self.ingestor.ingest(self.manifest.run_id, batch)
        for refused in result.refused:
            event = refused.event
            self._reject(event.process_id, event.sequence, "refused", f"{event.KIND}: {refused.reason}")
        for event in result.clashing:
            if event.sequence >= 0 and event.process_id != self.manifest.recorder_process_id:  # ours may be told anew
                self._reject(event.process_id, event.sequence, "number_taken", event.KIND)
        self.deleted = self.deleted or result.deleted_run
        for event in batch:
            self._beside("page faults", partial(self.faults.see, event), None)
        return result.new_count

    def _beside(self, name: str, task: Callable[[], Result], instead: Result) -> Result:
        """Do what stands beside the recording: an error there is a reject of the run and ends that task alone.

        Raises: StoreError, sqlite3.Error, subprocess.TimeoutExpired: what may go better the next time.
        """
        if name in self._failed_tasks:
            return instead
        try:
            return task()
        except (StoreError, sqlite3.Error, subprocess.TimeoutExpired):
            raise
        except Exception as error:
            self._failed_tasks.add(name)
            self.reader.reject(MANIFEST_NAME, "not_asked", example=f"{name}: {describe_error(error)}")
            return instead

    def end(self) -> None:
        """Record how the run ended, once its manifest says so, and what was lost on the way.

        Raises: StoreError in words.
        """
        m = self.manifest
        if m.ended_us is None:
            return
        with explained(m.database):
            self._keep_traces()
        self._keep_history(HISTORY_MOST_S)
        events: list[Event] = [
            RecordsLost(process_id, -sum(losses.values()), m.ended_us, m.run_id, losses)
            for process_id, losses in sorted(self.reader.losses().items())
        ]
        events += self._beside("page faults", lambda: list[Event](self.faults.end()), [])
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
        self._ingest(events)
        self._index()
        self._keep_rejects()

    def _keep_rejects(self) -> None:
        """Record what could not be recorded: how often, and where first."""
        if self.deleted or not self.reader.rejects:
            return
        with explained(self.manifest.database), write_transaction(self.connection):
            counted = self.reader.rejects.items()
            rows = [(file_name, *row) for file_name, rejects in counted for row in list_rejects(rejects)]
            save_run_rejects(self.connection, self.manifest.run_id, rows)

    def _keep_history(self, timeout_s: float) -> None:
        """Record which commits came before the run's own, once; not before its start, which would wait for git."""
        if self._history_kept:
            return
        m = self.manifest
        with suppress(subprocess.TimeoutExpired):
            ask = partial(build_history_event, m.git, m.recorder_process_id, timeout_s=timeout_s)
            event = self._beside("commits", ask, None)
            if event is not None:
                self._ingest([event])
            self._history_kept = True

    def _index(self) -> None:
        """Put the run into the search index, if that is quick: what is not there is found by `index`."""
        if not self.deleted:
            with suppress(StoreError):
                index = partial(index_run, self.connection, self.manifest.run_id, most_s=INDEX_MOST_S)
                self._beside("search index", index, None)

    def _keep_traces(self) -> None:
        """Read and, at level full, keep the logs that torch wrote; a folder of the user's own may hold older ones."""
        m = self.manifest
        if m.trace_folder is None or self.deleted or not m.keep_source:
            return
        traces = TraceReader(self.connection, m.database, m.run_id, self.decoder)
        for path in sorted(Path(m.trace_folder).glob("*.log")):
            try:
                if not path.is_file() or path.stat().st_mtime_ns // 1000 < m.started_us:
                    continue
                if traces.read(path) and m.level == "full":
                    save_trace_file(self.connection, m.run_id, path)
            except (StoreError, sqlite3.Error):
                raise
            except Exception as error:
                if path.name not in self.reader.rejects:  # it is tried again before the spool goes
                    self.reader.reject(path.name, "bad_log", example=f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Fold the WAL back and close the database."""
        try:
            checkpoint(self.connection)
        except sqlite3.Error:
            pass  # a later checkpoint does it; what is committed is safe
        finally:
            self.connection.close()

    def discard_spool(self) -> bool:
        """Delete the spool if every byte of it is in the database and nobody can write to it any more.

        Raises: StoreError in words; the spool is then still there.
        """
        if writers_alive(self.folder) or self.manifest.ended_us is None:
            return False
        self._check_readable()
        # Taken away first and looked at again: a process that opens its file now finds the folder gone, and makes it
        # anew for the next command.
        aside = self.folder.with_name(f"{self.folder.name}~{os.getpid()}")
        self.folder.rename(aside)
        self.folder = self.reader.folder = aside
        if writers_alive(aside):
            return False
        self.step()
        self.end()
        shutil.rmtree(aside, ignore_errors=True)
        return True

    def _check_readable(self) -> None:
        """Read the run with fresh eyes before its spool goes: somebody may have written over the file beneath us."""
        with explained(self.manifest.database):
            checkpoint(self.connection)
            reader = open_reader(self.manifest.database)
            try:
                key = {"id": self.manifest.run_id}
                reader.execute("select count(*) from events where run_id = :id", key).fetchone()
            finally:
                reader.close()


@contextmanager
def explained(database: str) -> Iterator[None]:
    """Say what SQLite raises in the store's words."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(error, database) from error


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
