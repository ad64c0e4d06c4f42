"""What can be wrong with a store, each said once, in words a person can act on."""

from __future__ import annotations

import sqlite3


class StoreError(Exception):
    """Say what came, what was expected and what to do."""


class StoreMissing(StoreError):
    """The file is not there."""


class StoreNotReadable(StoreError):
    """The file is there and cannot be opened, read or written."""


class NotAStore(StoreError):
    """The file is not a CompileBoard database."""


class StoreNeedsMigration(StoreError):
    """The database is older than this program."""


class StoreTooNew(StoreError):
    """The database is newer than this program."""


class StoreBusy(StoreError):
    """Somebody else holds the write lock for too long."""


class StoreFull(StoreError):
    """The disk is full."""


class StoreMoved(StoreError):
    """The file that was opened is no longer the one at its path."""


def explain(error: sqlite3.Error, path: str) -> StoreError:
    """Turn an sqlite3 error into the store's own, by SQLite's result code."""
    # sqlite3 names the codes only from Python 3.11 on; the numbers are SQLite's own and never change.
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    text = str(error)
    if primary == 26 or "not a database" in text:
        return NotAStore(f"{path} is not a CompileBoard database: {text}. Give another --db FILE.")
    if primary in (5, 6) or "locked" in text:
        return StoreBusy(f"{path} is locked by another program: {text}. Try again when that program is done.")
    if primary == 13 or "full" in text:
        return StoreFull(f"The disk that holds {path} is full: {text}. Free some space; what was recorded is kept.")
    if primary == 8 or "readonly" in text:
        return StoreNotReadable(f"{path} cannot be written: {text}. Check its permissions and its folder's.")
    if primary == 11 or "malformed" in text:
        return StoreNotReadable(f"{path} is damaged: {text}. Restore a backup, or record into a new --db FILE.")
    if primary == 14 or "unable to open" in text:
        return StoreNotReadable(f"{path} cannot be opened: {text}. Check that its folder exists and may be written.")
    return StoreError(f"{path}: {text}")
