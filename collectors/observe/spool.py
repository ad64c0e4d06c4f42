"""Write records to this process's spool: one append-only file, one write a record, nothing to flush.

The page cache keeps what was written through SIGKILL and os._exit. There is no thread, no queue and no lock, so fork
cannot deadlock on it. A write that fails is a counted loss; nothing here raises.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

SUFFIX = ".jsonl"


def _plain(value: Any) -> Any:
    """Give JSON a stand-in for what it cannot write: sets become lists, the rest its text."""
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    return str(value)


class Spool:
    """Append records under this process's identity, which is made anew after every fork."""

    def __init__(self, folder: str, describe: Callable[[], dict[str, Any]]) -> None:
        self.folder = folder
        self.describe = describe  # says what the process is; written before its first record
        self.losses: Counter[str] = Counter()
        self.parent_id: str | None = None
        self._reset()
        os.register_at_fork(after_in_child=self._after_fork)

    def _reset(self) -> None:
        self.process_id = uuid.uuid4().hex
        self.pid = os.getpid()
        self.closed = False
        self._fd: int | None = None
        self._torn = False
        self._sequence = itertools.count()
        self.record_count = 0

    def _after_fork(self) -> None:
        """Become another process: the parent's file stays the parent's, and so does its lock."""
        if self._fd is not None:
            os.close(self._fd)
        parent_id, closed = self.process_id, self.closed
        self._reset()
        self.parent_id, self.closed = parent_id, closed
        self.losses = Counter()

    def write(self, name: str, metadata: Any, payload: Any = None, context: Any = None, extra: Any = None) -> None:
        """Append one record. A failure is counted under its reason."""
        if self.closed:
            return
        if self._fd is None and not self.open():
            return
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
        self._append(json.dumps(record, default=_plain, separators=(",", ":")).encode("utf-8", "backslashreplace"))

    def _append(self, line: bytes) -> None:
        # After a torn write the next record starts on a line of its own, so that only the torn one is unreadable.
        data = (b"\n" if self._torn else b"") + line + b"\n"
        try:
            written = os.write(self._fd or 0, data) if self._fd is not None else 0
        except OSError as error:
            self.losses[f"spool: {error.strerror}"] += 1
            return
        self._torn = written < len(data)
        if self._torn:
            self.losses["spool: disk full"] += 1
        else:
            self.record_count += 1

    def open(self) -> bool:
        """Make the file, take its lock and say what the process is; the first write does so by itself."""
        try:
            path = os.path.join(self.folder, self.process_id + SUFFIX)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            # Held until the process is gone, however it goes: so a recorder knows that nothing more will come.
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            self.losses[f"spool: {error.strerror}"] += 1
            if self._fd is None:
                return False
        self.write("process_started", {**self.describe(), "parent_process_id": self.parent_id})
        return True

    def close(self) -> None:
        """Write no more."""
        self.closed = True
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
