"""Read a run's spool: every process's file, from where it was last read, only whole lines.

Whatever a file holds, its good lines are read; a bad one is a counted reject with its file, line and kind.
"""

from __future__ import annotations

import copy
import fcntl
import json
import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from compileboard.collectors.contract.rejects import Rejects
from compileboard.collectors.decode.records import Captured
from compileboard.collectors.decode.values import clean_text

SUFFIX = ".jsonl"
LOSSES_SUFFIX = ".losses"
BATCH_BYTES = 4 << 20
LARGEST_LINE_BYTES = 64 << 20
LARGEST_INTEGER = 2**63 - 1
MOST_CONFIGS = 16  # events that a record's configurations may become, numbered after it

KEPT = "bad_field"  # costs a record one value
UNREADABLE = "spool: a line that is no record"
TORN = "spool: a last line that is torn"
EMPTY = "spool: nothing could be written"


class BadLine(ValueError):
    """A line is no record; `kind` is one of collectors.rejects.KINDS."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


@dataclass
class _FilePosition:
    """Remember how far a file was read."""

    offset: int = 0
    line: int = 0
    passing_over: bool = False  # in the middle of a line that is too long


@dataclass(frozen=True)
class SpoolMark:
    """Remember how far a spool was read, and what was rejected until then."""

    places: dict[str, _FilePosition]
    rejects: dict[str, Rejects]


@dataclass
class SpoolReader:
    """Follow the files of one run's spool folder: one a process, more if its file was taken from it."""

    folder: Path
    keep_examples: bool = True  # a line may hold source code
    rejects: dict[str, Rejects] = field(default_factory=dict)  # by file name
    _places: dict[str, _FilePosition] = field(default_factory=dict)

    def read(self) -> Iterator[Captured]:
        """Yield what has been written since the last call."""
        for path in _files(self.folder, SUFFIX):
            yield from self._read_file(path)

    def mark(self) -> SpoolMark:
        """Remember this place, to come back to if what was read could not be kept."""
        return copy.deepcopy(SpoolMark(self._places, self.rejects))

    def rewind(self, mark: SpoolMark) -> None:
        """Read again from a remembered place."""
        mark = copy.deepcopy(mark)
        self._places, self.rejects = mark.places, mark.rejects

    def reject(self, file_name: str, kind: str, line: int | None = None, example: bytes | str | None = None) -> None:
        """Count something that could not be recorded."""
        rejects = self.rejects.setdefault(clean_text(file_name), Rejects())
        rejects.add(kind, line, example if self.keep_examples else None)

    def _read_file(self, path: Path) -> Iterator[Captured]:
        place = self._places.setdefault(path.name, _FilePosition())
        try:
            if path.stat().st_size <= place.offset:
                return
            file = path.open("rb")
        except FileNotFoundError:  # deleted since it was listed
            return
        process_id = process_of(path.name)
        with file:
            file.seek(place.offset)
            while block := file.read(BATCH_BYTES):
                while b"\n" not in block and len(block) <= LARGEST_LINE_BYTES and (more := file.read(BATCH_BYTES)):
                    block += more
                end = block.rfind(b"\n") + 1
                if not end and len(block) <= LARGEST_LINE_BYTES:
                    break  # its rest is still to come
                if not end:
                    place.passing_over, end = True, len(block)
                    place.offset += end
                    continue
                for line in block[: end - 1].split(b"\n"):
                    place.line += 1
                    if place.passing_over:
                        place.passing_over = False
                        self.reject(path.name, "too_large", place.line)
                    elif line and (captured := self._parse(path.name, process_id, place.line, line)) is not None:
                        yield captured
                place.offset += end
                file.seek(place.offset)

    def _parse(self, file_name: str, process_id: str, number: int, line: bytes) -> Captured | None:
        try:
            return _captured(process_id, json.loads(line))
        except BadLine as bad:
            self.reject(file_name, bad.kind, number, line)
        except UnicodeDecodeError:
            self.reject(file_name, "bad_utf8", number, line)
        except (ValueError, RecursionError, MemoryError):
            self.reject(file_name, "bad_json", number, line)
        return None

    def losses(self) -> dict[str, dict[str, int]]:
        """Say, of a spool that nobody writes to any more, what of each process was lost: process id -> reason -> count.

        A process says so itself in its snapshots as long as it can write; this is what it could not say.
        """
        lost: dict[str, Counter[str]] = {}
        for path in _files(self.folder, LOSSES_SUFFIX):
            lost.setdefault(process_of(path.name), Counter()).update(_reported_losses(path))
        for file_name, rejects in self.rejects.items():
            if file_name.endswith(SUFFIX):
                lost.setdefault(process_of(file_name), Counter())[UNREADABLE] += rejects.total - rejects.count(KEPT)
        for path in _files(self.folder, SUFFIX):
            size, counts = path.stat().st_size, lost.setdefault(process_of(path.name), Counter())
            place = self._places.get(path.name, _FilePosition())
            if size == 0 and not _has_room(self.folder, path):
                counts[EMPTY] += 1
            elif size > place.offset or place.passing_over:
                counts[TORN] += 1
        return {process_id: dict(counts) for process_id, counts in lost.items() if counts}


