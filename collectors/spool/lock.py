"""Locks of a spool: one for its recorder, and one per writing process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from compileboard.collectors.contract.spool_format import LOCK_NAME, RECORDS_SUFFIX
from compileboard.collectors.spool.reader import list_files


class SpoolLock:
    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        os.close(self._descriptor)


def writers_alive(folder: Path) -> int:
    """Count the processes that hold the lock of their spool file, which is released when they
    die.
    """
    alive = 0
    for path in list_files(folder, RECORDS_SUFFIX):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            alive += 1
        finally:
            os.close(descriptor)
    return alive
