"""What runs once over all servers of one database: a lock file each, which goes with the process that holds it.

<database>-locks/    0700
    serve            shared by every server: nobody replaces the database below them
    follow           the process that updates incidents and sends alerts
    prune            the process that prunes runs
    reopen           the process that puts the rows of a large sealed run back
    publish          the process that publishes runs in the second engine, or seals those that ended
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from compileboard.collectors.store.maintenance.ownership import copy_owner

SERVE, FOLLOW, PRUNE, PUBLISH, REOPEN = "serve", "follow", "prune", "publish", "reopen"


class Lease:
    """A lock that is held until it is closed, or its process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def renew(self) -> None:
        """Save that its holder is at work: `read_renewed` tells when."""
        os.utime(self._descriptor)

    def close(self) -> None:
        """Let the next one have it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def take_lease(database: str | os.PathLike[str], name: str, *, shared: bool = False) -> Lease | None:
    """Take a lease; None if another process has it.

    Raises: OSError if the lock file cannot be made.
    """
    path = Path(os.path.realpath(database))
    folder = Path(f"{path}-locks")
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        for made in (folder, folder / name):
            copy_owner(made, path if path.exists() else path.parent)
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return Lease(descriptor)


def is_taken(database: str | os.PathLike[str], name: str) -> bool:
    """Return True if some process holds a lease, shared or not; nothing is made to find out."""
    return is_locked(Path(f"{os.path.realpath(database)}-locks", name), fcntl.LOCK_EX)


def is_locked(path: Path, operation: int = fcntl.LOCK_SH) -> bool:
    """Return True if a process holds a lock on a file that excludes `operation`; False where there is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def read_renewed(database: str | os.PathLike[str], name: str) -> float | None:
    """Return when the holder of a lease was last at work, in seconds since the epoch; None if it never was."""
    try:
        return Path(f"{os.path.realpath(database)}-locks", name).stat().st_mtime
    except OSError:
        return None
