"""How much each token may send: a bucket that fills by the second and may be emptied at once."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

LEAST_BYTES = 4 << 10  # what a request costs, however small
REMEMBERED = 10_000


@dataclass
class _Bucket:
    level_bytes: float
    filled_s: float


class RateLimit:
    """The rates of a worker's clients. A request goes through while its bucket is not empty, and may overdraw it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._lock = threading.Lock()

    def get_wait_s(self, client: str, bytes_per_min: float) -> int:
        """Return after how many seconds a client may send again; 0 is now."""
        with self._lock:
            level_bytes = self._fill(client, bytes_per_min).level_bytes
        return 0 if level_bytes > 0 else max(1, math.ceil(-level_bytes * 60 / bytes_per_min))

    def take(self, client: str, size_bytes: int, bytes_per_min: float) -> None:
        """Count what a client sent."""
        with self._lock:
            self._fill(client, bytes_per_min).level_bytes -= max(LEAST_BYTES, size_bytes)

    def _fill(self, client: str, bytes_per_min: float) -> _Bucket:
        now_s = self._clock()
        bucket = self._buckets.pop(client, None) or _Bucket(bytes_per_min, now_s)
        bucket.level_bytes = min(bytes_per_min, bucket.level_bytes + (now_s - bucket.filled_s) * bytes_per_min / 60)
        bucket.filled_s = now_s
        self._buckets[client] = bucket
        if len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
        return bucket
