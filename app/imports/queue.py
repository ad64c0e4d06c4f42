"""The queue of uploads, and the state of each import, as files in one private folder that every
worker can read.

<database>-imports/          0700, beside the database, whose disk has space; /tmp may be memory
    admit                    locked while an import is admitted or a dead one is removed
    running                  locked by the import that runs in the first lane
    running-long             locked by the import that runs in the second
    <id>.json                state of an import, kept for a day
    <id>/                    its files, until it has ended
    <id>/alive               locked by the process that runs it
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from compileboard.app.core.fields import Count, TimeUs
from compileboard.app.core.schema import one_of, published
from compileboard.collectors.store.leases import is_locked
from compileboard.collectors.store.runs import THIS_MACHINE, RunSender


class UploadRejected(Exception):
    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s


FIELDS = ("name", "suite", "tags", "payloads", "redact_source", "again")
_MAX_CHARACTERS = 200
_MAX_TAGS = 20


@dataclass(frozen=True)
class ImportOptions:
    name: str | None = None
    suite: str | None = None
    tags: tuple[str, ...] = ()  # key=value
    payloads: bool = True
    redact_source: bool = False
    again: bool = False
    sender: RunSender = THIS_MACHINE  # The sender of the request; not a field of the form.

    def options(self) -> list[str]:
        words = [
            f"--{key}={value}"
            for key, value in (("name", self.name), ("suite", self.suite))
            if value
        ]
        words += [f"--sender={self.sender.owner}"] if self.sender.owner else []
        words += [f"--tag={tag}" for tag in self.tags]
        flags = (
            ("--no-payloads", not self.payloads),
            ("--redact-source", self.redact_source),
            ("--again", self.again),
            ("--only-own", not self.sender.may_add_to_all),
        )
        return words + [flag for flag, is_given in flags if is_given]


def parse_options(fields: Mapping[str, str]) -> ImportOptions:
    """Parse form fields or URL parameters. Raises UploadRejected for an unknown or invalid one."""
    for key in fields:
        if key not in FIELDS:
            raise UploadRejected(
                400, f"{key[:40]!r}: there is no such field; known are files, {', '.join(FIELDS)}"
            )
    return ImportOptions(
        name=_read_text(fields, "name"),
        suite=_read_text(fields, "suite"),
        tags=_read_tags(fields.get("tags", "")),
        payloads=_read_choice(fields, "payloads", True),
        redact_source=_read_choice(fields, "redact_source", False),
        again=_read_choice(fields, "again", False),
    )


def _read_text(fields: Mapping[str, str], key: str) -> str | None:
    value = fields.get(key, "").strip()
    if len(value) > _MAX_CHARACTERS or not value.isprintable():
        raise UploadRejected(400, f"{key}: must be at most {_MAX_CHARACTERS} printable characters")
    return value or None


def _read_choice(fields: Mapping[str, str], key: str, otherwise: bool) -> bool:
    value = fields.get(key, "")
    if value not in ("", "yes", "no"):
        raise UploadRejected(400, f"{key}: {value[:40]!r} is neither yes nor no")
    return otherwise if value == "" else value == "yes"


def _read_tags(text: str) -> tuple[str, ...]:
    tags = tuple(part.strip() for part in re.split(r"[,\r\n]+", text) if part.strip())
    if len(tags) > _MAX_TAGS:
        raise UploadRejected(400, f"tags: at most {_MAX_TAGS}, got {len(tags)}")
    for tag in tags:
        key, equals, _value = tag.partition("=")
        if not equals or not key.strip() or len(tag) > _MAX_CHARACTERS or not tag.isprintable():
            raise UploadRejected(
                400, f"tags: expected key=value with commas between, got {tag[:40]!r}"
            )
    return tags


STATES = ("receiving", "waiting", "running", "done", "failed")
ENDED = ("done", "failed")
KEEP_US = 86_400 * 1_000_000
MAX_KEPT = 100
RETRY_AFTER_S = 10
STOPPED = (
    "The server was stopped before this import had ended. Send the log again: what was read "
    "already is not read twice."
)


@dataclass(frozen=True)
class Import:
    """One upload of trace logs or benchmark results."""

    id: Annotated[str, "The import's id: a random token."]
    state: Annotated[str, one_of(STATES), "State of the import."]
    name: Annotated[str, "The uploaded file or folder, or the first of several files."]
    created_us: Annotated[TimeUs, "When sending began."]
    updated_us: Annotated[TimeUs, "When it last made progress."]
    file_count: Annotated[Count, "Files that were sent."] = 0
    size_bytes: Annotated[Count, "Their size as it was sent."] = 0
    read_bytes: Annotated[Count, "Bytes of logs read so far, unpacked."] = 0
    total_bytes: Annotated[
        Count | None, "Total bytes of the logs; null for compressed ones, whose size is unknown."
    ] = None
    log_count: Annotated[Count, "Logs that were read."] = 0
    record_count: Annotated[Count, "New records read so far."] = 0
    rejects: Annotated[dict[str, Count], "Unreadable parts by kind; see `rejects` of a run."] = (
        field(default_factory=dict)
    )
    run_id: Annotated[str | None, "The run that the logs became."] = None
    message: Annotated[str, "The error with its next step, or a remark. Empty without one."] = ""

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    @published
    def status_url(self) -> Annotated[str, "URL of the import's state."]:
        return f"/api/v1/imports/{self.id}"


def _now_us() -> int:
    return time.time_ns() // 1000


@contextmanager
def _holding_lock(path: Path) -> Iterator[None]:
    descriptor = _open_lock(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def _open_lock(path: Path, operation: int) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, operation)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class QueueEntry:
    def __init__(self, shelf: ImportQueue, alive: int, upload: Import) -> None:
        self._shelf = shelf
        self._alive = alive
        self.upload = upload
        self.folder = shelf.root / upload.id

    def save(self, **changes: Any) -> None:
        self.upload = replace(self.upload, updated_us=_now_us(), **changes)
        self._shelf.write(self.upload)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            os.close(self._alive)

    def discard(self) -> None:
        self._shelf.remove(self.upload.id)
        self.close()


class ImportLane:
    """One of two lanes, each of which runs one import at a time. A long import moves to the second,
    so that it does not delay short ones.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._first: int | None = None
        self._second: int | None = None

    def enter_first(self) -> None:
        self._first = _open_lock(self._root / "running", fcntl.LOCK_EX)

    def try_second(self) -> bool:
        with suppress(BlockingIOError):
            self._second = _open_lock(self._root / "running-long", fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._release_first_lane()
        return self._second is not None

    def enter_second(self) -> None:
        self._release_first_lane()
        if self._second is None:
            self._second = _open_lock(self._root / "running-long", fcntl.LOCK_EX)

    def _release_first_lane(self) -> None:
        if self._first is not None:
            os.close(self._first)
            self._first = None

    def leave(self) -> None:
        self._release_first_lane()
        if self._second is not None:
            os.close(self._second)
            self._second = None


class ImportQueue:
    def __init__(self, database: str) -> None:
        self.root = Path(f"{os.path.abspath(database)}-imports")

    @contextmanager
    def lane(self) -> Iterator[ImportLane]:
        lane = ImportLane(self.root)
        try:
            lane.enter_first()
            yield lane
        finally:
            lane.leave()

    def enqueue(self, name: str, *, max_receiving: int, max_waiting: int) -> QueueEntry:
        """Add an import.

        Raises UploadRejected if too many imports are in progress, OSError if its folder cannot be
        written.
        """
        self._make_root()
        with _holding_lock(self.root / "admit"):
            self._remove_stale()
            states = [upload.state for upload in self._list_imports() if not upload.has_ended]
            if states.count("receiving") >= max_receiving or states.count("waiting") >= max_waiting:
                raise UploadRejected(
                    429,
                    f"{len(states)} imports are running, the most at a time. Try again later.",
                    retry_after_s=RETRY_AFTER_S,
                )
            now_us = _now_us()
            upload = Import(secrets.token_urlsafe(18), "receiving", name, now_us, now_us)
            (self.root / upload.id).mkdir(mode=0o700)
            alive = os.open(
                self.root / upload.id / "alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
            fcntl.flock(alive, fcntl.LOCK_EX)
            self.write(upload)
        return QueueEntry(self, alive, upload)

    def load(self, import_id: str) -> Import | None:
        if (
            not import_id.replace("-", "").replace("_", "").isalnum()
            or not import_id.isascii()
            or len(import_id) > 64
        ):
            return None
        upload = self._read(import_id)
        if upload is None or upload.has_ended or self._is_alive(import_id):
            return upload
        upload = self._read(import_id)  # it may have ended in the meantime
        return (
            upload
            if upload is None or upload.has_ended
            else replace(upload, state="failed", message=STOPPED)
        )

    def list_newest(self, limit: int) -> list[Import]:
        return self._list_imports()[:limit]

    def clear(self) -> None:
        if self.root.is_dir():
            with _holding_lock(self.root / "admit"):
                self._remove_stale()

    def write(self, upload: Import) -> None:
        new = self.root / f"{upload.id}.new"
        new.write_text(json.dumps(asdict(upload)), encoding="utf-8")
        new.replace(self.root / f"{upload.id}.json")

    def remove(self, import_id: str) -> None:
        (self.root / f"{import_id}.json").unlink(missing_ok=True)

    def _make_root(self) -> None:
        with suppress(FileExistsError):
            self.root.mkdir(mode=0o700)
        status = self.root.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise UploadRejected(
                500,
                (
                    f"{self.root.name} beside the database is not a folder of this server's own; "
                    "take it away."
                ),
            )
        if stat.S_IMODE(status.st_mode) & 0o077:
            self.root.chmod(0o700)

    def _read(self, import_id: str) -> Import | None:
        try:
            return Import(**json.loads((self.root / f"{import_id}.json").read_bytes()))
        except (OSError, ValueError, TypeError):
            return None  # missing, or of another version

    def _list_imports(self) -> list[Import]:
        uploads = [upload for path in self.root.glob("*.json") if (upload := self.load(path.stem))]
        return sorted(uploads, key=lambda upload: (upload.created_us, upload.id), reverse=True)

    def _is_alive(self, import_id: str) -> bool:
        return is_locked(self.root / import_id / "alive")

    def _remove_stale(self) -> None:
        for position, upload in enumerate(self._list_imports()):
            old = upload.has_ended and _now_us() - upload.updated_us > KEEP_US
            if old or (position >= MAX_KEPT and upload.has_ended):
                self.remove(upload.id)
        for folder in self.root.iterdir():
            if folder.is_dir() and not folder.is_symlink() and not self._is_alive(folder.name):
                shutil.rmtree(folder, ignore_errors=True)
                it_was = self._read(folder.name)
                if it_was is not None and not it_was.has_ended:
                    self.write(
                        replace(it_was, state="failed", message=STOPPED, updated_us=_now_us())
                    )
