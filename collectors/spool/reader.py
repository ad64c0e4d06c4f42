"""Read a run's spool files from the last position, whole lines only.

Bad lines are counted as rejects with file, line and kind; all good lines are read.
"""

from __future__ import annotations

import json
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

from compileboard.collectors.contract.rejects import Rejects
from compileboard.collectors.contract.spool_format import (
    CONTEXT_KEYS,
    LOSSES_SUFFIX,
    RECORDS_SUFFIX,
)
from compileboard.collectors.contract.values import clean_text
from compileboard.collectors.decode.records import Captured

BATCH_BYTES = 4 << 20
LARGEST_LINE_BYTES = 64 << 20
LARGEST_INTEGER = 2**63 - 1
MOST_CONFIGS = 16  # events that a record's configurations may become, numbered after it

KEPT = "bad_field"  # costs a record one value
UNREADABLE = "spool: a line that is no record"
TORN = "spool: a last line that is torn"
EMPTY = "spool: nothing could be written"


class BadLine(ValueError):
    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


@dataclass
class FilePosition:
    offset: int = 0
    line: int = 0
    passing_over: bool = False  # in the middle of a line that is too long


@dataclass(frozen=True)
class SpoolMark:
    positions: dict[str, FilePosition]
    rejects: dict[str, Rejects]


@dataclass
class SpoolReader:
    folder: Path
    keep_examples: bool = True  # a line may hold source code
    rejects: dict[str, Rejects] = field(default_factory=dict)  # by file name
    positions: dict[str, FilePosition] = field(default_factory=dict)  # by file name

    def read(self) -> Iterator[Captured]:
        for path in list_files(self.folder, RECORDS_SUFFIX):
            process_id = process_of(path.name)
            for number, line in self.read_lines(path):
                if (
                    line
                    and (captured := self._parse(path.name, process_id, number, line)) is not None
                ):
                    yield captured

    def mark(self) -> SpoolMark:
        positions = {name: replace(position) for name, position in self.positions.items()}
        return SpoolMark(
            positions, {name: rejects.copy() for name, rejects in self.rejects.items()}
        )

    def rewind(self, mark: SpoolMark) -> None:
        self.positions = {name: replace(position) for name, position in mark.positions.items()}
        self.rejects = {name: rejects.copy() for name, rejects in mark.rejects.items()}

    def reject(
        self, file_name: str, kind: str, line: int | None = None, example: bytes | str | None = None
    ) -> None:
        rejects = self.rejects.setdefault(clean_text(file_name), Rejects())
        rejects.add(kind, line, example if self.keep_examples else None)

    def read_lines(self, path: Path) -> Iterator[tuple[int, bytes]]:
        position = self.positions.setdefault(path.name, FilePosition())
        try:
            if not is_file(path) or path.stat().st_size <= position.offset:
                return
            file = path.open("rb")
        except FileNotFoundError:  # deleted since it was listed
            return
        with file:
            file.seek(position.offset)
            while block := file.read(BATCH_BYTES):
                while (
                    b"\n" not in block
                    and len(block) <= LARGEST_LINE_BYTES
                    and (more := file.read(BATCH_BYTES))
                ):
                    block += more
                end = block.rfind(b"\n") + 1
                if not end and len(block) <= LARGEST_LINE_BYTES:
                    break  # its rest is still to come
                if not end:
                    position.passing_over = True
                    position.offset += len(block)
                    continue
                for line in block[: end - 1].split(b"\n"):
                    position.line += 1
                    position.offset += len(line) + 1
                    if position.passing_over:
                        position.passing_over = False
                        self.reject(path.name, "too_large", position.line)
                    else:
                        yield position.line, line
                file.seek(position.offset)

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
        losses: dict[str, Counter[str]] = {}
        for path in list_files(self.folder, LOSSES_SUFFIX):
            losses.setdefault(process_of(path.name), Counter()).update(_reported_losses(path))
        for file_name, rejects in self.rejects.items():
            if file_name.endswith(RECORDS_SUFFIX):
                losses.setdefault(process_of(file_name), Counter())[UNREADABLE] += (
                    rejects.total - rejects.count(KEPT)
                )
        for path in list_files(self.folder, RECORDS_SUFFIX):
            size, counts = path.stat().st_size, losses.setdefault(process_of(path.name), Counter())
            position = self.positions.get(path.name, FilePosition())
            if size == 0 and not _has_room(self.folder, path):
                counts[EMPTY] += 1
            elif size > position.offset or position.passing_over:
                counts[TORN] += 1
        return {process_id: dict(counts) for process_id, counts in losses.items() if counts}


def list_files(folder: Path, suffix: str) -> list[Path]:
    return [path for path in sorted(folder.glob(f"*{suffix}")) if is_file(path)]


def is_file(path: Path) -> bool:
    """Return whether a path is a regular file; opening a pipe blocks, and devices have no end."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def process_of(file_name: str) -> str:
    return clean_text(file_name.partition(".")[0])


def _has_room(folder: Path, path: Path) -> bool:
    reserved = folder / (path.name.partition(".")[0] + LOSSES_SUFFIX)
    return reserved.exists() and reserved.stat().st_size > 0


def _reported_losses(path: Path) -> dict[str, int]:
    try:
        text = path.read_bytes().partition(b"\n")[0].strip(b"\0")
        reported = json.loads(text) if text else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return (
        {clean_text(reason): count for reason, count in reported.items() if is_count(count)}
        if _is_dict(reported)
        else {}
    )


def is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= LARGEST_INTEGER


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _captured(process_id: str, record: Any) -> Captured:
    if not _is_dict(record):
        raise BadLine("stray_line")
    sequence, time_us, name, extra = (
        record.get("s"),
        record.get("t"),
        record.get("n"),
        record.get("x"),
    )
    context = record.get("c")
    if not is_count(sequence) or sequence > LARGEST_INTEGER - MOST_CONFIGS or not is_count(time_us):
        raise BadLine("bad_envelope")
    if not isinstance(name, str) or not name or not (extra is None or _is_dict(extra)):
        raise BadLine("bad_envelope")
    if context is None:
        context = [None] * len(CONTEXT_KEYS)
    elif (
        type(context) is not list
        or len(context) != len(CONTEXT_KEYS)
        or not all(map(_is_context, context))
    ):
        raise BadLine("bad_envelope")
    return Captured(
        process_id=process_id,
        sequence=sequence,
        time_us=time_us,
        name=name,
        metadata=record.get("m"),
        payload=record.get("p"),
        extra=extra or {},
        **dict(zip(CONTEXT_KEYS, context, strict=True)),
    )


def _is_context(value: Any) -> bool:
    return value is None or (type(value) is int and abs(value) <= LARGEST_INTEGER)
