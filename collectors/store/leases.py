"""Locks for tasks that only one server of a database may run at a time. A lock is released when its
process dies.

<database>-locks/    0700
    serve            shared by all servers: prevents replacing the database
    follow           updates incidents and sends alerts
    prune            prunes runs
    reopen           restores the rows of a large sealed run
    publish          publishes runs to ClickHouse, or seals ended ones
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path


def copy_owner(path: Path, model: Path) -> None:
    if os.geteuid() != 0:
        return
    with suppress(OSError):  # A container may have no such user.
        status = model.stat()
        os.chown(path, status.st_uid, status.st_gid, follow_symlinks=False)


SERVE, FOLLOW, PRUNE, PUBLISH, REOPEN = "serve", "follow", "prune", "publish", "reopen"


class Lease:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def renew(self) -> None:
        """Update the lock file's time, which `read_renewed` returns, to show that the holder is
        active.
        """
        os.utime(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def try_acquire_lease(
    database: str | os.PathLike[str], name: str, *, shared: bool = False
) -> Lease | None:
    """Take a lease, or return None if another process has it. Raises OSError if its file cannot be
    opened.
    """
    path = Path(os.path.realpath(database))
    folder = Path(f"{path}-locks")
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = try_lock(folder / name, shared=shared)
    if descriptor is None:
        return None
    for made in (folder, folder / name):
        copy_owner(made, path if path.exists() else path.parent)
    return Lease(descriptor)


def try_lock(
    path: Path, flags: int = os.O_RDWR | os.O_CREAT, *, shared: bool = False
) -> int | None:
    """Lock a file until the returned descriptor is closed; None if another process holds the lock.

    Raises OSError if the file cannot be opened or is a symbolic link.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_lease_held(database: str | os.PathLike[str], name: str) -> bool:
    return is_locked(Path(f"{os.path.realpath(database)}-locks", name), shared=False)


def is_locked(path: Path, *, shared: bool = True) -> bool:
    """Return whether a process holds a lock that excludes another one. False if there is no
    file.
    """
    try:
        descriptor = try_lock(path, os.O_RDONLY, shared=shared)
    except OSError:
        return False
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def read_renewed(database: str | os.PathLike[str], name: str) -> float | None:
    try:
        return Path(f"{os.path.realpath(database)}-locks", name).stat().st_mtime
    except OSError:
        return None
