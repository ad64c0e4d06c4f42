"""Memory that is free, and a limit on what this process may reserve."""

from __future__ import annotations

import resource
from pathlib import Path


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


def address_space_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def limit_address_space(extra_bytes: int) -> None:
    """Make allocations fail that reserve more than this beside what is reserved now."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = address_space_bytes() + extra_bytes
    resource.setrlimit(
        resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
    )
