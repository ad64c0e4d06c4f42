"""Record spools left by a killed recorder, a full disk or a missing database."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from compileboard.collectors.contract.spool_format import MANIFEST_NAME, RECORDS_SUFFIX
from compileboard.collectors.contract.values import clean_text
from compileboard.collectors.record.spool import (
    lock_spool,
    note_reason,
    read_manifest,
    set_aside,
    spool_root,
    writers_alive,
)
from compileboard.collectors.store.connection import StoreBusy, describe_error, may_pass

BUSY_TIMEOUT_MS = 1_000  # Per database; the user's command waits for this.


@dataclass
class RecoveryReport:
    run_ids: list[str] = field(default_factory=list)
    event_count: int = 0
    problems: list[str] = field(
        default_factory=list
    )  # each is reported once, until it changes or `retry` is called
    set_aside: list[str] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)  # databases locked by another program


def recover_spools(environment: Mapping[str, str] | None = None) -> RecoveryReport:
    """Record every unlocked spool into its intended database. Never raises."""
    report = RecoveryReport()
    try:
        root = spool_root(os.environ if environment is None else environment)
        folders = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder is known
        report.problems.append(f"the spools cannot be listed: {error}")
        return report
    for folder in folders:
        try:
            with _lock_spool(folder) as is_ours:
                if is_ours:
                    _try_record(folder, report)
        except OSError as error:
            if folder.exists():
                report.problems.append(f"{clean_text(folder.name)}: {error}")
    return report


def recover_spool(folder: Path) -> bool:
    """Record one spool; False if another recorder has it. Raises StoreError, ValueError or
    OSError.
    """
    with _lock_spool(folder) as is_ours:
        if is_ours:
            _recover_spool(folder, RecoveryReport())
        return is_ours


@contextmanager
def _lock_spool(folder: Path) -> Iterator[bool]:
    if not (folder / MANIFEST_NAME).exists() and not any(folder.glob(f"*{RECORDS_SUFFIX}")):
        yield False  # a run that is about to begin, or never began
        return
    lock = lock_spool(folder)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)


def _try_record(folder: Path, report: RecoveryReport) -> None:
    name = clean_text(folder.name)
    try:
        _recover_spool(folder, report)
    except Exception as error:
        if not folder.exists():  # its own recorder has just finished it
            return
        if may_pass(error):
            with suppress(OSError):
                if not note_reason(folder, describe_error(error)):
                    return  # an earlier command reported it
            report.problems.append(f"{name}: {describe_error(error)}")
            return
        reason = describe_error(error)
        moved = set_aside(folder, reason)
        report.set_aside.append(f"{clean_text(moved.name)}: {reason}")


def _recover_spool(folder: Path, report: RecoveryReport) -> None:
    # Imported here because every command runs this, and there is rarely a spool.
    from compileboard.collectors.record.recorder import Recorder
    from compileboard.collectors.record.sidecar import spawn_sidecar

    manifest = read_manifest(folder)
    if manifest.database in report.busy:
        raise StoreBusy(f"{manifest.database} is locked by another program.")
    try:
        recorder = Recorder(folder, manifest, busy_timeout_ms=BUSY_TIMEOUT_MS)
    except StoreBusy:
        report.busy.add(manifest.database)
        raise
    try:
        recorder.start()
        new = recorder.step()
        if manifest.ended_us is None and not writers_alive(folder):
            new += recorder.step()  # written between the read and the last writer's end
            times = [path.stat().st_mtime_ns for path in folder.glob(f"*{RECORDS_SUFFIX}")]
            last_us = max(times, default=time.time_ns()) // 1000
            recorder.manifest = manifest.end("interrupted", last_us)
            recorder.manifest.write(folder)
        recorder.end()
        if new:
            report.run_ids.append(manifest.run_id)
            report.event_count += new
        orphaned = not recorder.discard_spool() and writers_alive(recorder.folder) > 0
    except StoreBusy:
        report.busy.add(manifest.database)
        raise
    finally:
        recorder.close()
    if orphaned:  # its recorder was killed, but the program continues
        spawn_sidecar(recorder.folder)
