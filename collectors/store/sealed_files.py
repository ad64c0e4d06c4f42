"""Files of sealed runs.

<database folder>/runs/       0700
    <last two of the id>/
        <id>.<pub>.db.gz          a packed bundle of one run at that publication number
    .new/                         files being written

Files never change; a replacement has another name. So a hard link is a copy.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from compileboard.collectors.store.connection import (
    StoreError,
    StoreFull,
    StoreMissing,
    StoreNotReadable,
    has_row,
)
from compileboard.collectors.store.leases import copy_owner

FOLDER, _NEW = "runs", ".new"
_ABANDONED_S = 3600
_PIECE_BYTES = 1 << 20
_PLAIN_ID = re.compile(r"[0-9A-Za-z_-]{2,64}")


class RunFile(NamedTuple):
    name: str
    digest: bytes
    size_bytes: int
    unpacked_bytes: int


class RunFileUnavailable(StoreNotReadable):
    pass


class RunFileMissing(RunFileUnavailable):
    pass


class RunFileDamaged(RunFileUnavailable):
    pass


class RunFileUnreadable(RunFileUnavailable):
    pass


def run_folder(database: str) -> Path:
    return Path(os.path.abspath(database)).parent / FOLDER


def name_run_file(run_id: str, pub: int) -> str:
    """Return the file name of a run, which is safe for any id."""
    stem = _stem(run_id)
    return f"{stem[-2:]}/{stem}.{pub}.db.gz"


def _stem(run_id: str) -> str:
    if _PLAIN_ID.fullmatch(run_id):
        return run_id
    return hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:40]


@contextmanager
def open_workplace(database: str) -> Iterator[Path]:
    root = run_folder(database)
    try:
        for folder in (root, root / _NEW):
            if not folder.is_dir():
                folder.mkdir(mode=0o700, exist_ok=True)
                copy_owner(folder, Path(database))
        work = tempfile.TemporaryDirectory(dir=root / _NEW)
    except OSError as error:
        raise explain_os(error, root) from error
    with work as name:
        yield Path(name)


def remove_abandoned(database: str) -> None:
    for folder in (run_folder(database) / _NEW).glob("*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(folder)


def pack_run_file(database: str, source: Path, name: str) -> RunFile:
    """Pack a database into the run files, atomically and synced to disk. Raises StoreError if the
    disk is full or not writable.
    """
    target = run_folder(database) / name
    new = source.with_suffix(".gz")
    try:
        with (
            source.open("rb") as plain,
            new.open("xb+") as file,
        ):
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                shutil.copyfileobj(plain, packed, _PIECE_BYTES)
            file.seek(0)
            packed_file = RunFile(name, hash_file(file), file.tell(), plain.tell())
        place_file(new, target, database)
        fsync_path(target.parent.parent)
    except OSError as error:
        raise explain_os(error, target) from error
    return packed_file


def hash_file(file: BinaryIO, progress: Callable[[int], None] = lambda done_bytes: None) -> bytes:
    """Return the SHA-256 of a file from its current position."""
    digest = hashlib.sha256()
    while piece := file.read(_PIECE_BYTES):
        digest.update(piece)
        progress(file.tell())
    return digest.digest()


def place_file(new: Path, target: Path, database: str) -> None:
    """Move a finished file to its final path, synced, and readable only by the database's owner."""
    new.chmod(0o600)
    target.parent.mkdir(mode=0o700, exist_ok=True)
    for made in (target.parent, new):
        copy_owner(made, Path(database))
    fsync_path(new)
    new.replace(target)
    fsync_path(target.parent)


def fsync_path(path: Path) -> None:
    """Flush a file, or the list of names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unpack_run_file(database: str, file: RunFile, target: Path) -> None:
    """Unpack a run's file. Raises RunFileUnavailable if it is missing or does not match its digest,
    StoreError if `target` cannot be written.
    """
    with _open_whole(run_folder(database) / file.name, file.digest) as packed:
        try:
            with gzip.GzipFile(fileobj=packed) as unpacked, target.open("xb") as plain:
                shutil.copyfileobj(unpacked, plain, _PIECE_BYTES)
        except OSError as error:
            raise explain_os(error, target) from error


@contextmanager
def _open_whole(path: Path, digest: bytes) -> Iterator[BinaryIO]:
    """Open a run's file after checking its digest. Raises RunFileUnavailable if it is missing,
    unreadable or damaged.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError as error:
        raise _unreadable(path, error) from error
    with file:
        try:
            is_whole = hash_file(file) == digest
        except OSError as error:
            raise _unreadable(path, error) from error
        if not is_whole:
            raise _damaged(path)
        file.seek(0)
        yield file


