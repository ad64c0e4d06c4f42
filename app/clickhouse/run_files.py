"""The unpacked files of sealed runs, read beside the board.

<folder>/cache/                     0700; can be rebuilt
    <digest of the file>.<version>.db

The connection's main database is the sealed run's file; tables that others may change are views of
the board. If cache/ cannot be written, a temporary folder of this user or memory is used instead.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import stat
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from compileboard.app.core.log_lines import log
from compileboard.collectors.store.connection import (
    DATABASE_VERSION,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreNotReadable,
    attach_reader,
    explain,
    open_immutable,
    open_writer,
)
from compileboard.collectors.store.leases import PUBLISH, copy_owner, try_acquire_lease
from compileboard.collectors.store.reopening import unpack_current
from compileboard.collectors.store.run_rows import IN_FILE
from compileboard.collectors.store.sealed_files import (
    RunFileUnavailable,
    SealedRun,
    check_run_file_metadata,
    explain_os,
    get_sealed_run,
    list_sealed_runs,
    remove_abandoned,
)
from compileboard.collectors.store.sealing import QUIET_US, NotSealable, list_sealable, seal_run
from compileboard.collectors.store.trash import database_path

CACHE_BYTES = 10 << 30
TEMPORARY_BYTES = 1 << 30
SPARE_BYTES = 64 << 20  # Disk space left for the board's own writes.
MEMORY = "/dev/shm"  # noqa: S108  a file system in memory
_NEW = ".new."
_ATTEMPTS = 3  # another process may remove a file before it is opened
_ABANDONED_S = 3600
COUNT_EVERY_S = 60.0
COUNT_PAUSE = 100  # times as long as counting took
COUNT_S = 0.05  # per probe: with many files the next probes continue
_COUNTED_AT_ONCE = 100


@dataclass(frozen=True)
class LostCount:
    count: int = 0
    due_s: float = 0.0
    run_id: str = ""
    new_count: int = 0
    took_s: float = 0.0


_counts: dict[str, LostCount] = {}  # by board
_counting = threading.Lock()
_reported: set[str] = set()  # unwritable caches that this process has logged


class RunFiles:
    def __init__(
        self,
        board: str,
        cache: str,
        max_bytes: int = CACHE_BYTES,
        temporary: Sequence[str] | None = None,
    ) -> None:
        self.board = board
        self._cache = Path(cache)
        self._max_bytes = max_bytes
        self._temporary = (
            _list_temporary(board) if temporary is None else [Path(name) for name in temporary]
        )

    def open(self, sealed: SealedRun) -> sqlite3.Connection:
        """Raises RunFileUnavailable if the run's file cannot be used; StoreError if it cannot be
        unpacked anywhere.
        """
        name = f"{sealed.file.digest.hex()}.{DATABASE_VERSION}.db"
        for _attempt in range(_ATTEMPTS):
            path = self._find(name) or self._unpack(sealed, name)
            try:
                connection = _open_file(path)
            except sqlite3.DatabaseError:  # removed in the meantime, or damaged: rebuild it
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                continue
            try:
                _attach_board(connection, self.board)
            except sqlite3.Error as error:
                connection.close()
                raise explain(error, self.board) from error
            return connection
        raise StoreError(
            f"{path} cannot be opened. Check the permissions of its folder and the disk's room."
        )

    def _find(self, name: str) -> Path | None:
        folders = [self._cache, *(folder for folder in self._temporary if _is_own_folder(folder))]
        return next((folder / name for folder in folders if _mark_used(folder / name)), None)

    def _unpack(self, sealed: SealedRun, name: str) -> Path:
        refusal: StoreError | None = None
        for folder in (self._cache, *self._temporary):
            max_bytes = (
                self._max_bytes if folder == self._cache else min(self._max_bytes, TEMPORARY_BYTES)
            )
            try:
                if folder == self._cache:
                    self._make_cache()
                else:
                    _make_private_folder(folder)
                _free_space(folder, sealed.file.unpacked_bytes)
                _unpack_into(folder, self.board, sealed, name)
                _trim_cache(folder, folder / name, max_bytes)
            except RunFileUnavailable:
                raise
            except (StoreError, OSError) as error:
                refusal = refusal or (
                    explain_os(error, folder) if isinstance(error, OSError) else error
                )
                continue
            if refusal is not None and str(self._cache) not in _reported:
                _reported.add(str(self._cache))
                log(f"{refusal} Until then sealed runs are unpacked in {folder}.", "warning")
            return folder / name
        assert refusal is not None
        raise refusal

    def _make_cache(self) -> None:
        self._cache.mkdir(mode=0o700, exist_ok=True)
        copy_owner(self._cache, Path(self.board))


def find_lost_files(
    board: sqlite3.Connection, run_ids: Sequence[str] | None = None
) -> dict[str, str]:
    database = database_path(board)
    listed = (
        list_sealed_runs(board)
        if run_ids is None
        else [get_sealed_run(board, run_id) for run_id in run_ids]
    )
    sealed = [run for run in listed if run is not None]
    lost = {
        run.run_id: str(error)
        for run in sealed
        if (error := check_run_file_metadata(database, run.file))
    }
    of_these = "" if run_ids is None else "and s.run_id in (select value from json_each(:run_ids))"
    rows = board.execute(
        f"{_UNREAD_SQL} {of_these}", {"run_ids": json.dumps([run.run_id for run in sealed])}
    )
    unread = {row["run_id"] for row in rows} if sealed else set()
    return {run.run_id: _UNREAD for run in sealed if run.run_id in unread} | lost


def count_lost_files(board: sqlite3.Connection) -> int:
    path = database_path(board)
    lost = _counts.get(path, LostCount())
    if time.monotonic() >= lost.due_s and _counting.acquire(
        blocking=False
    ):  # others get the previous count
        try:
            lost = _counts[path] = _count_further(board, lost)
        finally:
            _counting.release()
    return max(lost.count, lost.new_count)


def _count_further(board: sqlite3.Connection, lost: LostCount) -> LostCount:
    began_s, run_id, new_count = time.monotonic(), lost.run_id, lost.new_count
    while run_ids := [
        str(row["run_id"]) for row in board.execute(_NEXT_SQL, (run_id, _COUNTED_AT_ONCE))
    ]:
        new_count += len(find_lost_files(board, run_ids))
        run_id, now_s = run_ids[-1], time.monotonic()
        if now_s - began_s >= COUNT_S:
            return replace(
                lost, run_id=run_id, new_count=new_count, took_s=lost.took_s + now_s - began_s
            )
    took_s = lost.took_s + time.monotonic() - began_s
    return LostCount(new_count, time.monotonic() + max(COUNT_EVERY_S, COUNT_PAUSE * took_s))


_NEXT_SQL = "select run_id from sealed_runs where run_id > ? order by run_id limit ?"
# Listed by ClickHouse, but without roll-ups: those are only in the file.
_UNREAD_SQL = """
select s.run_id
from sealed_runs as s
join published_runs as p on p.run_id = s.run_id
where p.rows_count = 0
  and p.run_pub >= 0