def _files(folder: Path, suffix: str) -> list[Path]:
    """List a spool's files; what is called like one and is a folder or a pipe was never written by a process."""
    return [path for path in sorted(folder.glob(f"*{suffix}")) if is_file(path)]


def is_file(path: Path) -> bool:
    """Tell whether a path is a plain file: to open a pipe is to wait, and a device has no end."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def process_of(file_name: str) -> str:
    """Name the process that writes a file of a spool."""
    return clean_text(file_name.partition(".")[0])


def _has_room(folder: Path, path: Path) -> bool:
    """Tell whether a process could reserve room for its losses: one that did and wrote nothing was killed early."""
    reserved = folder / (path.name.partition(".")[0] + LOSSES_SUFFIX)
    return reserved.exists() and reserved.stat().st_size > 0


def _reported_losses(path: Path) -> dict[str, int]:
    """Read what a process wrote into the room that it had reserved for the day its disk is full."""
    try:
        text = path.read_bytes().partition(b"\n")[0].strip(b"\0")
        said = json.loads(text) if text else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return {clean_text(reason): count for reason, count in said.items() if is_count(count)} if _is_dict(said) else {}


def is_count(value: Any) -> TypeGuard[int]:
    """Tell whether a value is an integer that a database takes, from 0 up."""
    return type(value) is int and 0 <= value <= LARGEST_INTEGER


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _captured(process_id: str, record: Any) -> Captured:
    """Check a record's envelope: what the hooks themselves write, as they write it.

    Raises: BadLine.
    """
    if not _is_dict(record):
        raise BadLine("stray_line")
    sequence, time_us, name, extra = record.get("s"), record.get("t"), record.get("n"), record.get("x")
    context = record.get("c")
    if not is_count(sequence) or sequence > LARGEST_INTEGER - MOST_CONFIGS or not is_count(time_us):
        raise BadLine("bad_envelope")
    if not isinstance(name, str) or not name or not (extra is None or _is_dict(extra)):
        raise BadLine("bad_envelope")
    if context is None:
        context = [None] * 5
    elif type(context) is not list or len(context) != 5 or not all(it is None or _is_place(it) for it in context):
        raise BadLine("bad_envelope")
    return Captured(
        process_id=process_id,
        sequence=sequence,
        time_us=time_us,
        name=name,
        metadata=record.get("m"),
        payload=record.get("p"),
        compiled_autograd_id=context[0],
        frame_id=context[1],
        frame_compile_id=context[2],
        attempt=context[3],
        rank=context[4],
        extra=extra or {},
    )


def _is_place(value: Any) -> bool:
    return type(value) is int and abs(value) <= LARGEST_INTEGER


def writers_alive(folder: Path) -> int:
    """Count the processes that still hold their spool file, by the lock that dies with them."""
    alive = 0
    for path in _files(folder, SUFFIX):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            alive += 1
        finally:
            os.close(descriptor)
    return alive
