"""Browser sessions and failed logins.

They are stored in the database, shared by all servers. A read-only server keeps them in its
workers' shared memory until it ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import secrets
import struct
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from flask import Flask, current_app

from compileboard.app.core.db import close_store, get_board_path, get_reader, is_read_only, writing
from compileboard.app.core.logins import (
    BrowserSession,
    LoginFailure,
    get_session,
    list_login_failures,
)
from compileboard.collectors.store.connection import checkpoint, open_writer, write_transaction
from compileboard.collectors.store.tokens import (
    close_session,
    hash_secret,
    open_session,
    save_login_failure,
)

RECORDS_A_SET = 8
_KEY_BYTES = 16
_STAMP = struct.Struct("q")
_HEAD_BYTES = _KEY_BYTES + _STAMP.size
_EMPTY = bytes(_KEY_BYTES)
# The kernel's locks belong to a process. All tables share one: with several, it would refuse a
# thread that waits for one table while another thread holds a second, as a deadlock.
_process_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class SharedRecord:
    """One record. `touched` orders records by age, in a unit that the caller chooses."""

    touched: int
    value: bytes


class SharedTable:
    """A fixed-size table in shared memory for all workers of a server.

    Create it before the workers are forked. Records are read and written under a kernel lock, which
    is released when a process dies. A set has `records_a_set` records; if it is full, a new record
    replaces the one touched longest ago.
    """

    def __init__(
        self, name: str, *, value_bytes: int, set_count: int = 1, records_a_set: int = RECORDS_A_SET
    ) -> None:
        self._record_bytes = _HEAD_BYTES + value_bytes
        self._value_bytes = value_bytes
        self._set_count, self._set_bytes = set_count, self._record_bytes * records_a_set
        self._file = os.memfd_create(f"compileboard-{name}", os.MFD_CLOEXEC)
        os.ftruncate(self._file, self._set_bytes * set_count)
        self._memory = mmap.mmap(self._file, self._set_bytes * set_count)
        self._salt = os.urandom(16)  # so that clients cannot choose keys in one set
        weakref.finalize(self, os.close, self._file)

    def update(
        self, name: bytes, change: Callable[[SharedRecord | None], SharedRecord | None]
    ) -> SharedRecord | None:
        """Replace a record by `change(record)` and return it; None means no record."""
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
        ):  # written first: a killed process must not leave another's record under a key
            memory[offset : offset + _KEY_BYTES] = _EMPTY
        if record is not None:
            body = _STAMP.pack(record.touched) + record.value.ljust(self._value_bytes, b"\0")
            memory[offset + _KEY_BYTES : offset + self._record_bytes] = body
            if not is_there:
                memory[offset : offset + _KEY_BYTES] = key


WINDOW_US = 300 * 1_000_000
MAX_FAILURES, MAX_PER_ADDRESS = 200, 10  # within the window
MAX_ADDRESS_LENGTH = 100
SESSION_SETS = 512  # of 8 logins each
ADDRESS_SETS = 512  # of 8 addresses each; an address that is displaced may try again
_FAILURE = struct.Struct("q8s")
_SESSION = struct.Struct("q10s")
_ALL = b"failures"


class MemoryLoginStore:
    def __init__(self) -> None:
        self._sessions = SharedTable("sessions", value_bytes=_SESSION.size, set_count=SESSION_SETS)
        size_bytes = _FAILURE.size * MAX_FAILURES
        self._failures = SharedTable("login-failures", value_bytes=size_bytes, records_a_set=1)

    def open_session(self, token_id: str, *, expires_us: int, now_us: int) -> str:
        cookie = secrets.token_urlsafe(32)
        record = SharedRecord(now_us, _SESSION.pack(expires_us, token_id.encode()))
        self._sessions.update(hash_secret(cookie), lambda _before: record)
        return cookie

    def get_session(self, session_hash: bytes) -> BrowserSession | None:
        record = self._sessions.update(session_hash, lambda before: before)
        if record is None:
            return None
        expires_us, token_id = _SESSION.unpack(record.value)
        return BrowserSession(token_id.decode(), expires_us, record.touched)

    def save_last_use(self, session_hash: bytes, now_us: int) -> None:
        """Store the time at which a session was last used; an ended session stays ended."""
        self._sessions.update(
            session_hash, lambda before: before and SharedRecord(now_us, before.value)
        )

    def close_session(self, cookie: str) -> None:
        self._sessions.update(hash_secret(cookie), lambda _before: None)

    def list_failures(self, now_us: int) -> list[LoginFailure]:
        return _read_failures(self._failures.update(_ALL, lambda before: before), now_us)

    def add_failure(self, address: str) -> int:
        """Count a failed login and return 0, or count nothing and return the seconds to wait."""
        wait_s, digest = 0, digest_address(address)

        def change(before: SharedRecord | None) -> SharedRecord | None:
            nonlocal wait_s
            now_us = time.time_ns() // 1000
            failures = _read_failures(before, now_us)
            wait_s = get_wait_s(failures, digest, now_us)
            if wait_s:
                return before
            return SharedRecord(
                now_us, _pack_failures([*failures, LoginFailure(digest, now_us)][-MAX_FAILURES:])
            )

        self._failures.update(_ALL, change)
        return wait_s


class WrongTokenCounter:
    """Wrong bearer tokens by address, shared by a server's workers. Create it before they are
    forked.

    A repeated wrong token is not another guess, so a client with an old token does not lock out
    others behind its proxy.
    """

    def __init__(self) -> None:
        self._failures = SharedTable(
            "wrong-tokens", value_bytes=_FAILURE.size * MAX_PER_ADDRESS, set_count=ADDRESS_SETS
        )

    def get_wait_s(self, address: str) -> int:
        now_us, record = (
            time.time_ns() // 1000,
            self._failures.update(address.encode(), lambda before: before),
        )
        return _round_up_s(
            _measure_wait_us(_read_failures(record, now_us), MAX_PER_ADDRESS, now_us)
        )

    def add(self, address: str, secret: str) -> int:
        """Count a wrong token and return 0, or count nothing and return the seconds to wait."""
        wait_s, token = 0, digest_address(secret)

        def change(before: SharedRecord | None) -> SharedRecord | None:
            nonlocal wait_s
            now_us = time.time_ns() // 1000
            failures = _read_failures(before, now_us)
            wait_s = _round_up_s(_measure_wait_us(failures, MAX_PER_ADDRESS, now_us))
            if wait_s or any(failure.address == token for failure in failures):
                return before
            return SharedRecord(now_us, _pack_failures([*failures, LoginFailure(token, now_us)]))

        self._failures.update(address.encode(), change)
        return wait_s


def _pack_failures(failures: Sequence[LoginFailure]) -> bytes:
    return b"".join(
        _FAILURE.pack(failure.failed_us, bytes.fromhex(failure.address)) for failure in failures
    )


def _read_failures(record: SharedRecord | None, now_us: int) -> list[LoginFailure]:
    rows = _FAILURE.iter_unpack(record.value) if record else ()
    return [
        LoginFailure(digest.hex(), time_us)
        for time_us, digest in rows
        if now_us - WINDOW_US < time_us <= now_us
    ]


def digest_address(address: str) -> str:
    return hashlib.blake2b(address.encode("utf-8", "replace"), digest_size=8).hexdigest()


def get_wait_s(failures: Sequence[LoginFailure], address: str, now_us: int) -> int:
    """Return the seconds until an address may try again, 0 for now.

    `failures` are those of the window, oldest first and none after `now_us`, so that
    setting the clock back does not extend a lock.
    """
    own = [failure for failure in failures if failure.address == address]
    waits_us = (
        _measure_wait_us(own, MAX_PER_ADDRESS, now_us),
        _measure_wait_us(failures, MAX_FAILURES, now_us),
    )
    return _round_up_s(max(waits_us))


def _measure_wait_us(failures: Sequence[LoginFailure], max_count: int, now_us: int) -> int:
    return failures[-max_count].failed_us + WINDOW_US - now_us if len(failures) >= max_count else 0


def _round_up_s(wait_us: int) -> int:
    return wait_us // 1_000_000 + 1 if wait_us > 0 else 0


def get_login_wait_s(address: str) -> int:
    now_us, address = time.time_ns() // 1000, address[:MAX_ADDRESS_LENGTH]
    if is_read_only():
        return get_wait_s(
            _get_memory_store().list_failures(now_us), digest_address(address), now_us
        )
    return get_wait_s(
        list_login_failures(get_reader(), now_us - WINDOW_US, now_us), address, now_us
    )


def add_login_failure(address: str) -> int:
    """Count a failed login and return 0, or return the seconds to wait.

    Raises StoreError if the database cannot be written.
    """
    address = address[:MAX_ADDRESS_LENGTH]
    if is_read_only():
        return _get_memory_store().add_failure(address)
    close_store()  # an open reader would keep the write from being checkpointed
    with closing(open_writer(get_board_path(), create=False)) as writer:
        with write_transaction(writer):
            now_us = time.time_ns() // 1000  # read under the lock, so that no failure is later
            wait_s = get_wait_s(
                list_login_failures(writer, now_us - WINDOW_US, now_us), address, now_us
            )
            if not wait_s:
                save_login_failure(writer, address, now_us=now_us, window_us=WINDOW_US)
        checkpoint(writer)
    return wait_s


def find_session(session_hash: bytes) -> BrowserSession | None:
    return (
        _get_memory_store().get_session(session_hash)
        if is_read_only()
        else get_session(get_reader(), session_hash)
    )


def begin_session(token_id: str, replaced_cookie: str, lasts_us: int) -> str:
    """Start a session in place of the browser's earlier one and return its cookie's value.

    Raises StoreError if the database cannot be written.
    """
    now_us = time.time_ns() // 1000
    if is_read_only():
        memory = _get_memory_store()
        memory.close_session(replaced_cookie)
        return memory.open_session(token_id, expires_us=now_us + lasts_us, now_us=now_us)
    with writing("login.start", token_id) as writer:
        close_session(writer, replaced_cookie)
        return open_session(writer, token_id, expires_us=now_us + lasts_us, now_us=now_us)


def end_session(token_id: str, cookie: str) -> None:
    """End a session. Raises StoreError if the database cannot be written."""
    if is_read_only():
        _get_memory_store().close_session(cookie)
        return
    with writing("login.end", token_id) as writer:
        close_session(writer, cookie)


def save_session_use(session_hash: bytes, now_us: int) -> None:
    _get_memory_store().save_last_use(session_hash, now_us)


def _get_memory_store() -> MemoryLoginStore:
    memory: MemoryLoginStore = current_app.config["LOGIN_MEMORY"]
    return memory


def init_app(app: Flask) -> None:
    app.config["LOGIN_MEMORY"] = MemoryLoginStore()
    app.config["WRONG_TOKENS"] = WrongTokenCounter()
