"""The graph that runs now, where a process that dies leaves it: each graph's repro in a file, its number beside it.

A graph's record is written before its first call. What is written to the mapped file outlives the process however it
ends, and costs no system call. The recorder makes a repro of the graph that ran; a clean end deletes both files.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
from collections.abc import Callable
from typing import Any

from ...contract.spool_format import GRAPHS_SUFFIX, RUNNING_BYTES, RUNNING_SUFFIX
from ..spool_writer import Spool

MOST_GRAPHS = 2_000
RUNNING, LAST = 0, 1


class RunningGraphs:
    """The graphs of one process, and which of them runs."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

        self._descriptor: int | None = None
        self.clear()

    def clear(self) -> None:
        """Begin as a new process: the parent's files stay the parent's."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        self._paths: list[str] = []
        self._slots: Any = None
        self._descriptor = None
        self.count = 0

    def add(self, line: bytes) -> int | None:
        """Write a graph's record; return its number, None if there are too many.

        Raises: OSError if it cannot be written.
        """
        if self.count >= MOST_GRAPHS:
            return None
        if self._descriptor is None:
            self._open()
        assert self._descriptor is not None
        offset = os.lseek(self._descriptor, 0, os.SEEK_END)
        os.write(self._descriptor, line + b"\n")
        self.count += 1
        return offset + 1

    def _open(self) -> None:
        stem = os.path.join(self._spool.folder, self._spool.process_id)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        running = os.open(stem + RUNNING_SUFFIX, flags, 0o600)
        try:
            os.posix_fallocate(running, 0, RUNNING_BYTES)
            self._slots = memoryview(mmap.mmap(running, RUNNING_BYTES)).cast("q")
        finally:
            os.close(running)
        self._descriptor = os.open(stem + GRAPHS_SUFFIX, flags | os.O_APPEND, 0o600)
        self._paths = [stem + GRAPHS_SUFFIX, stem + RUNNING_SUFFIX]

    def wrap(self, call: Callable[..., Any], number: int) -> Callable[..., Any]:
        """Return a function that calls a compiled graph and says meanwhile that it runs."""

        def running(*arguments: Any) -> Any:
            slots = self._slots
            if slots is None:  # after a fork: the file is the parent's
                return call(*arguments)
            outer = slots[RUNNING]
            slots[RUNNING] = slots[LAST] = number
            try:
                return call(*arguments)
            finally:
                slots[RUNNING] = outer

        return running

    def read_last(self) -> dict[str, Any] | None:
        """Return the record of the graph that ran last, None if none did.

        Raises: OSError or ValueError if it cannot be read.
        """
        if self._slots is None or self._slots[LAST] <= 0:
            return None
        with open(self._paths[0], "rb") as file:
            file.seek(self._slots[LAST] - 1)
            record: dict[str, Any] = json.loads(file.readline())
        return record

    def end(self) -> None:
        """Delete the files: the process ends as it should."""
        for path in self._paths:
            with contextlib.suppress(OSError):
                os.unlink(path)
        self.clear()
