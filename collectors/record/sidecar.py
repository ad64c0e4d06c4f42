"""Record beside a process that installed the hooks itself: `python -m collectors.record.sidecar SPOOL_FOLDER`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import collectors
from collectors.read.spool import writers_alive
from collectors.record.manifest import read_manifest
from collectors.record.recorder import Recorder, SpoolLock
from collectors.store.errors import StoreError

STEP_S = 0.2
RETRY_S = 2.0
DONE_NAME = "recorded"  # made when everything is in the database: the process that waits for it looks for this


def spawn_sidecar(folder: Path) -> None:
    """Start a sidecar that outlives this process and its terminal."""
    root = str(Path(collectors.__file__).resolve().parent.parent)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COMPILEBOARD_SPOOL")}
    path = os.pathsep.join([root, *filter(None, [kept.get("PYTHONPATH")])])
    subprocess.Popen(
        [sys.executable, "-m", "collectors.record.sidecar", str(folder)],
        env={**kept, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        close_fds=True,
    ).returncode = 0  # never waited for: it outlives us, and its Popen must not complain at exit


def run_sidecar(folder: Path) -> int:
    """Follow a spool until its run has ended or all its writers are gone."""
    lock = SpoolLock(folder)
    if not lock.take():
        return 0
    recorder = None
    while recorder is None:
        try:
            recorder = Recorder(folder, read_manifest(folder))
        except StoreError:
            if not writers_alive(folder):
                return 1  # the next command picks the spool up
            time.sleep(RETRY_S)
    _follow(recorder)
    recorder.close()
    return 0


def _follow(recorder: Recorder) -> None:
    folder = recorder.folder
    started = False
    while True:
        try:
            if not started:
                recorder.start()
                started = True
            alive = writers_alive(folder)  # before the step: what a writer wrote before it went is then read
            recorder.step()
        except (StoreError, OSError):
            if not folder.is_dir():
                return
            time.sleep(RETRY_S)
            continue
        recorder.manifest = manifest = read_manifest(folder)
        if not alive:
            if manifest.ended_us is None:
                manifest.ended_us, manifest.state = time.time_ns() // 1000, "interrupted"
                manifest.write(folder)
            recorder.end()
            recorder.discard_spool()
            return
        time.sleep(STEP_S)


if __name__ == "__main__":
    sys.exit(run_sidecar(Path(sys.argv[1])))
