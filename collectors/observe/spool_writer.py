"""Append records to this process's spool file, one write per record, with nothing to flush.

The page cache keeps written data after SIGKILL and os._exit. There is no thread, queue or lock, so
fork cannot deadlock. Failed writes are counted as losses; nothing here raises.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import stat
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ..contract.record_names import PROCESS_STARTED
from ..contract.spool_format import LOSSES_BYTES, LOSSES_SUFFIX, MANIFEST_NAME, RECORDS_SUFFIX

LOCK_TRIES, LOCK_PAUSE_S = 50, 0.001
NOT_OPEN = -1  # An invalid descriptor, which the system rejects.


def _plain(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    return str(value)


_ENCODER = json.JSONEncoder(
    default=_plain, separators=(",", ":")
)  # json.dumps makes a new one each time


def open_apart(path: str, flags: int) -> int:
    """Open a file without using descriptors 0 to 2, which the program may have closed."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    if descriptor > 2:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(descriptor)


def find_parent(folder: str) -> str | None:
    """Return the nearest ancestor process that writes into the run's spool.

    It is found by its open files (Linux), so that the programs in between need not pass on a
    variable.
    """
    folder = os.path.realpath(folder)
    pid = os.getppid()
    try:
        while pid > 1:
            for number in os.listdir(f"/proc/{pid}/fd"):
                path = f"/proc/{pid}/fd/{number}"
                try:
                    where, name = os.path.split(os.readlink(path))
                    if (
                        where == folder
                        and name.endswith(RECORDS_SUFFIX)
                        and not os.lstat(path).st_mode & stat.S_IRUSR
                    ):
                        return name.partition(".")[0]  # not open to be read, as in the recorder
                except OSError:  # closed meanwhile
                    continue
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):  # another person's process
        pass
    return None


