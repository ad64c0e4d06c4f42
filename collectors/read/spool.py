"""Read a run's spool: every process's file, from where it was last read, only whole lines."""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collectors.decode.captured import Captured

SUFFIX = ".jsonl"
BATCH_BYTES = 4 << 20


class SpoolReader:
    """Follow the files of one run's spool folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unreadable: Counter[str] = Counter()  # process id -> lines that are no record
        self._offsets: dict[str, int] = {}

    def read(self) -> Iterator[Captured]:
        """Yield what has been written since the last call."""
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            yield from self._read_file(path)

    def _read_file(self, path: Path) -> Iterator[Captured]:
        process_id = path.name.removesuffix(SUFFIX)
        offset = self._offsets.get(process_id, 0)
        if path.stat().st_size <= offset:
            return
        with path.open("rb") as file:
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
                self._offsets[process_id] = offset
                file.seek(offset)

    def _parse(self, process_id: str, line: bytes) -> Captured | None:
        try:
            record = json.loads(line)
            return _captured(process_id, record)
        except (ValueError, KeyError, TypeError, IndexError):
            self.unreadable[process_id] += 1
            return None

    def unread_bytes(self) -> int:
        """Count what is there and was not read: torn last lines, and whatever came since."""
        sizes = {path.name.removesuffix(SUFFIX): path.stat().st_size for path in self.folder.glob(f"*{SUFFIX}")}
        return sum(size - self._offsets.get(process_id, 0) for process_id, size in sizes.items())


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
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            alive += 1
        finally:
            os.close(descriptor)
    return alive
