"""Available memory, a limit that makes further allocations fail, and page faults. Child processes
only; no torch.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

SHARE = 0.6  # of what is free: others use the machine too
_OF_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)  # Linux's


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes available without swapping, in the machine or in this container if that is
    less.
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
        except (OSError, ValueError):  # not there, or "max"
            continue
    return None


@contextlib.contextmanager
def bounded(share: float = SHARE) -> Iterator[int | None]:
    """Make allocations beyond a share of free memory fail inside the block; yield the number of
    bytes if known.

    The limit is on address space: memory that is not reserved cannot be filled.
    """
    free = available_bytes()
    before = resource.getrlimit(resource.RLIMIT_AS)
    if free is None:
        yield None
        return
    extra = int(free * share)
    limit = _address_space_bytes() + extra
    if before[1] != resource.RLIM_INFINITY:
        limit = min(limit, before[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield extra
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _address_space_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def count_page_faults(*, all_threads: bool = False) -> int | None:
    """Return the minor page faults of this thread or process so far, None if not available. It
    takes about 0.5 µs.
    """
    if _OF_THREAD is None:
        return None
    return resource.getrusage(resource.RUSAGE_SELF if all_threads else _OF_THREAD).ru_minflt
