from __future__ import annotations

import time


def read_clock_us() -> int:
    """Return microseconds since the epoch."""
    return time.time_ns() // 1000
