"""A worker's one thread that stores pushed data: its connection, its queue, its turn among the
workers.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from compileboard.app.push.refusals import PushRefused
from compileboard.collectors.store.connection import PartFailed, open_writer
from compileboard.collectors.store.errors import StoreError, explain
from compileboard.collectors.store.sealed.large_runs import RunSealed, reopen_in
from compileboard.collectors.store.streams.receive import StreamWriter

Result = TypeVar("Result")
RETRY_S = 1
TURN_S = 0.1  # of one worker: the other ones, and pages that write, wait meanwhile


class _Job(Generic[Result]):
    def __init__(self, call: Callable[[StreamWriter], Result]) -> None:
        self.future: Future[Result] = Future()
        self.error: Exception | None = None
        self._call = call
        self._result: Result | None = None

    def run(self, writer: StreamWriter) -> None:
        self.error = None
        try:
            self._result = self._call(writer)
        except PartFailed:
            raise
        except Exception as error:  # of whatever kind, who waits for the job gets it
            self.error = explain(error, writer.path) if isinstance(error, sqlite3.Error) else error

    def answer(self) -> None:
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(cast("Result", self._result))


class WriterThread:
    """Jobs that wait are stored in one transaction, and answered after its commit. If one fails,
    each gets its own.
    """

    def __init__(self, path: str, most_waiting: int) -> None:
        self.path = path
        self._pool = ThreadPoolExecutor(1, "push")
        self._room = threading.BoundedSemaphore(most_waiting + 1)
        self._waiting: deque[_Job[Any]] = deque()
        self._writer: StreamWriter | None = None
        self._identity: tuple[int, int] | None = None
        self._reopening: set[str] = set()  # large sealed runs that threads of their own put back
        self._failures: dict[str, StoreError] = {}  # why one of these could not

    def submit(self, call: Callable[[StreamWriter], Result]) -> Future[Result]:
        """Queue a job. Raises PushRefused if too many wait."""
        if not self._room.acquire(blocking=False):
            raise PushRefused(
                503, "Too much waits to be stored. Try again soon.", retry_after_s=RETRY_S
            )
        job = _Job(call)
        job.future.add_done_callback(lambda _future: self._room.release())
        self._waiting.append(job)
        self._pool.submit(self._work)
        return job.future

    def _work(self) -> None:
        if not self._waiting:
            return
        jobs: list[_Job[Any]] = []
        try:
            with _turn(self.path):
                self._store(jobs)
        except BaseException as error:
            self._close()
            for job in jobs or [self._waiting.popleft()]:
                job.future.set_exception(
                    explain(error, self.path) if isinstance(error, sqlite3.Error) else error
                )
        else:
            for job in jobs:
                job.answer()

    def _store(self, jobs: list[_Job[Any]]) -> None:
        writer, until_s = self._open(), time.monotonic() + TURN_S
        try:
            with writer.together():
                while self._waiting and (not jobs or time.monotonic() < until_s):
                    jobs.append(self._waiting.popleft())
                    jobs[-1].run(writer)
        except PartFailed:
            for job in jobs:
                job.run(self._open())
                if isinstance(job.error, StoreError):
                    self._close()
        if self._writer is not None:
            self._writer.fold()
        for job in jobs:
            if isinstance(job.error, RunSealed):
                job.error = self._reopen(job.error)

    def _reopen(self, refusal: RunSealed) -> StoreError:
        failure = self._failures.pop(refusal.run_id, None)
        if failure is None and refusal.run_id not in self._reopening:
            self._reopening.add(refusal.run_id)
            threading.Thread(
                target=self._put_back, args=(refusal.run_id,), name="reopen", daemon=True
            ).start()
        return failure or refusal

    def _put_back(self, run_id: str) -> None:
        try:
            reopen_in(self.path, run_id)
        except (StoreError, sqlite3.Error) as error:
            self._failures[run_id] = (
                explain(error, self.path) if isinstance(error, sqlite3.Error) else error
            )
        finally:
            self._reopening.discard(run_id)

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
    """Wait for this worker's turn: SQLite's own waiting sleeps and has no order.

    The folder is locked, not the file: closing a file drops SQLite's locks on it.
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
    key = (os.getpid(), path)
    with _lock:
        if key not in _threads:
            _threads[key] = WriterThread(path, most_waiting)
        return _threads[key]
