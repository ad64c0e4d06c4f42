"""Errors of the database, each with a message that says what to do."""

from __future__ import annotations

import math
import os
import resource
import shutil
import sqlite3
from contextlib import suppress

FULL_BELOW_BYTES = 128 * 1024  # the write-ahead index grows by 32 KiB


class StoreError(Exception):
    pass


class StoreMissing(StoreError):
    pass


class StoreNotReadable(StoreError):
    pass


class NotAStore(StoreError):
    pass


class StoreNeedsMigration(StoreError):
    pass


class StoreTooNew(StoreError):
    pass


class StoreBusy(StoreError):
    pass


class StoreFull(StoreError):
    pass


class StoreMoved(StoreError):
    pass


class StoreReadOnly(StoreNotReadable):
    pass


class StoreRefused(StoreError):
    pass


def explain(error: sqlite3.Error | UnicodeDecodeError, path: str) -> StoreError:
    """Convert an sqlite3 error by its result code, without SQLite's own message.

    sqlite3 raises UnicodeDecodeError if SQLite quotes a damaged schema.
    """
    # sqlite3 names the codes only from Python 3.11 on; the numbers are SQLite's own and never
    # change.
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    text = str(error)
    damaged = isinstance(error, UnicodeDecodeError) or "Could not decode to UTF-8" in text
    if primary == 26 or "not a database" in text:
        return NotAStore(
            f"{path} is not a CompileBoard database: it is another kind of file, or its "
            "beginning is damaged. Give "
            "another --db FILE, or restore a backup."
        )
    if primary in (5, 6) or "locked" in text:
        return StoreBusy(
            f"{path} is locked by another program. Try again when that program is done."
        )
    if (
        primary == 13
        or "is full" in text
        or (primary == 10 and measure_room(path) < FULL_BELOW_BYTES)
    ):
        if _measure_room_in_files(path) < FULL_BELOW_BYTES:
            return StoreFull(
                f"{path} has the size that a file may have here (ulimit -f). Raise that; what "
                "was recorded is kept."
            )
        return StoreFull(
            f"The disk that holds {path} is full. Free some space; what was recorded is kept."
        )
    if primary == 8 or "readonly" in text or (primary == 14 and _is_read_only(path)):
        return StoreReadOnly(
            f"{path} cannot be written: the file, its folder or the disk is read-only for this "
            "user. Check their "
            "permissions and how the disk is mounted; reading goes on."
        )
    if damaged or primary == 11 or "malformed" in text:
        return describe_damage(path)
    if primary == 10 or "disk I/O" in text:
        return StoreNotReadable(
            f"{path} cannot be read or written: the disk, or the connection to it, fails. Look "
            "at the system's log, "
            "and put the database on a local disk."
        )
    if primary == 14 or "unable to open" in text:
        return StoreNotReadable(
            f"{path} cannot be opened. Check that its folder exists and may be written."
        )
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return StoreRefused(
        f"{path}: the database refused a value or a statement ({name}); nothing of it was "
        "stored. That is a fault of "
        "CompileBoard: please report it with what led to it."
    )


def describe_damage(path: str) -> StoreNotReadable:
    """Describe that a database is damaged, and what to do."""
    return StoreNotReadable(
        f"{path} is damaged. `compileboard verify --db {path}` lists what is wrong. Restore a "
        "backup, or record into "
        "a new --db FILE; `sqlite3 FILE .recover` may save some of it."
    )


def _is_read_only(path: str) -> bool:
    return os.path.exists(path) and not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK)


def measure_room(path: str) -> float:
    """Return how many bytes a database can grow by, on its disk and under `ulimit -f`; inf if
    unknown.

    SQLite reports a WAL or index that cannot grow as an I/O error.
    """
    with suppress(OSError):
        free_bytes = shutil.disk_usage(os.path.dirname(os.path.realpath(path))).free
        return min(free_bytes, _measure_room_in_files(path))
    return math.inf


def _measure_room_in_files(path: str) -> float:
    most_bytes, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if most_bytes == resource.RLIM_INFINITY:
        return math.inf
    files = [path, f"{path}-wal"]
    return most_bytes - max(os.path.getsize(file) if os.path.exists(file) else 0 for file in files)


NEEDED = {"sqlite_utils": "sqlite-utils", "zstandard": "zstandard"}  # of the collector's extra


def may_pass(error: Exception) -> bool:
    """Return True for temporary errors: a lock, a full disk, a missing package."""
    if isinstance(error, StoreError):
        refused = (
            sqlite3.DataError,
            sqlite3.IntegrityError,
            sqlite3.InterfaceError,
            sqlite3.ProgrammingError,
        )
        return not isinstance(error, NotAStore) and not isinstance(error.__cause__, refused)
    return isinstance(error, (OSError, ImportError, MemoryError, sqlite3.OperationalError))


def describe_error(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name in NEEDED:
        return (
            f"{NEEDED[error.name]} is not installed; pip install 'compileboard[collector]' "
            "brings what is needed here"
        )
    words = " ".join(str(error).split())  # one line, whatever a path or another's exception holds
    is_told = words and isinstance(error, (StoreError, OSError, ValueError))
    return words if is_told else f"{type(error).__name__}: {words}".removesuffix(": ")
