"""Torch's own trace log (TORCH_TRACE, or a spool's at level full) to captured records, streamed.

A record is one line, `V1121 03:27:48.524000 3515 torch/_dynamo/utils.py:2126] {"name": …, "frame_id": 0, …}`, and the
lines of its payload after it, a TAB before each. A damaged line is counted and passed over; reading never stops at one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from collectors.decode.captured import Captured
from collectors.decode.names import is_wanted
from collectors.read.log_clock import LogClock

_PREFIX = re.compile(
    rb"^(?:\[rank\d+\]:)?[VDIWEC](?P<month>\d\d)(?P<day>\d\d) (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    rb"\.(?P<micro>\d{6}) +(?P<pid>\d+) [^\]]*\][^{]*(?=\{)"
)
_NAME = re.compile(rb'^\{"(?P<name>[^"\\]+)":')
_ARTIFACT = re.compile(rb'^\{"artifact": \{"name": "(?P<name>(?:[^"\\]|\\.)*)"')
_CONTEXT = frozenset(
    ("rank", "compiled_autograd_id", "frame_id", "frame_compile_id", "attempt", "has_payload", "stack", "subgraph_name")
)


@dataclass
class ReadStats:
    """Count what a reading met. `end_offset` is where the next one begins: behind the last whole record."""

    records: int = 0
    yielded: int = 0
    skipped: int = 0  # records of kinds that nobody keeps
    garbage_lines: int = 0
    bad_json: int = 0
    bad_utf8: int = 0
    payload_mismatches: int = 0
    truncated: int = 0  # a last record that is not whole yet
    unresolved_strings: int = 0
    pids: set[int] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    end_offset: int = 0


@dataclass
class _Record:
    offset: int
    time_us: int
    name: str
    header: dict[str, Any]
    payload: list[bytes] = field(default_factory=list)


def read_trace_log(
    path: str | Path, process_id: str, start_offset: int = 0, stats: ReadStats | None = None
) -> Iterator[Captured]:
    """Stream a log's records that become events, each with its line's byte offset as sequence.

    The prefix has neither year nor zone: both are taken from the first time since the epoch that the log itself
    carries, else the year from the file's own time (see log_clock). A last record whose payload is not whole yet is
    left for the next reading.

    Raises: OSError if the file cannot be read.
    """
    stats = stats if stats is not None else ReadStats()
    with Path(path).open("rb") as file:
        clock = LogClock.of(file, fallback_us=int(Path(path).stat().st_mtime * 1e6))
        reader = _Reader(process_id, clock, stats)
        yield from reader.read(file, start_offset)


class _Reader:
    def __init__(self, process_id: str, clock: LogClock, stats: ReadStats) -> None:
        self._process_id = process_id
        self._clock = clock
        self._stats = stats
        self._strings: dict[int, str] = {}

    def read(self, file: BinaryIO, start_offset: int) -> Iterator[Captured]:
        self._resume(file, start_offset)
        file.seek(start_offset)
        offset = self._stats.end_offset = start_offset
        record: _Record | None = None
        for line in file:
            begin, offset = offset, offset + len(line)
            if line[:1] == b"\t":
                if record is not None:
                    record.payload.append(line)
                elif not line.endswith(b"\n"):
                    # Half a line of a payload that nobody keeps: the next reading passes over all of it.
                    self._stats.end_offset = begin
                    return
                continue
            whole = line.endswith(b"\n")
            if record is not None:
                made = self._captured(record, last=False)
                record = None
                if made is not None:
                    yield made
            self._stats.end_offset = begin
            if not whole and not self._is_complete(line):
                self._stats.truncated += 1
                return
            record = self._header(line, begin)
        if record is not None:
            made = self._captured(record, last=True)
            if made is None and self._stats.truncated:
                return
            if made is not None:
                yield made
        self._stats.end_offset = offset

    def _resume(self, file: BinaryIO, start_offset: int) -> None:
        """Learn the interned strings and the years that went by before the place to start from."""
        file.seek(0)
        offset = 0
        for line in file:
            offset += len(line)
            if offset > start_offset:
                break
            if line[:1] != b"\t":
                found = _PREFIX.match(line)
                if found:
                    self._clock.time_us(found)
                    if line.startswith(b'{"str":', found.end()):
                        self._intern(self._json(line[found.end() :], count=False))

    def _header(self, line: bytes, offset: int) -> _Record | None:
        stats = self._stats
        found = _PREFIX.match(line)
        body = line[found.end() :] if found else b""
        named = _NAME.match(body)
        if found is None or named is None:
            if line.strip():
                stats.garbage_lines += 1
            return None
        stats.records += 1
        stats.pids.add(int(found["pid"]))
        time_us = self._clock.time_us(found)
        name = named["name"].decode("utf-8", "replace")
        if name == "artifact":
            artifact = _ARTIFACT.match(body)
            name = f"artifact:{artifact['name'].decode('utf-8', 'replace')}" if artifact else name
        if name == "str":
            self._intern(self._json(body))
            return None
        if not is_wanted(name):
            stats.skipped += 1
            return None
        header = self._json(body)
        return _Record(offset, time_us, name, header) if header is not None else None

    def _json(self, body: bytes, count: bool = True) -> dict[str, Any] | None:
        text = self._decode(body, count)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            self._stats.bad_json += count
            return None
        return value

    def _decode(self, body: bytes, count: bool = True) -> str:
        try:
            return body.decode("utf-8")
        except UnicodeDecodeError:
            self._stats.bad_utf8 += count
            return body.decode("utf-8", "replace")

    def _is_complete(self, line: bytes) -> bool:
        found = _PREFIX.match(line)
        return found is not None and self._json(line[found.end() :], count=False) is not None

    def _intern(self, header: dict[str, Any] | None) -> None:
        value = header.get("str") if header else None
        if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], int):
            self._strings[value[1]] = value[0]

    def _captured(self, record: _Record, last: bool) -> Captured | None:
        header, stats = record.header, self._stats
        key = next((k for k in header if k not in _CONTEXT), None)
        digest = header.get("has_payload")
        payload = None
        if record.payload or digest:
            raw = b"\n".join(line[1:].rstrip(b"\n") for line in record.payload)
            if isinstance(digest, str) and hashlib.md5(raw, usedforsecurity=False).hexdigest() != digest:
                if last:
                    stats.truncated += 1
                    stats.end_offset = record.offset
                    return None
                stats.payload_mismatches += 1
            payload = self._decode(raw)
        rank = _number(header.get("rank"))
        if rank is not None:
            stats.ranks.add(rank)
        stats.yielded += 1
        return Captured(
            process_id=self._process_id,
            sequence=record.offset,
            time_us=record.time_us,
            name=record.name,
            metadata=self._resolved(header.get(key)) if key else None,
            payload=payload,
            frame_id=_number(header.get("frame_id")),
            frame_compile_id=_number(header.get("frame_compile_id")),
            compiled_autograd_id=_number(header.get("compiled_autograd_id")),
            attempt=_number(header.get("attempt")),
            rank=rank,
        )

    def _resolved(self, metadata: Any) -> Any:
        """Put names in place of the numbers that stand for them in stacks."""
        if not isinstance(metadata, dict):
            return metadata
        for key in ("stack", "user_stack"):
            frames = metadata.get(key)
            for frame in frames if isinstance(frames, list) else ():
                number = frame.get("filename") if isinstance(frame, dict) else None
                if isinstance(number, int):
                    self._stats.unresolved_strings += number not in self._strings
                    frame["filename"] = self._strings.get(number, "<unknown>")
        return metadata


def _number(value: Any) -> int | None:
    # Beyond 32 bits it is damage, and the store's integers end at 64.
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**32 else None