class Spool:
    def __init__(
        self,
        folder: str,
        run_id: str,
        database: str,
        describe: Callable[[], dict[str, Any]],
        server: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.run_id = run_id
        self.destination = {"database": database, **(server or {})}  # what a manifest says of it
        self.describe = describe  # says what the process is; written before its first record
        self.losses: Counter[str] = Counter()
        self.parent_id: str | None = None
        self._reset()

    def _reset(self) -> None:
        self.process_id = uuid.uuid4().hex
        self.pid = os.getpid()
        self.closed = False
        self._descriptor = NOT_OPEN
        # Device and inode: a descriptor can be taken from us.
        self._file: tuple[int, int] | None = None
        self._openings = 0
        self._torn = False
        self._sequence = itertools.count()
        self.record_count = 0

    def after_fork(self) -> None:
        if self._links() is not None:
            os.close(self._descriptor)
        parent_id, closed = self.process_id, self.closed
        self._reset()
        self.parent_id, self.closed = parent_id, closed
        self.losses.clear()  # not replaced: the hooks' guard counts into the same one

    def write(
        self, name: str, metadata: Any, payload: Any = None, context: Any = None, extra: Any = None
    ) -> None:
        if self.closed or not (self._is_ours() or self.open()):
            return
        self._append(self.encode(name, metadata, payload, context, extra))

    def encode(
        self, name: str, metadata: Any, payload: Any = None, context: Any = None, extra: Any = None
    ) -> bytes:
        record: dict[str, Any] = {
            "s": next(self._sequence),
            "t": time.time_ns() // 1000,
            "n": name,
            "m": metadata,
        }
        if payload is not None:
            record["p"] = payload
        if context is not None:
            record["c"] = context
        if extra:
            record["x"] = extra
        return _ENCODER.encode(record).encode("utf-8", "backslashreplace")

    def _is_ours(self) -> bool:
        """Return whether the descriptor still refers to our file, and the file is still in its
        folder.

        Daemons close all descriptors, and the next file they open may get our number; users may
        delete the spool. The check takes 0.5 µs per record.
        """
        links = self._links()
        if links:
            return True
        if links == 0:
            self._lose("spool: its file was deleted")
            os.close(self._descriptor)
        self._descriptor = NOT_OPEN
        return False

    def _links(self) -> int | None:
        try:
            status = os.fstat(self._descriptor)
        except OSError:
            return None
        return status.st_nlink if (status.st_dev, status.st_ino) == self._file else None

    def _append(self, line: bytes) -> None:
        # After a torn write the next record starts on a line of its own, so that only the torn one
        # is unreadable.
        data = (b"\n" if self._torn else b"") + line + b"\n"
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            self._lose(f"spool: {error.strerror}")
            return
        if written < len(data):
            self._torn = True
            self._lose("spool: disk full")
        else:
            self._torn = False
            self.record_count += 1

    def open(self) -> bool:
        for _ in range(
            2
        ):  # the folder may be taken away, recorded and done with, between the steps below
            try:
                if self._open_file():
                    break
            except OSError as error:
                if self._descriptor == NOT_OPEN:
                    self._lose(f"spool: {error.strerror}")
                    return False
            os.close(self._descriptor)
            self._descriptor = NOT_OPEN
        else:
            self._lose("spool: its folder comes and goes")
            return False
        self.write(PROCESS_STARTED, *self._description())
        return True

    def _open_file(self) -> bool:
        self._openings += 1
        part = "" if self._openings == 1 else f".{self._openings}"
        path = os.path.join(self.folder, f"{self.process_id}{part}{RECORDS_SUFFIX}")
        if not os.path.isdir(self.folder):
            self._make_folder()
        self._descriptor = open_apart(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        status = os.fstat(self._descriptor)
        self._file = (status.st_dev, status.st_ino)
        # Held until the process is gone, however it goes: so a recorder knows that nothing more
        # will come.
        for attempt in range(LOCK_TRIES):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                break
            except BlockingIOError:  # a recorder looks at this very moment whether anybody holds it
                time.sleep(LOCK_PAUSE_S if attempt < LOCK_TRIES - 1 else 0)
        self._reserve()
        return os.stat(path).st_ino == status.st_ino

    def _make_folder(self) -> None:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        manifest = {
            "run_id": self.run_id,
            **self.destination,
            "name": self.run_id,
            "started_us": time.time_ns() // 1000,
            "late": True,
        }
        temporary = os.path.join(self.folder, f".{MANIFEST_NAME}.{self.process_id}")
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(manifest, file)
        try:
            os.link(
                temporary, os.path.join(self.folder, MANIFEST_NAME)
            )  # whole, and never over another's
        except FileExistsError:
            pass
        finally:
            os.unlink(temporary)

    def _description(self) -> tuple[dict[str, Any], None, None, dict[str, Any]]:
        described = {
            **self.describe(),
            "parent_process_id": self.parent_id or find_parent(self.folder),
        }
        return (
            described,
            None,
            None,
            {name: described.pop(name, None) for name in ("registry", "trace")},
        )

    def _reserve(self) -> None:
        """Reserve disk space so that losses can still be written when the disk is full."""
        path = os.path.join(self.folder, self.process_id + LOSSES_SUFFIX)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, LOSSES_BYTES)
            finally:
                os.close(descriptor)
        except OSError:
            return

    def _lose(self, reason: str) -> None:
        self.losses[reason] += 1
        text = json.dumps(dict(self.losses.most_common(8))).encode()
        try:
            descriptor = os.open(
                os.path.join(self.folder, self.process_id + LOSSES_SUFFIX),
                os.O_WRONLY | os.O_CLOEXEC,
            )
        except OSError:
            return
        try:
            os.pwrite(descriptor, text + b"\n", 0)
        except OSError:
            pass
        finally:
            os.close(descriptor)

    def close(self) -> None:
        if self._links() is not None:
            os.close(self._descriptor)
        self._descriptor = NOT_OPEN
        self.closed = True
