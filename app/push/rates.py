"""Rate limits for tokens: a bucket that fills by the second and may be emptied at once."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable

from compileboard.app.shared_table import SharedRecord, SharedTable

LEAST_BYTES = 4 << 10  # what a request costs, however small
SETS = 2048  # of 8 clients each; that of a client that is forgotten is full again
_LEVEL = struct.Struct("d")


class RateLimit:
    """The rate limits of a server's clients, shared by its workers; create it before these are
    forked.

    A request passes while its client's bucket is not empty, and may overdraw it.
    """

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._buckets = SharedTable("rates", value_bytes=_LEVEL.size, set_count=SETS)

    def get_wait_s(self, client: str, bytes_per_min: float) -> int:
        level_bytes = self._take(client, 0, bytes_per_min)
        return 0 if level_bytes > 0 else max(1, math.ceil(-level_bytes * 60 / bytes_per_min))

    def take(self, client: str, size_bytes: int, bytes_per_min: float) -> None:
        self._take(client, max(LEAST_BYTES, size_bytes), bytes_per_min)

    def _take(self, client: str, size_bytes: int, bytes_per_min: float) -> float:
        level_bytes = bytes_per_min

        def change(bucket: SharedRecord | None) -> SharedRecord:
            nonlocal level_bytes
            now_ns = self._clock_ns()  # within the lock: workers count one after another
            if bucket is not None:
                (before_bytes,) = _LEVEL.unpack(bucket.value)
                passed_s = (
                    max(0, now_ns - bucket.touched) / 1e9
                )  # a clock that is set back fills nothing
                level_bytes = min(bytes_per_min, before_bytes + passed_s * bytes_per_min / 60)
            level_bytes -= size_bytes
            return SharedRecord(now_ns, _LEVEL.pack(level_bytes))

        self._buckets.update(client.encode(), change)
        return level_bytes
