"""Record which graph is running, in files that survive a crash of the process.

A graph's record is written before its first call, optionally followed by that call's inputs. The
number of the running graph is in a memory-mapped file, which survives any end of the process and
costs no system call. The recorder makes a repro of the graph that ran; a clean exit deletes both
files.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...contract.spool_format import GRAPHS_SUFFIX, RUNNING_BYTES, RUNNING_SUFFIX, read_running
from ..spool_writer import Spool, open_apart

MAX_GRAPHS = 2_000
MAX_VALUES_BYTES = 1 << 30  # Encoded values of all graphs of a process.
RUNNING, LAST = 0, 1


class RunningGraphWriter:
    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._descriptor: int | None = None
        self.clear()

    def clear(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        self._paths: list[str] = []
        self._slots: Any = None
        self._descriptor = None
        self.count = 0
        self.values_bytes = 0

    def add(self, line: bytes) -> int | None:
        """Write a graph's record; return its number, or None if there are too many. Raises
        OSError.
        """
        if self.count >= MAX_GRAPHS:
            return None
        if self._descriptor is None:
            self._open()
        assert self._descriptor is not None
        offset = os.lseek(self._descriptor, 0, os.SEEK_END)
        os.write(self._descriptor, line + b"\n")
        self.count += 1
        return offset + 1

    def add_values(self, lines: Sequence[bytes]) -> int | None:
        size_bytes = sum(len(line) + 1 for line in lines)
        if self.values_bytes + size_bytes > MAX_VALUES_BYTES or self._descriptor is None:
            return None
        self.values_bytes += size_bytes
        offset = os.lseek(self._descriptor, 0, os.SEEK_END)
        for line in lines:
            whole = line + b"\n"
            while whole:
                whole = whole[os.write(self._descriptor, whole) :]
        return offset + 1

    def _open(self) -> None:
        stem = os.path.join(self._spool.folder, self._spool.process_id)
        flags = os.O_RDWR | os.O_CREAT
        running = open_apart(stem + RUNNING_SUFFIX, flags)
        try:
            os.posix_fallocate(running, 0, RUNNING_BYTES)
            self._slots = memoryview(mmap.mmap(running, RUNNING_BYTES)).cast("q")
        finally:
            os.close(running)
        self._descriptor = open_apart(stem + GRAPHS_SUFFIX, flags | os.O_APPEND)
        self._paths = [stem + GRAPHS_SUFFIX, stem + RUNNING_SUFFIX]

    def wrap(
        self,
        call: Callable[..., Any],
        number: int,
        write_values: Callable[[tuple[Any, ...]], int | None] | None = None,
    ) -> Callable[..., Any]:
        """Return a function that calls a compiled graph, and marks it as running during the call.

        `write_values` is called once with the arguments of the first call and returns a new number.
        """

        def running(*args: Any) -> Any:
            nonlocal number, write_values
            slots = self._slots
            if slots is None:  # after a fork: the file is the parent's
                return call(*args)
            with_values = None
            if write_values is not None:
                write, write_values = write_values, None
                with_values = write(args)
                number = with_values or number
            outer = slots[RUNNING]
            slots[RUNNING] = slots[LAST] = number
            try:
                return call(*args)
            finally:
                slots[RUNNING] = outer
                if with_values is not None:
                    number = -with_values

        return running

    @contextlib.contextmanager
    def mark(self, number: int | None) -> Iterator[None]:
        """Mark a graph as being compiled by its backend within the block."""
        slots = self._slots
        if slots is None or number is None:
            yield
            return
        outer, slots[RUNNING] = slots[RUNNING], number
        try:
            yield
        finally:
            slots[RUNNING] = outer

    def read_last(self) -> list[dict[str, Any]]:
        """Return the records of the graph that ran last and of its inputs; empty if none ran.

        Raises OSError or ValueError if they cannot be read.
        """
        number = self._slots[LAST] if self._slots is not None else 0
        if number == 0:
            return []
        return read_running(self._paths[0], number)

    def end(self) -> None:
        for path in self._paths:
            with contextlib.suppress(OSError):
                os.unlink(path)
        self.clear()
