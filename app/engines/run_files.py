"""The detail of a sealed run: its file unpacked, read beside the board.

<folder>/cache/                     0700; all of it can be made again
    <digest of the file>.<version>.db

Of a sealed run the connection's main database is its file. People's words, and whatever else another run or a page may
change, are views of the board under the same names: a statement for one run is the same text for every run.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from compileboard.collectors.store.connection import BUSY_TIMEOUT_MS, DATABASE_VERSION
from compileboard.collectors.store.errors import StoreError, explain
from compileboard.collectors.store.maintenance.ownership import copy_owner
from compileboard.collectors.store.sealed.files import explain_os
from compileboard.collectors.store.sealed.reopening import unpack_current
from compileboard.collectors.store.sealed.rows import IN_FILE, SealedRun

CACHE_BYTES = 10 << 30
_NEW = ".new."
_ATTEMPTS = 3  # another process may remove a file before it is opened
_ABANDONED_S = 3600


class RunFiles:
    """The unpacked files of one board's sealed runs; those used longest ago go first."""

    def __init__(self, board: str, cache: str, most_bytes: int = CACHE_BYTES) -> None:
        self.board = board
        self._cache = Path(cache)
        self._most_bytes = most_bytes

    def open(self, sealed: SealedRun) -> sqlite3.Connection:
        """Return a connection with the detail of a sealed run and what the board has of all runs.

        Raises: StoreError if its file is damaged or not there, or the cache cannot be written.
        """
        path = self._cache / f"{sealed.file.digest.hex()}.{DATABASE_VERSION}.db"
        for _attempt in range(_ATTEMPTS):
            if not _use(path):
                self._unpack(sealed, path)
            try:
                connection = _open_file(path)
            except sqlite3.DatabaseError:  # removed meanwhile, or damaged: it is made anew
                path.unlink(missing_ok=True)
                continue
            try:
                _put_beside(connection, self.board)
            except sqlite3.Error as error:
                connection.close()
                raise explain(error, self.board) from error
            return connection
        raise StoreError(f"{path} cannot be opened. Check the permissions of its folder and the disk's room.")

    def _unpack(self, sealed: SealedRun, path: Path) -> None:
        try:
            self._cache.mkdir(mode=0o700, exist_ok=True)
            copy_owner(self._cache, Path(self.board))
            with tempfile.TemporaryDirectory(prefix=_NEW, dir=self._cache) as folder:
                new = Path(folder, "run.db")
                unpack_current(self.board, sealed.file, new)
                new.chmod(0o600)
                copy_owner(new, Path(self.board))
                with new.open("rb") as file:
                    os.fsync(file.fileno())  # a file that is there is whole, also after a power cut
                new.replace(path)
            self._trim(path)
        except OSError as error:
            raise explain_os(error, self._cache) from error

    def _trim(self, path: Path) -> None:
        """Remove the files that were used longest ago, until the others fit; what a killed process left goes too."""
        files = []
        for entry in os.scandir(self._cache):
            with suppress(FileNotFoundError):
                status = entry.stat()
                if entry.name.startswith(_NEW):
                    if time.time() - status.st_mtime > _ABANDONED_S:
                        shutil.rmtree(entry.path, ignore_errors=True)
                elif entry.path != str(path):
                    files.append((status.st_mtime, status.st_size, entry.path))
        total_bytes = path.stat().st_size + sum(size_bytes for _used_s, size_bytes, _path in files)
        for _used_s, size_bytes, name in sorted(files):
            if total_bytes <= self._most_bytes:
                return
            with suppress(FileNotFoundError):
                os.unlink(name)
            total_bytes -= size_bytes


def _use(path: Path) -> bool:
    """Note that a file is used; False where it is not there."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    except PermissionError:  # another user's: it is read all the same
        return path.exists()
    return True


def _open_file(path: Path) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    connection = sqlite3.connect(
        uri, uri=True, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
    )
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("select count(*) from sqlite_schema")
        connection.execute("pragma mmap_size = 268435456")
    except BaseException:
        connection.close()
        raise
    return connection


def _put_beside(connection: sqlite3.Connection, board: str) -> None:
    """Make all tables that are not a run's own those of the board, as of one moment."""
    connection.execute("attach ? as board", (f"{Path(board).absolute().as_uri()}?mode=ro",))
    rows = connection.execute("select name from board.sqlite_schema where type = 'table' and sql is not null")
    for (name,) in rows.fetchall():
        if name not in IN_FILE and not name.startswith(("search_words", "sqlite_")):
            connection.execute(f"create temp view {name} as select * from board.{name}")  # noqa: S608 - our own names
    connection.execute("pragma query_only = on")
    connection.execute("begin")
