"""Record a program that installed the hooks itself, in a process with the argument SPOOL_FOLDER."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.record.program import start_detached
from compileboard.collectors.record.recorder import Recorder
from compileboard.collectors.record.spool import lock_spool, read_manifest, writers_alive
from compileboard.collectors.store.connection import StoreError, StoreMoved, StoreTooNew

STEP_S = 0.2
RETRY_S = 2.0


def spawn_sidecar(folder: Path) -> None:
    start_detached("compileboard.collectors.record.sidecar", str(folder))


def run_sidecar(folder: Path) -> int:
    """Record a spool until its run has ended or nothing writes to it any more.

    Returns 1 if it cannot be opened: the database is unusable and the writers are gone, or the
    folder was removed.
    """
    try:
        if lock_spool(folder) is None:  # held until this process ends
            return 0
        while True:
            recorder = _open_recorder(folder)
            if recorder is None:
                return 1
            try:
                if not _follow_run(recorder):
                    return 0
            finally:
                recorder.close()
    except (ValueError, OSError):  # the folder was removed
        return 1


def _open_recorder(folder: Path) -> Recorder | None:
    while True:
        try:
            return Recorder(folder, read_manifest(folder))
        except StoreError:
            if not writers_alive(folder):
                return None
            time.sleep(RETRY_S)


def _follow_run(recorder: Recorder) -> bool:
    started = False
    while True:
        try:
            if not started:
                recorder.start()
                started = True
            alive = writers_alive(
                recorder.folder
            )  # checked before the step, which then reads all of a finished writer's data
            recorder.step()
            recorder.manifest = manifest = read_manifest(recorder.folder)
            if not alive:
                if manifest.ended_us is None:
                    recorder.manifest = manifest.end("interrupted", read_clock_us())
                    recorder.manifest.write(recorder.folder)
                recorder.end()
                if recorder.discard_spool():
                    return False
        except (StoreMoved, StoreTooNew) as error:
            # With a database, the next command records everything again, into its current state.
            return isinstance(error, StoreMoved) and bool(recorder.manifest.server)
        except StoreError:
            if not writers_alive(recorder.folder):
                return False
            time.sleep(RETRY_S)
        time.sleep(STEP_S)


if __name__ == "__main__":
    sys.exit(run_sidecar(Path(sys.argv[1])))
