"""A worker's one thread that stores what boxes send: its connection, its queue, its turn among the workers."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from compileboard.app.push.refusals import PushRefused
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.errors import StoreError, explain
from compileboard.collectors.store.streams.receive import StreamWriter

Result = TypeVar("Result")
RETRY_S = 1


class WriterThread:
    """The thread, with a writer of the database that it opens itself. `most_waiting` jobs wait for it."""

    def __init__(self, path: str, most_waiting: int) -> None:
        self.path = path
        self._pool = ThreadPoolExecutor(1, "push")
        self._room = threading.BoundedSemaphore(most_waiting + 1)
        self._writer: StreamWriter | None = None
        self._identity: tuple[int, int] | None = None

    def submit(self, job: Callable[[StreamWriter], Result]) -> Future[Result]:
        """Queue a job.

        Raises: PushRefused where too many wait.
        """
        if not self._room.acquire(blocking=False):
            raise PushRefused(503, "Too much waits to be stored. Try again soon.", retry_after_s=RETRY_S)
        try:
            future = self._pool.submit(self._run, job)
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(lambda _future: self._room.release())
        return future

    def _run(self, job: Callable[[StreamWriter], Result]) -> Result:
        with _turn(self.path):
            writer = self._open()
            try:
                return job(writer)
            except (StoreError, sqlite3.Error) as error:
                self._close()
                raise explain(error, self.path) if isinstance(error, sqlite3.Error) else error from None

    def _open(self) -> StreamWriter:
        status = os.stat(self.path) if os.path.exists(self.path) else None
        identity = (status.st_dev, status.st_ino) if status else None
        if self._writer is None or identity != self._identity:
            self._close()
            self._writer = StreamWriter(open_writer(self.path, create=False), self.path)
            self._identity = identity
        return self._writer

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.connection.close()


@contextmanager
def _turn(path: str) -> Iterator[None]:
    """Wait for a turn among this server's workers: SQLite's own waiting sleeps, and passes nobody on.

    The folder is locked, not the file: closing a file drops the locks that SQLite holds on it.
    """
    folder = os.open(Path(path).absolute().parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


_threads: dict[tuple[int, str], WriterThread] = {}
_lock = threading.Lock()


def get_writer_thread(path: str, most_waiting: int) -> WriterThread:
    """Return this process's thread; a forked worker makes its own."""
    key = (os.getpid(), path)
    with _lock:
        if key not in _threads:
            _threads[key] = WriterThread(path, most_waiting)
        return _threads[key]