def describe_problem(database: str, file: RunFile) -> str | None:
    try:
        with _open_whole(run_folder(database) / file.name, file.digest):
            pass
    except RunFileUnavailable as error:
        return str(error)
    return None


def check_run_file_metadata(database: str, file: RunFile) -> RunFileUnavailable | None:
    """Check only a run file's size and permissions."""
    path = run_folder(database) / file.name
    try:
        size_bytes = path.stat().st_size
    except FileNotFoundError:
        return _missing(path)
    except OSError as error:
        return _unreadable(path, error)
    if size_bytes != file.size_bytes:
        return _damaged(path)
    return (
        None
        if os.access(path, os.R_OK)
        else _unreadable(path, PermissionError(13, os.strerror(13)))
    )


def stamp_run_file(database: str, file: RunFile) -> tuple[int, ...] | None:
    try:
        status = (run_folder(database) / file.name).stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def restore_run_file(database: str, file: RunFile, source: Path) -> None:
    target = run_folder(database) / file.name
    with (
        _open_whole(source / file.name, file.digest) as packed,
        open_workplace(database) as folder,
    ):
        new = folder / "run.gz"
        try:
            with new.open("xb") as copy:
                shutil.copyfileobj(packed, copy, _PIECE_BYTES)
            place_file(new, target, database)
        except OSError as error:
            raise explain_os(error, target) from error


def list_run_files(database: str, run_id: str) -> list[Path]:
    stem = _stem(run_id)
    return sorted((run_folder(database) / stem[-2:]).glob(f"{stem}.*.db.gz"))


def remove_run_files(database: str, run_id: str, *, named: str | None = None) -> None:
    for path in list_run_files(database, run_id):
        if named is None or path != run_folder(database) / named:
            with suppress(OSError):
                path.unlink()


def explain_os(error: OSError, path: Path) -> StoreError:
    if error.errno == 28:
        return StoreFull(
            f"The disk that holds {path} is full. Free some space; what was recorded is kept."
        )
    kind = StoreMissing if isinstance(error, FileNotFoundError) else StoreNotReadable
    return kind(
        f"{path} cannot be read or written ({error.strerror}). Check the permissions of it and "
        "its folder."
    )


_PUT_BACK = "All else works. `compileboard restore BACKUP --run-files` puts it back from a backup."


def _missing(path: Path) -> RunFileMissing:
    return RunFileMissing(f"{path} is missing: it has the detail of a sealed run. {_PUT_BACK}")


def _damaged(path: Path) -> RunFileDamaged:
    return RunFileDamaged(
        f"{path} is damaged: its content is not what was written. It has the detail of a "
        f"sealed run. {_PUT_BACK}"
    )


def _unreadable(path: Path, error: OSError) -> RunFileUnreadable:
    return RunFileUnreadable(
        f"{path} cannot be read ({error.strerror}): it has the detail of a sealed run. Check "
        "its permissions and its "
        f"disk. {_PUT_BACK}"
    )


_COLUMNS = "run_id, file_name, digest, size_bytes, unpacked_bytes, emptied_us"


@dataclass(frozen=True)
class SealedRun:
    run_id: str
    file: RunFile
    is_emptied: bool


def get_sealed_run(connection: sqlite3.Connection, run_id: str) -> SealedRun | None:
    query = f"select {_COLUMNS} from sealed_runs where run_id = ?"  # noqa: S608 - our own names
    row = connection.execute(query, (run_id,)).fetchone()
    return _read_sealed(*row) if row else None


def has_sealed_runs(connection: sqlite3.Connection) -> bool:
    return has_row(connection, "select 1 from sealed_runs limit 1")


def list_sealed_runs(connection: sqlite3.Connection) -> list[SealedRun]:
    query = f"select {_COLUMNS} from sealed_runs order by run_id"  # noqa: S608 - our own names
    return [_read_sealed(*row) for row in connection.execute(query)]


def _read_sealed(run_id: str, *values: Any) -> SealedRun:
    *file, emptied_us = values
    return SealedRun(run_id, RunFile(*file), bool(emptied_us))
