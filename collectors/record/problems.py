"""Say what keeps a run from being recorded, and whether it can go away."""

from __future__ import annotations

import sqlite3

from compileboard.collectors.store.errors import NotAStore, StoreError

NEEDED = {"sqlite_utils": "sqlite-utils", "zstandard": "zstandard"}  # of the collector's extra


def may_pass(error: Exception) -> bool:
    """Tell whether what keeps a run from being recorded can go away: a lock, a full disk, a package to be installed.

    A file that is no database, what SQLite refuses for what it is, and every error of our own cannot.
    """
    if isinstance(error, StoreError):
        refused = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
        return not isinstance(error, NotAStore) and not isinstance(error.__cause__, refused)
    return isinstance(error, (OSError, ImportError, MemoryError, sqlite3.OperationalError))


def describe_error(error: Exception) -> str:
    """Return an error in our own words where it has them, else with its kind."""
    if isinstance(error, ModuleNotFoundError) and error.name in NEEDED:
        return (
            f"{NEEDED[error.name]} is not installed; pip install 'compileboard[collector]' brings what is needed here"
        )
    words = " ".join(str(error).split())  # one line, whatever a path or another's exception holds
    told = words and isinstance(error, (StoreError, OSError, ValueError))
    return words if told else f"{type(error).__name__}: {words}".removesuffix(": ")
