"""Connections to ClickHouse: over HTTP, or to chdb in this process."""

from __future__ import annotations

import logging
import os
import re
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compileboard.app.core.address import ClickHouseAddress
from compileboard.app.core.log_lines import log
from compileboard.collectors.store.connection import StoreError
from compileboard.collectors.store.leases import is_locked

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client
    from clickhouse_connect.driver.exceptions import Error


_LOCK = "status"  # ClickHouse's own; left by a killed server
_MEMORY = "/dev/shm"  # noqa: S108  a file system in memory
_linked: dict[str, tempfile.TemporaryDirectory[str]] = {}  # By folder on disk.
_linking = threading.Lock()


def find_writable(path: str) -> str:
    """Return `path`, or a folder of links to its files if its disk is read-only. Raises StoreError
    if the links cannot be made.
    """
    try:
        is_read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:  # missing: opening it reports that
        return path
    if not is_read_only:
        return path
    with _linking:
        if path not in _linked:
            _linked[path] = _link_read_only(path)
            log(
                f"{path} is on a read-only disk: ClickHouse reads it through links in "
                f"{_linked[path].name}"
            )
        return _linked[path].name


def _link_read_only(path: str) -> tempfile.TemporaryDirectory[str]:
    refusal: OSError | None = None
    for root in (None, _MEMORY):
        try:
            folder = tempfile.TemporaryDirectory(
                prefix="compileboard-clickhouse-", dir=root, ignore_cleanup_errors=True
            )
        except OSError as error:
            refusal = refusal or error
            continue
        try:
            _link_files(Path(path), Path(folder.name))
        except OSError as error:
            refusal = refusal or error
            folder.cleanup()
            continue
        return folder
    assert refusal is not None
    raise StoreError(
        f"{path} is on a read-only disk, and no folder for links to it can be made "
        f"({refusal.strerror}). Set TMPDIR to "
        "a folder that can be written."
    )


def _link_files(source: Path, target: Path) -> None:
    for folder, names, files in os.walk(source):
        there = target / os.path.relpath(folder, source)
        there.mkdir(exist_ok=True)
        for name in names:
            with suppress(OSError):  # a folder, not a link
                (there / name).symlink_to(os.readlink(os.path.join(folder, name)))
        for name in files:
            if name != _LOCK or Path(folder) != source:
                (there / name).symlink_to(os.path.join(folder, name))


# Makes ClickHouse answer as SQLite does; `final`: replaced and deleted rows are not read.
SETTINGS: dict[str, Any] = {
    "final": 1,
    "join_use_nulls": 1,
    "union_default_mode": "DISTINCT",
    "transform_null_in": 0,
    # A `materialized` common table expression is computed once
    "enable_materialized_cte": 1,
    # Joined tables are small: one hash table per thread, and a filter of it, take longer than they
    # save.
    "join_algorithm": "hash",
    "enable_join_runtime_filters": 0,
}
CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 120.0  # without data, for a statement that has a limit of its own
_TABLES_LACK = {"UNKNOWN_TABLE", "UNKNOWN_DATABASE", "UNKNOWN_IDENTIFIER"}
_LIMITS = {
    "TIMEOUT_EXCEEDED": "took too long",
    "TOO_SLOW": "would take too long",
    "MEMORY_LIMIT_EXCEEDED": "needs too much memory",
}
_REFUSED = {
    "AUTHENTICATION_FAILED",
    "REQUIRED_PASSWORD",
    "WRONG_PASSWORD",
    "UNKNOWN_USER",
    "ACCESS_DENIED",
}


_opened: set[str] = set()  # folders that this process opened with chdb


class EngineUnavailable(StoreError):
    """ClickHouse cannot be reached, or rejects the statement."""