"""
_UNREAD = (
    "Its file could not be read: breaks, causes and results are not listed. `compileboard "
    "verify` tells why."
)


def _list_temporary(board: str) -> list[Path]:
    digest = hashlib.sha256(os.fsencode(os.path.realpath(board))).hexdigest()[:16]
    with suppress(FileNotFoundError):  # no folder is writable
        roots = dict.fromkeys((tempfile.gettempdir(), MEMORY))
        return [Path(root, f"compileboard-{os.geteuid()}-{digest}") for root in roots]
    return []


def _is_own_folder(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not status.st_mode & 0o077
    )


def _make_private_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    if not _is_own_folder(folder):
        raise StoreNotReadable(f"{folder} is another user's.")


def _unpack_into(folder: Path, board: str, sealed: SealedRun, name: str) -> None:
    with tempfile.TemporaryDirectory(prefix=_NEW, dir=folder) as work:
        new = Path(work, "run.db")
        unpack_current(board, sealed.file, new)
        new.chmod(0o600)
        copy_owner(new, Path(board))
        with new.open("rb") as file:
            os.fsync(file.fileno())  # an existing file is complete, even after a power failure
        new.replace(folder / name)


def _free_space(folder: Path, needed_bytes: int) -> None:
    lacking_bytes = needed_bytes + SPARE_BYTES - shutil.disk_usage(folder).free
    if lacking_bytes <= 0:  # the usual case: a cache of small files has very many
        return
    files = _list_files(folder)
    if lacking_bytes > sum(size_bytes for _used_s, size_bytes, _path in files):
        raise StoreFull(f"The disk that holds {folder} is full. Free some space.")
    for _used_s, size_bytes, path in files:
        if lacking_bytes <= 0:
            return
        with suppress(FileNotFoundError):
            os.unlink(path)
        lacking_bytes -= size_bytes


def _trim_cache(folder: Path, newest: Path, max_bytes: int) -> None:
    files = [file for file in _list_files(folder) if file[2] != str(newest)]
    total_bytes = newest.stat().st_size + sum(size_bytes for _used_s, size_bytes, _path in files)
    for _used_s, size_bytes, path in files:
        if total_bytes <= max_bytes:
            return
        with suppress(FileNotFoundError):
            os.unlink(path)
        total_bytes -= size_bytes


def _list_files(folder: Path) -> list[tuple[float, int, str]]:
    files = []
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):
            status = entry.stat()
            if not entry.name.startswith(_NEW):
                files.append((status.st_mtime, status.st_size, entry.path))
            elif time.time() - status.st_mtime > _ABANDONED_S:
                shutil.rmtree(entry.path, ignore_errors=True)
    return sorted(files)


def _mark_used(path: Path) -> bool:
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    except OSError:  # another user's, or on a read-only disk: still readable
        return path.exists()
    return True


def _open_file(path: Path) -> sqlite3.Connection:
    connection = open_immutable(path)
    try:
        connection.execute("select count(*) from sqlite_schema")
        connection.execute("pragma mmap_size = 268435456")
    except BaseException:
        connection.close()
        raise
    return connection


def _attach_board(connection: sqlite3.Connection, board: str) -> None:
    attach_reader(connection, board, "board")
    rows = connection.execute(
        "select name from board.sqlite_schema where type = 'table' and sql is not null"
    )
    for (name,) in rows.fetchall():
        if name not in IN_FILE and not name.startswith(("search_words", "sqlite_")):
            connection.execute(f"create temp view {name} as select * from board.{name}")  # noqa: S608 - our own names
    connection.execute("pragma query_only = on")
    connection.execute("begin")


PASS_S = 10.0  # nothing is published meanwhile


@dataclass
class SealingPass:
    sealed_count: int = 0
    problems: list[str] = field(default_factory=list)
    is_done: bool = False


def seal_ended_runs(
    board: str, quiet_us: int = QUIET_US, *, now_us: int | None = None, max_s: float = PASS_S
) -> SealingPass:
    """Seal ended runs that did not change for a while and are fully published.

    Raises StoreError if the board cannot be opened.
    """
    done = SealingPass()
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    until_s = time.monotonic() + max_s
    try:
        lease = try_acquire_lease(board, PUBLISH)
    except OSError as error:
        raise StoreError(f"the locks beside {board} cannot be made ({error.strerror}).") from error
    if lease is None:
        return done
    with lease, closing(open_writer(board, create=False)) as writer:
        remove_abandoned(board)
        for run_id in list_sealable(writer, now_us, quiet_us=quiet_us):
            if time.monotonic() >= until_s:
                return done
            try:
                seal_run(writer, run_id, now_us=now_us, quiet_us=quiet_us)
                done.sealed_count += 1
            except NotSealable:
                continue  # changed since it was listed
            except (StoreBusy, StoreFull) as error:
                done.problems.append(str(error))
                return done
            except StoreError as error:
                done.problems.append(f"run {run_id}: {error}")
        done.is_done = True
    return done
