"""A server's connections to its board that no request has: to open one takes 1.5 ms, most of it to parse the schema."""

from __future__ import annotations

import os
import sqlite3
import weakref

from compileboard.collectors.store.connection import DATABASE_VERSION, Reader, open_reader


class IdleReaders:
    """Connections that requests have released, for later requests of the same process."""

    def __init__(self, most_count: int) -> None:
        self._most_count = most_count
        self._readers: dict[int, list[Reader]] = {}  # by process: a forked one cannot use those of before
        weakref.finalize(self, _close_all, self._readers, os.getpid()).atexit = False

    def open(self, path: str) -> Reader:
        """Return a connection to a database as it is now.

        Raises: StoreError as open_reader does.
        """
        readers = self._readers.get(os.getpid(), [])
        while readers:
            try:
                reader = readers.pop()
            except IndexError:  # another thread has it
                break
            if _is_usable(reader, path):
                return reader
            reader.close()
        return open_reader(path)

    def release(self, reader: Reader) -> None:
        """Take a connection back; close it where it is of no use for later requests."""
        readers = self._readers.setdefault(os.getpid(), [])
        try:
            if reader.in_transaction:
                reader.execute("rollback")
        except sqlite3.Error:
            reader.close()
            return
        if reader.file is not None and len(readers) < self._most_count:
            readers.append(reader)
        else:
            reader.close()


def _is_usable(reader: Reader, path: str) -> bool:
    """Return whether a connection has the file that is there now, and that file is of this version."""
    try:
        status = os.stat(path)
        (version,) = reader.execute("pragma user_version").fetchone()
    except (OSError, sqlite3.Error):
        return False
    return (status.st_dev, status.st_ino) == reader.file and version == DATABASE_VERSION


def _close_all(readers: dict[int, list[Reader]], process_id: int) -> None:
    for reader in readers.get(process_id, []) if process_id == os.getpid() else []:
        reader.close()
