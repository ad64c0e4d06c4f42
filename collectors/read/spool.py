"""Read a run's spool: every process's file, from where it was last read, only whole lines."""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.decode.captured import Captured

SUFFIX = ".jsonl"
LOSSES_SUFFIX = ".losses"
BATCH_BYTES = 4 << 20

UNREADABLE = "spool: a line that is no record"
TORN = "spool: a last line that is torn"
EMPTY = "spool: nothing could be written"


@dataclass(frozen=True)
class Mark:
    """Remember how far a spool was read."""

    offsets: dict[str, int]
    unreadable: Counter[str]


class SpoolReader:
    """Follow the files of one run's spool folder: one a process, more if its file was taken from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unreadable: Counter[str] = Counter()  # process id -> lines that are no record
        self._offsets: dict[str, int] = {}  # by file name

    def read(self) -> Iterator[Captured]:
        """Yield what has been written since the last call."""
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            yield from self._read_file(path)

    def mark(self) -> Mark:
        """Remember this place, to come back to if what was read could not be kept."""
        return Mark(dict(self._offsets), Counter(self.unreadable))

    def rewind(self, mark: Mark) -> None:
        """Read again from a remembered place."""
        self._offsets, self.unreadable = dict(mark.offsets), Counter(mark.unreadable)

    def _read_file(self, path: Path) -> Iterator[Captured]:
        offset = self._offsets.get(path.name, 0)
        try:
            if path.stat().st_size <= offset:
                return
            file = path.open("rb")
        except FileNotFoundError:  # deleted since it was listed
            return
        process_id = _process_of(path)
        with file:
            file.seek(offset)
            while block := file.read(BATCH_BYTES):
                end = block.rfind(b"\n") + 1
                if not end:  # a torn line, or one longer than the block
                    rest = block + file.read()
                    end = rest.rfind(b"\n") + 1
                    block = rest
                    if not end:
                        break
                for line in block[:end].split(b"\n"):
                    if line:
                        captured = self._parse(process_id, line)
                        if captured is not None:
                            yield captured
                offset += end
                self._offsets[path.name] = offset
                file.seek(offset)

    def _parse(self, process_id: str, line: bytes) -> Captured | None:
        try:
            record = json.loads(line)
            return _captured(process_id, record)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            self.unreadable[process_id] += 1
            return None

    def losses(self) -> dict[str, dict[str, int]]:
        """Say, of a spool that nobody writes to any more, what of each process was lost: process id -> reason -> count.

        A process says so itself in its snapshots as long as it can write; this is what it could not say.
        """
        lost: dict[str, Counter[str]] = {}
        for path in self.folder.glob(f"*{LOSSES_SUFFIX}"):
            lost.setdefault(_process_of(path), Counter()).update(_said_losses(path))
        for process_id, count in self.unreadable.items():
            lost.setdefault(process_id, Counter())[UNREADABLE] += count
        for path in self.folder.glob(f"*{SUFFIX}"):
            size, counts = path.stat().st_size, lost.setdefault(_process_of(path), Counter())
            if size == 0 and not _has_room(self.folder, path):
                counts[EMPTY] += 1
            elif size > self._offsets.get(path.name, 0):
                counts[TORN] += 1
        return {process_id: dict(counts) for process_id, counts in lost.items() if counts}


def _process_of(path: Path) -> str:
    return path.name.partition(".")[0]


def _has_room(folder: Path, path: Path) -> bool:
    """Tell whether a process could reserve room for its losses: one that did and wrote nothing was killed early."""
    reserved = folder / (_process_of(path) + LOSSES_SUFFIX)
    return reserved.exists() and reserved.stat().st_size > 0


def _said_losses(path: Path) -> dict[str, int]:
    """Read what a process wrote into the room that it had reserved for the day its disk is full."""
    try:
        text = path.read_bytes().partition(b"\n")[0].strip(b"\0")
        found = json.loads(text) if text else {}
        return {str(reason): int(count) for reason, count in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _captured(process_id: str, record: dict[str, Any]) -> Captured:
    context = record.get("c") or [None] * 5
    return Captured(
        process_id=process_id,
        sequence=int(record["s"]),
        time_us=int(record["t"]),
        name=str(record["n"]),
        metadata=record.get("m"),
        payload=record.get("p"),
        compiled_autograd_id=context[0],
        frame_id=context[1],
        frame_compile_id=context[2],
        attempt=context[3],
        rank=context[4],
        extra=record.get("x") or {},
    )


def writers_alive(folder: Path) -> int:
    """Count the processes that still hold their spool file, by the lock that dies with them."""
    alive = 0
    for path in folder.glob(f"*{SUFFIX}"):
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
