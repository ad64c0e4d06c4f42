"""Record the spools that nobody recorded: their recorder was killed, their disk was full, their database was away."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from collectors.read.spool import writers_alive
from collectors.record.home import spool_root
from collectors.record.manifest import NAME, read_manifest
from collectors.record.recorder import Recorder, SpoolLock
from collectors.record.sidecar import spawn_sidecar
from collectors.store.errors import StoreError

PATIENCE_MS = 1_000  # for each spool: the command that was asked for waits behind this


@dataclass
class PickedUp:
    """Say what was found."""

    run_ids: list[str] = field(default_factory=list)
    event_count: int = 0
    problems: list[str] = field(default_factory=list)


def pick_up_spools(environment: Mapping[str, str] | None = None) -> PickedUp:
    """Record every spool that no recorder holds, each into the database it was meant for. Never raises."""
    found = PickedUp()
    root = spool_root(os.environ if environment is None else environment)
    if not root.is_dir():
        return found
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        try:
            _pick_up(folder, found)
        except (StoreError, ValueError, OSError) as error:
            if folder.exists():  # else its own recorder has just finished it
                found.problems.append(f"{folder.name}: {error}")
    return found


def _pick_up(folder: Path, found: PickedUp) -> None:
    if not (folder / NAME).exists() and not any(folder.glob("*.jsonl")):
        return  # a run that is just about to begin, or never did
    lock = SpoolLock(folder)
    orphaned = False
    try:
        if not lock.take():
            return
        manifest = read_manifest(folder)
        recorder = Recorder(folder, manifest, patience_ms=PATIENCE_MS)
        try:
            recorder.start()
            new = recorder.step()
            if manifest.ended_us is None and not writers_alive(folder):
                new += recorder.step()  # what was written between the read and the last writer's end
                manifest.ended_us = _last_change_us(folder)
                manifest.state = "interrupted"
                manifest.write(folder)
            recorder.end()
            if new:
                found.run_ids.append(manifest.run_id)
                found.event_count += new
            orphaned = not recorder.discard_spool() and writers_alive(recorder.folder) > 0
        finally:
            recorder.close()
    finally:
        lock.release()
    if orphaned:  # its recorder was killed, the program goes on
        spawn_sidecar(recorder.folder)


def _last_change_us(folder: Path) -> int:
    times = [path.stat().st_mtime_ns // 1000 for path in folder.glob("*.jsonl")]
    return max(times, default=time.time_ns() // 1000)
