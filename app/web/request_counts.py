"""Request counts by route and status, with latencies, shared by all workers of a server.

They are in shared memory created before the workers are forked. Each worker adds to its own part,
so that no increment is lost; a new worker takes over the part of a dead one.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import threading
import weakref
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

STATUSES = (
    *(
        200,
        201,
        202,
        204,
        206,
        301,
        302,
        303,
        304,
        400,
        401,
        403,
        404,
        405,
        408,
        409,
        410,
        411,
        413,
        415,
        422,
        426,
    ),
    *(429, 460, 500, 503, 507, 0),  # 0: any other
)
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
NO_ROUTE = ("GET", "")
_BYTES = 8
_AFTER_STATUSES = len(STATUSES)
_AFTER_BUCKETS = _AFTER_STATUSES + len(BUCKETS_S) + 1
_NUMBERS_A_ROUTE = _AFTER_BUCKETS + 1  # and the seconds


@dataclass(frozen=True)
class RouteCounts:
    """Counts of one route; `bucket_counts` is not cumulative and has one more element than
    BUCKETS_S.
    """

    method: str
    route: str
    status_counts: dict[int, int]
    bucket_counts: Sequence[int]
    total_s: float


class RequestCounts:
    """Request counts of one server. Create it before the workers are forked."""

    def __init__(self, routes: Iterable[tuple[str, str]], workers: int) -> None:
        names = [NO_ROUTE, *sorted(set(routes) - {NO_ROUTE})]
        self._offsets = {name: number * _NUMBERS_A_ROUTE for number, name in enumerate(names)}
        self._part_bytes = len(names) * _NUMBERS_A_ROUTE * _BYTES
        self._part_count = 2 * workers + 2  # old workers and new ones, while a server is reloaded
        self._file = os.memfd_create("compileboard-requests", os.MFD_CLOEXEC)
        os.ftruncate(self._file, self._part_bytes * self._part_count)
        self._memory = mmap.mmap(self._file, self._part_bytes * self._part_count)
        self._lock = threading.Lock()
        self._pid = 0
        self._start = 0
        weakref.finalize(self, os.close, self._file)

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        offset = self._offsets.get((method, route), 0)
        status_number = STATUSES.index(status) if status in STATUSES else _AFTER_STATUSES - 1
        with self._lock:
            if self._pid != os.getpid():
                self._take_part()
            start = self._start + offset * _BYTES
            self._increase("q", start + status_number * _BYTES, 1)
            self._increase(
                "q", start + (_AFTER_STATUSES + bisect_left(BUCKETS_S, seconds)) * _BYTES, 1
            )
            self._increase("d", start + _AFTER_BUCKETS * _BYTES, seconds)

    def _increase(self, kind: str, offset: int, amount: float) -> None:
        (value,) = struct.unpack_from(kind, self._memory, offset)
        struct.pack_into(kind, self._memory, offset, value + amount)

    def _take_part(self) -> None:
        self._pid = os.getpid()
        for number in range(self._part_count):
            self._start = number * self._part_bytes
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._start)
                return
            except OSError:
                continue

    def read(self) -> Iterator[RouteCounts]:
        layout = struct.Struct(f"{_AFTER_BUCKETS}qd")
        for (method, route), offset in self._offsets.items():
            parts = [
                layout.unpack_from(self._memory, number * self._part_bytes + offset * _BYTES)
                for number in range(self._part_count)
            ]
            sums = [sum(numbers) for numbers in zip(*parts)]
            if any(sums):
                statuses = dict(zip(STATUSES, sums))
                yield RouteCounts(
                    method,
                    route,
                    {status: count for status, count in statuses.items() if count},
                    sums[_AFTER_STATUSES:_AFTER_BUCKETS],
                    sums[_AFTER_BUCKETS],
                )
