"""A small table shared by all workers of a server, in memory created before they are forked.

Records are read and written under a kernel lock, which is released when a process dies. Each set
holds a few records; a full set replaces the one touched longest ago.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import struct
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

RECORDS_A_SET = 8
_KEY_BYTES = 16
_STAMP = struct.Struct("q")
_HEAD_BYTES = _KEY_BYTES + _STAMP.size
_EMPTY = bytes(_KEY_BYTES)
# The kernel's locks are of the process. One of all tables: it takes a thread that waits for one
# table while another thread has a second one for a deadlock, and refuses.
_process_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class SharedRecord:
    """One record; `touched` is its age order, in a unit that the caller chooses."""

    touched: int
    value: bytes


class SharedTable:
    """A fixed-size table in shared memory. Create it before the workers are forked."""

    def __init__(
        self, name: str, *, value_bytes: int, set_count: int = 1, records_a_set: int = RECORDS_A_SET
    ) -> None:
        self._record_bytes = _HEAD_BYTES + value_bytes
        self._value_bytes = value_bytes
        self._set_count, self._set_bytes = set_count, self._record_bytes * records_a_set
        self._file = os.memfd_create(f"compileboard-{name}", os.MFD_CLOEXEC)
        os.ftruncate(self._file, self._set_bytes * set_count)
        self._memory = mmap.mmap(self._file, self._set_bytes * set_count)
        self._salt = os.urandom(16)  # nobody chooses keys that share a set
        weakref.finalize(self, os.close, self._file)

    def update(
        self, name: bytes, change: Callable[[SharedRecord | None], SharedRecord | None]
    ) -> SharedRecord | None:
        """Replace a record by `change(record)` and return it; None stands for no record."""
        key = hashlib.blake2b(name, digest_size=_KEY_BYTES, key=self._salt).digest()
        start = int.from_bytes(key[:8], "little") % self._set_count * self._set_bytes
        with _process_lock:
            fcntl.lockf(self._file, fcntl.LOCK_EX, 1, start)
            try:
                offset, is_there = self._find(key, start)
                record = self._read(offset) if is_there else None
                changed = change(record)
                if changed is not record:
                    self._write(offset, key, changed, is_there=is_there)
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, start)
        return changed

    def _find(self, key: bytes, start: int) -> tuple[int, bool]:
        memory, oldest, oldest_touched = self._memory, start, None
        for offset in range(start, start + self._set_bytes, self._record_bytes):
            other = memory[offset : offset + _KEY_BYTES]
            if other == key:
                return offset, True
            touched = (
                -(1 << 63)
                if other == _EMPTY
                else _STAMP.unpack_from(memory, offset + _KEY_BYTES)[0]
            )
            if oldest_touched is None or touched < oldest_touched:
                oldest, oldest_touched = offset, touched
        return oldest, False

    def _read(self, offset: int) -> SharedRecord:
        (touched,) = _STAMP.unpack_from(self._memory, offset + _KEY_BYTES)
        return SharedRecord(
            touched, self._memory[offset + _HEAD_BYTES : offset + self._record_bytes]
        )

    def _write(
        self, offset: int, key: bytes, record: SharedRecord | None, *, is_there: bool
    ) -> None:
        memory = self._memory
        if (
            record is None or not is_there
        ):  # first: a process that is killed leaves no other's record under a key
            memory[offset : offset + _KEY_BYTES] = _EMPTY
        if record is not None:
            body = _STAMP.pack(record.touched) + record.value.ljust(self._value_bytes, b"\0")
            memory[offset + _KEY_BYTES : offset + self._record_bytes] = body
            if not is_there:
                memory[offset : offset + _KEY_BYTES] = key
