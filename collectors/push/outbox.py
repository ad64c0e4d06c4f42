"""The outbox: files waiting to be sent, for their writers and the sender.

The package's docstring lists the files.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from compileboard.collectors.push.target import Target
from compileboard.collectors.record.spool import home, replace_file
from compileboard.collectors.store.leases import is_locked
from compileboard.collectors.wire.lines import MAX_RATIO

SEGMENT_BYTES = 16 << 20  # what the server has of a stream is deleted by segment
MEASURE_S = 1.0
EVENTS, TEXTS, BUNDLE = ".events", "texts", ".bundle"
STOPS = ("restart", "deleted")
WAKE_NAME = "sender.wake"
MAX_REFUSALS = 3  # Refusals of a bundle or text before it is given up.


def outbox_root(environment: Mapping[str, str]) -> Path:
    return home(environment) / "outbox"


class OutboxQuota:
    """The disk space limit of an outbox; the oldest texts are deleted to make space for events."""

    def __init__(self, root: Path, max_bytes: int) -> None:
        self.root = root
        self.max_bytes = max_bytes
        self._used_bytes = 0
        self._measured_s = -MEASURE_S

    def try_reserve(self, size_bytes: int) -> bool:
        if time.monotonic() - self._measured_s >= MEASURE_S:
            self._measure()
        if self._used_bytes + size_bytes > self.max_bytes:
            # More than needed, because listing and sorting takes long.
            self.drop_texts(
                max(self._used_bytes + size_bytes - self.max_bytes, self.max_bytes // 20)
            )
        if self._used_bytes + size_bytes > self.max_bytes:
            return False
        self._used_bytes += size_bytes
        return True

    def drop_texts(self, size_bytes: int) -> None:
        """Delete the oldest waiting texts until enough bytes are free. The sender reports them as
        lost.
        """
        texts: list[tuple[int, int, str]] = []
        for folder in self.root.glob(f"*/{TEXTS}"):
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    texts.append((status.st_mtime_ns, status.st_size, entry.path))
        for _, text_bytes, path in sorted(texts):
            if size_bytes <= 0:
                return
            with suppress(OSError):
                os.unlink(path)
                size_bytes -= text_bytes
                self._used_bytes -= text_bytes

    def _measure(self) -> None:
        self._used_bytes = measure_bytes(self.root)
        self._measured_s = time.monotonic()


def measure_bytes(folder: Path) -> int:
    total_bytes = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    total_bytes += measure_bytes(Path(entry.path))
                else:
                    total_bytes += entry.stat(follow_symlinks=False).st_size
    return total_bytes


class OutboxStream:
    def __init__(self, root: Path, run_id: str, stream_id: str, target: Target) -> None:
        self.folder = root / run_id
        self.stream_id = stream_id
        self.size_bytes = 0
        self._file = -1
        self._file_bytes = 0
        self._lock = _make_description(self.folder, stream_id, {**asdict(target), "kind": "stream"})

    def append(self, lines: list[bytes]) -> int:
        data = b"".join(lines)
        try:
            written_bytes = self._write(data)
        except OSError:
            written_bytes = 0
        if written_bytes == len(data):
            return len(lines)
        whole_bytes = (
            data.rfind(b"\n", 0, written_bytes) + 1
        )  # whole lines may already have been sent
        if written_bytes > whole_bytes:
            os.ftruncate(self._file, self._file_bytes - (written_bytes - whole_bytes))
            self._file_bytes -= written_bytes - whole_bytes
            self.size_bytes -= written_bytes - whole_bytes
        return data.count(b"\n", 0, whole_bytes)

    def _write(self, data: bytes) -> int:
        if self._file < 0 or self._file_bytes >= SEGMENT_BYTES:
            self._open_segment()
        written_bytes = 0
        while written_bytes < len(data):
            try:
                count = os.write(self._file, memoryview(data)[written_bytes:])
            except OSError:
                break
            written_bytes += count
        self._file_bytes += written_bytes
        self.size_bytes += written_bytes
        return written_bytes

    def _open_segment(self) -> None:
        path = self.folder / f"{self.stream_id}.{self.size_bytes:012}{EVENTS}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        file = os.open(path, flags, 0o600)
        if self._file >= 0:
            os.close(self._file)
        self._file, self._file_bytes = file, os.fstat(file).st_size

    def save_text(self, digest: str, body: bytes, room: OutboxQuota) -> bool:
        folder = self.folder / TEXTS
        if find_text(self.folder, digest) is not None:
            return True
        packed = gzip.compress(body, 1, mtime=0)
        name = f"{digest}.gz"
        if len(packed) * MAX_RATIO < len(body) or len(packed) >= len(body):
            packed, name = body, digest
        if not room.try_reserve(len(packed)):
            return False
        temporary = folder / f".{name}.{os.getpid()}"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            temporary.write_bytes(packed)
            os.replace(temporary, folder / name)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            return False
        return True

    def read_stop(self) -> str | None:
        try:
            reason = (self.folder / f"{self.stream_id}.stop").read_text(encoding="ascii")
        except (OSError, ValueError):
            return None
        return reason if reason in STOPS else None

    def exists(self) -> bool:
        return (self.folder / f"{self.stream_id}.json").exists()

    def close(self) -> None:
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1


def _make_description(folder: Path, name: str, described: Mapping[str, Any]) -> int:
    temporary = folder / f".{name}.{os.getpid()}"
    for attempt in range(3):  # the sender may remove an empty folder
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        try:
            lock = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            break
        except FileNotFoundError:
            if attempt == 2:
                raise
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, json.dumps(described).encode())
        os.replace(temporary, folder / f"{name}.json")
    except BaseException:
        os.close(lock)
        raise
    return lock


def add_bundle(root: Path, run_id: str, bundle: Path, target: Target) -> None:
    folder = root / run_id
    name = f"bundle-{time.time_ns():x}"
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    os.replace(bundle, folder / f"{name}{BUNDLE}")
    os.close(_make_description(folder, name, {**asdict(target), "kind": "bundle"}))


def read_wake(root: Path) -> int:
    """Return the time of the last request for an immediate try, in microseconds."""
    try:
        return (root / WAKE_NAME).stat().st_mtime_ns // 1000
    except OSError:
        return 0


def find_text(folder: Path, digest: str) -> Path | None:
    for name in (f"{digest}.gz", digest):
        path = folder / TEXTS / name
        if path.exists():
            return path
    return None


@dataclass(frozen=True)
class DeliveryProgress:
    """How much of a stream was sent: bytes, their CRC-32, and the rejected lines.

    For a bundle, the import on the server, or how often, when and why it was rejected.
    """

    offset: int = 0
    checksum: int = 0
    lost_count: int = 0
    import_id: str | None = None
    refused_count: int = 0
    refused_us: int = 0
    refusal: str | None = None


@dataclass(frozen=True)
class WaitingDelivery:
    folder: Path
    name: str
    kind: str
    target: Target

    @property
    def run_id(self) -> str:
        return self.folder.name

    @property
    def bundle(self) -> Path:
        return self.folder / f"{self.name}{BUNDLE}"

    def is_written(self) -> bool:
        return is_locked(self.folder / f"{self.name}.json")

    def set_target(self, target: Target) -> None:
        path, temporary = self.folder / f"{self.name}.json", self.folder / f".{self.name}.target"
        before = path.stat()
        temporary.write_text(json.dumps({**asdict(target), "kind": self.kind}), encoding="utf-8")
        os.chmod(temporary, 0o600)
        os.utime(
            temporary, ns=(before.st_atime_ns, before.st_mtime_ns)
        )  # streams are sent in this order
        if target.server != self.target.server:  # another server's progress must be requested
            (self.folder / f"{self.name}.sent").unlink(missing_ok=True)
        os.replace(temporary, path)

    def list_segments(self) -> list[tuple[int, Path]]:
        segments = []
        for path in self.folder.glob(f"{self.name}.*{EVENTS}"):
            first = path.name[len(self.name) + 1 : -len(EVENTS)]
            if first.isdigit():
                segments.append((int(first), path))
        return sorted(segments)

    def measure(self) -> int:
        with suppress(OSError):
            if self.kind == "bundle":
                return self.bundle.stat().st_size
            if segments := self.list_segments():
                first, path = segments[-1]
                return first + path.stat().st_size
        return 0

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return whole lines from an offset, at least one if available. Empty if that segment is
        deleted.
        """
        before = [segment for segment in self.list_segments() if segment[0] <= offset]
        if not before:
            return b""
        first, path = before[-1]
        with path.open("rb") as file:
            file.seek(offset - first)
            data = file.read(max_bytes)
            if b"\n" not in data:
                data += file.readline()
        return data[: data.rfind(b"\n") + 1]

    def is_set_aside(self) -> bool:
        state = self.read_sent()
        return state.refused_count >= MAX_REFUSALS and state.refused_us > read_wake(
            self.folder.parent
        )

    def read_sent(self) -> DeliveryProgress:
        try:
            body = json.loads((self.folder / f"{self.name}.sent").read_text(encoding="ascii"))
            return DeliveryProgress(**body)
        except (OSError, ValueError, TypeError, KeyError):
            return DeliveryProgress()

    def write_sent(self, state: DeliveryProgress) -> None:
        """Save the sent position and delete fully sent segments, except the last."""
        with suppress(OSError):
            replace_file(self.folder / f"{self.name}.sent", json.dumps(asdict(state)))
        segments = self.list_segments()
        for (_, path), (end, _) in pairwise(segments):
            if end <= state.offset:
                path.unlink(missing_ok=True)

    def write_stop(self, reason: str) -> None:
        (self.folder / f"{self.name}.stop").write_text(reason, encoding="ascii")

    def delete(self) -> None:
        for path in [*(path for _, path in self.list_segments()), self.bundle]:
            path.unlink(missing_ok=True)
        for suffix in (".sent", ".stop", ".json"):
            (self.folder / f"{self.name}{suffix}").unlink(missing_ok=True)
        if not any(self.folder.glob("*.json")):
            for path in self.folder.glob(f"{TEXTS}/*"):
                path.unlink(missing_ok=True)
            with suppress(OSError):
                (self.folder / TEXTS).rmdir()
        with suppress(OSError):
            self.folder.rmdir()


def list_waiting(root: Path) -> Iterator[WaitingDelivery]:
    try:
        folders = sorted(path for path in root.glob("[!.]*") if path.is_dir())
    except OSError:
        return
    for folder in folders:
        yield from list_run(folder)


def has_waiting(environment: Mapping[str, str]) -> bool:
    with suppress(OSError, RuntimeError):
        return any(True for _ in list_waiting(outbox_root(environment)))
    return False


def list_run(folder: Path) -> list[WaitingDelivery]:
    described = []
    for path in folder.glob("[!.]*.json"):
        with suppress(OSError, ValueError, TypeError, KeyError):
            body = json.loads(path.read_text(encoding="utf-8"))
            kind = "bundle" if body["kind"] == "bundle" else "stream"
            target = Target(str(body["server"]), str(body["token_file"]), bool(body["insecure"]))
            waiting = WaitingDelivery(folder, path.name.removesuffix(".json"), kind, target)
            described.append((path.stat().st_mtime_ns, waiting.name, waiting))
    return [waiting for _, _, waiting in sorted(described)]
