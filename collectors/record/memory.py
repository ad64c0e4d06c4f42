"""Measure free memory, and limit how much this process may allocate."""

from __future__ import annotations

import resource
from pathlib import Path

SHARE = 0.75  # The default share of the free memory, because others use the machine too.


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes available without swapping, in the machine or, if that is less, in this
    container.
    """
    limits = [
        limit
        for limit in (
            _of_the_machine(root / "proc/meminfo"),
            _of_the_container(root / "sys/fs/cgroup"),
        )
        if limit
    ]
    return min(limits, default=None)


def _of_the_machine(path: Path) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next(
        (int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None
    )


def _of_the_container(folder: Path) -> int | None:
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            return max(0, int((folder / limit).read_text()) - int((folder / used).read_text()))
        except (OSError, ValueError):  # missing, or "max"
            continue
    return None


def limit_memory(extra_bytes: int | None = None) -> None:
    """Make allocations fail beyond this many additional bytes, or beyond a share of the free
    memory.

    The limit is on data, not on address space, of which CUDA reserves far more than it uses.
    """
    if extra_bytes is None:
        free_bytes = available_bytes()
        if free_bytes is None:
            return
        extra_bytes = int(free_bytes * SHARE)
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    limit = _data_bytes() + extra_bytes
    resource.setrlimit(
        resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
    )


def lift_memory_limit() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (resource.getrlimit(resource.RLIMIT_DATA)[1],) * 2)


def allowed_bytes() -> int:
    """Return how many bytes this process may still allocate."""
    free_bytes = available_bytes() or 1 << 62
    max_bytes = resource.getrlimit(resource.RLIMIT_DATA)[0]
    if max_bytes == resource.RLIM_INFINITY:
        return free_bytes
    return min(free_bytes, max_bytes - _data_bytes())


def _data_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    return pages * resource.getpagesize()
