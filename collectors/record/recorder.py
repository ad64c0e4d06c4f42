"""Bring a run's spool into its database, again and again until the run is over."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from collectors.decode.decoder import Decoder
from collectors.decode.paths import PathNamer
from collectors.events import Event, RunEnded, RunStarted
from collectors.read.spool import SpoolReader, writers_alive
from collectors.record.manifest import Manifest
from collectors.record.source_index import qualify
from collectors.store.connect import checkpoint, open_writer
from collectors.store.ingest import Ingestor
from collectors.store.migrations import migrate_connection
from collectors.store.trace_files import keep_trace_file

BATCH = 500
HEARTBEAT_S = 5.0
LOCK_NAME = "recorder.lock"


class Recorder:
    """Record one run. Give it the spool's lock first: two recorders of one spool would only do the work twice."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self.connection = open_writer(manifest.database)
        migrate_connection(self.connection)
        self.ingestor = Ingestor(self.connection, manifest.database)
        self.reader = SpoolReader(folder)
        roots = [root for root in (manifest.git.get("root"), manifest.cwd) if root]
        self.decoder = Decoder(PathNamer(roots), qualify if manifest.keep_source else None)
        self._beat_s = 0.0
        self.deleted = False

    def start(self) -> None:
        """Record that the run began."""
        m = self.manifest
        self._ingest(
            [
                RunStarted(
                    process_id=m.recorder_process_id,
                    sequence=0,
                    time_us=m.started_us,
                    run_id=m.run_id,
                    name=m.name,
                    suite=m.suite,
                    tags=m.tags,
                    level=m.level,
                    keep_source=m.keep_source,
                    argv=m.argv,
                    cwd=m.cwd,
                    git=m.git,
                    host=m.host,
                    gpus=m.gpus,
                    environment=m.environment,
                )
            ]
        )

    def step(self) -> int:
        """Record what was written since the last step; return how many events were new."""
        events = self._events()
        new = 0
        while batch := list(islice(events, BATCH)):
            new += self._ingest(batch)
        if time.monotonic() >= self._beat_s:
            self._beat_s = time.monotonic() + HEARTBEAT_S
            self.ingestor.touch(self.manifest.run_id)
            checkpoint(self.connection)
        return new

    def _events(self) -> Iterator[Event]:
        for captured in self.reader.read():
            yield from self.decoder.decode(captured)

    def _ingest(self, batch: list[Event]) -> int:
        result = self.ingestor.ingest(self.manifest.run_id, batch)
        self.deleted = self.deleted or result.deleted_run
        return result.new_count

    def end(self) -> None:
        """Record how the run ended, once its manifest says so."""
        m = self.manifest
        if m.ended_us is None or m.state is None:
            return
        self._keep_traces()
        self._ingest(
            [
                RunEnded(
                    process_id=m.recorder_process_id,
                    sequence=1,
                    time_us=m.ended_us,
                    run_id=m.run_id,
                    state=m.state,
                    exit_code=m.exit_code,
                    signal=m.signal,
                )
            ]
        )

    def _keep_traces(self) -> None:
        """Store the logs that torch wrote during the run; a folder of the user's own may hold older ones."""
        if self.manifest.trace_folder is None or self.deleted:
            return
        for path in sorted(Path(self.manifest.trace_folder).glob("*.log")):
            if path.stat().st_mtime_ns // 1000 >= self.manifest.started_us:
                keep_trace_file(self.connection, self.manifest.run_id, path)

    def close(self) -> None:
        """Fold the WAL back and close the database."""
        checkpoint(self.connection)
        self.connection.close()

    def discard_spool(self) -> bool:
        """Delete the spool if every byte of it is in the database and nobody can write to it any more."""
        if writers_alive(self.folder) or self.manifest.ended_us is None:
            return False
        self.step()
        shutil.rmtree(self.folder, ignore_errors=True)
        return True


class SpoolLock:
    """Be the one recorder of a spool; the lock goes with the process."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self) -> bool:
        """Take the lock; False if another recorder has it."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Give the lock back."""
        os.close(self._descriptor)