class ClientPool:
    """A pool of ClickHouse clients: one shared client over HTTP, and one per borrower for chdb."""

    def __init__(self, address: ClickHouseAddress, password: str = "") -> None:
        self.address = address
        self._password = password
        self._lock = threading.Lock()
        self._idle: list[Client] = []

    @contextmanager
    def borrow(self) -> Iterator[Client]:
        """Lend a client to a block. Raises EngineUnavailable as connect does."""
        is_shared = self.address.host is not None
        with self._lock:
            client = (self._idle[-1] if is_shared else self._idle.pop()) if self._idle else None
        is_new = client is None
        client = client or connect(
            self.address, self._password
        )  # outside the lock, so that others do not wait for this attempt
        if is_shared and is_new:
            self._return_client(client)
        try:
            yield client
        finally:
            if not is_shared:
                self._return_client(client)

    def _return_client(self, client: Client) -> None:
        with self._lock:
            self._idle.append(client)

    def close(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop().close()


def connect(address: ClickHouseAddress, password: str = "") -> Client:
    """Return a new client. All clients of chdb share one engine.

    Raises EngineUnavailable if it cannot be reached, another process has its files, or the
    libraries are not installed.
    """
    try:
        import clickhouse_connect
        from clickhouse_connect.driver.exceptions import Error

        logging.getLogger("clickhouse_connect").addHandler(
            logging.NullHandler()
        )  # its errors are reported below
    except ImportError as error:
        raise EngineUnavailable(
            f"{address.label} needs clickhouse-connect: pip install 'compileboard[clickhouse]'"
        ) from error
    if address.host is None and address.path not in _opened:
        _check_free(address)  # first: the library prints to stderr
    try:
        folder = "" if address.host else find_writable(address.path)
    except StoreError as error:
        raise EngineUnavailable(str(error)) from error
    try:
        if address.host is None:
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
            try:
                client = clickhouse_connect.get_client(
                    interface="chdb", path=folder, database=address.database
                )
            finally:  # chdb blocks SIGPIPE, which programs started later would inherit
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            _opened.add(address.path)
            return client
        return clickhouse_connect.get_client(
            host=address.host,
            port=address.port or (8443 if address.is_secure else 8123),
            username=address.user,
            password=password,
            database=address.database,
            secure=address.is_secure,
            connect_timeout=CONNECT_TIMEOUT_S,
            send_receive_timeout=ANSWER_TIMEOUT_S,
            form_encode_query_params=True,
            autogenerate_session_id=False,
        )
    except ImportError as error:
        raise EngineUnavailable(
            f"{address.label} needs chdb: pip install 'compileboard[chdb]'"
        ) from error
    except Error as error:
        if address.host is None:
            _check_free(address)
        raise explain(error, address) from error


def _check_free(address: ClickHouseAddress) -> None:
    if is_locked(Path(address.path, "status")):
        raise EngineUnavailable(
            f"{address.label} is open in another process. Stop that process, or ask its dashboard."
        )


def _find_reason(message: str) -> str:
    match = re.search(r"\[Errno -?\d+\] ([\w ,-]+)|(timed out)", message)
    return (
        (match[1] or match[2])
        if match
        else re.sub(r"query_id=[\w-]+|0x[0-9a-f]+", "…", message)[:200]
    )


def explain(error: Error, address: ClickHouseAddress) -> EngineUnavailable:
    words = " ".join(str(error).split())
    if error.name in _TABLES_LACK:
        return EngineUnavailable(
            f"{address.label} lacks a table or a column of this version ({words[:200]}). Run "
            "`compileboard "
            "migrate --db ADDRESS` with the same address."
        )
    if error.name in _LIMITS:
        return EngineUnavailable(
            f"{address.label}: this {_LIMITS[error.name]}. Choose a shorter time or fewer "
            "runs, or try again later."
        )
    if error.name in _REFUSED:
        return EngineUnavailable(
            f"{address.label} refuses user {address.user!r} ({words[:200]}). Check the user of "
            "the address and its "
            "password in COMPILEBOARD_CLICKHOUSE_PASSWORD."
        )
    if error.name == "NOT_ENOUGH_SPACE":
        return EngineUnavailable(
            f"{address.label}: its disk is full. Free some space; what waits is published then."
        )
    if (
        address.host is None and "No such file or directory" in words
    ):  # several error codes share it
        return EngineUnavailable(
            f"{address.label} lacks files that it had. Stop the server, remove that folder, "
            "and start it again: every "
            "run is published anew."
        )
    if error.name == "READONLY":
        return EngineUnavailable(
            f"{address.label} lets user {address.user!r} change no settings. Take `readonly` "
            "out of its profile, or "
            "set it to 2."
        )
    if error.code is None and address.host is not None:
        return EngineUnavailable(
            f"{address.label} cannot be reached ({_find_reason(words)}). Check that it runs, "
            "and the address."
        )
    return EngineUnavailable(f"{address.label} does not take what it is asked: {words[:300]}")
