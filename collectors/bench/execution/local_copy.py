"""A local database for a pushed bench run: for its files, its graph breaks and `--resume`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from compileboard.collectors.bench.plan.resume import NotMeasured, ResumePoint, find_before
from compileboard.collectors.record.spool import home
from compileboard.collectors.store.connection import StoreError

KEEP_S = 7 * 24 * 3600.0  # of a run that was interrupted
SUFFIXES = ("", "-wal", "-shm")


def make_local_copy(environment: Mapping[str, str]) -> str:
    folder = _folder(environment)
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    for path in folder.glob("*.db"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > KEEP_S:
                drop_local_copy(str(path))
    return str(folder / f"{time.time_ns():x}-{os.getpid()}.db")


def drop_local_copy(path: str) -> None:
    for suffix in SUFFIXES:
        with suppress(OSError):
            os.unlink(path + suffix)


def find_pushed(
    environment: Mapping[str, str], plan: str, named_run: str
) -> tuple[str, ResumePoint]:
    """Find the run to resume among those pushed from this machine, and its database.

    Raises ValueError if there is none, StoreError.
    """
    for path in sorted(_folder(environment).glob("*.db"), reverse=True):
        with suppress(NotMeasured, StoreError):
            return str(path), find_before(str(path), plan, named_run)
    which = named_run or "of these models with these settings"
    raise ValueError(
        f"--resume: no interrupted run {which} is on this machine, where a pushed run waits "
        f"{KEEP_S / 86400:.0f} days; "
        "leave --resume out"
    )


def _folder(environment: Mapping[str, str]) -> Path:
    return home(environment) / "bench"
