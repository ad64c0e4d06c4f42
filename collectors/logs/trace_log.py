"""Read torch's trace log (TORCH_TRACE, or a spool's at level full) as a stream of records.

A record is one line, `V1121 03:27:48.524000 3515 torch/_dynamo/utils.py:2126] {"name": …,
"frame_id": 0, …}`, followed by its payload with a TAB before each line. Damaged lines are counted
and skipped.
"""

from __future__ import annotations

import calendar
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import lru_cache
from hashlib import blake2b, md5
from typing import Any

from compileboard.collectors.contract.record_names import ARTIFACT, SPAN, STRING
from compileboard.collectors.contract.rejects import Rejects
from compileboard.collectors.contract.values import show_value
from compileboard.collectors.decode.records import LoggedPayload, TorchRecord, needs_payload
from compileboard.collectors.decode.spans import PLAIN_PATTERN, shorten_span
from compileboard.collectors.logs.log_blocks import BORDER, BlockReader, LogPiece, Readable

_EPOCH_TIME = re.compile(rb'"(?:end_time_us|start_time_us)": (\d{16})\b')
_EPOCH_SECONDS = re.compile(rb'"start_time": (\d{10})\.\d')
# The first time in a log is nearly always a timeline event's, in the payload of its first record.
_TIMELINE = re.compile(rb'^\t"ts": (\d{16})(?:\.\d+)?,?\s*$')
_LINE = re.compile(rb"^(?:\[rank\d+\]:)?[VDIWEC](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}) ")
_QUARTER_US = 15 * 60 * 1_000_000  # every time zone is a multiple of a quarter of an hour
_HALF_YEAR_US = 180 * 86_400 * 1_000_000


class LogClock:
    def __init__(self, year: int, offset_us: int, *, is_set: bool = True) -> None:
        self.is_set = is_set  # Whether the clock is set from a time since the epoch, not guessed.
        self._year = year
        self._offset_us = offset_us
        self._last_us = 0
        self._second = b""  # the prefix up to its seconds, and its time
        self._second_us = 0

    @classmethod
    def of(cls, head: bytes, fallback_us: int | None = None) -> LogClock:
        """Set year and time zone by the first epoch time at the beginning of a log.

        If there is none, the year is that of `fallback_us`, or 1970, and the zone UTC; times then
        only order the records.
        """
        stamp: tuple[int, ...] | None = None
        for line in head.splitlines(keepends=True):
            if line[:1] != b"\t":
                match = _LINE.match(line)
                stamp = tuple(map(int, match.groups())) if match else None
                known = _EPOCH_TIME.findall(line) if b"_time_us" in line else []
                epoch = int(known[-1]) if known else None
                if (
                    epoch is None
                    and b'"start_time"' in line
                    and (seconds := _EPOCH_SECONDS.search(line))
                ):
                    epoch = int(seconds.group(1)) * 1_000_000
            else:
                timeline = _TIMELINE.match(line)
                epoch = int(timeline.group(1)) if timeline else None
            if stamp is not None and epoch is not None:
                return cls._anchored(stamp, epoch)
        year = datetime.fromtimestamp((fallback_us or 0) / 1e6, timezone.utc).year
        return cls(year, 0, is_set=False)

    @classmethod
    def _anchored(cls, stamp: tuple[int, ...], epoch_us: int) -> LogClock:
        base = datetime.fromtimestamp(epoch_us / 1e6, timezone.utc).year
        # Around New Year the local year is the closest one.
        offsets = {year: epoch_us - _naive_us(year, stamp) for year in (base - 1, base, base + 1)}
        year = min(offsets, key=lambda candidate: abs(offsets[candidate]))
        return cls(year, round(offsets[year] / _QUARTER_US) * _QUARTER_US)

    def time_us(self, second: bytes, micro: bytes) -> int:
        """Convert a prefix such as `1121 03:27:48` with its microseconds to µs since the epoch."""
        if second != self._second:
            self._second, self._second_us = second, self._second_to_us(second)
        return self._second_us + int(micro)

    def _second_to_us(self, second: bytes) -> int:
        stamp = (*map(int, (second[:2], second[2:4], second[5:7], second[8:10], second[11:13])), 0)
        time_us = _naive_us(self._year, stamp) + self._offset_us
        if self._last_us - time_us > _HALF_YEAR_US:
            self._year += 1
            time_us = _naive_us(self._year, stamp) + self._offset_us
        self._last_us = time_us
        return time_us


def _naive_us(year: int, stamp: tuple[int, ...]) -> int:
    month, day, hour, minute, second, micro = stamp
    # timegm takes a 31st of February for the 3rd of March, so that a damaged prefix is not an
    # error.
    seconds = calendar.timegm(
        (year, min(max(month, 1), 12), max(day, 1), hour, minute, second, 0, 0, 0)
    )
    return seconds * 1_000_000 + micro


try:
    import orjson
except ImportError:  # without orjson, the standard library reads logs too
    orjson = None  # type: ignore[assignment]

# The process follows the time; in torch 2.4 the thread.
PREFIX = re.compile(
    rb"(?:\[rank\d+\]:)?[VDIWEC](?P<second>\d{4} \d\d:\d\d:\d\d)\.(?P<micro>\d{6}) "
    rb"+(?P<pid>\d{1,20}) "
    rb"[^\]\n]*\][^{\n]*(?=\{)"
)
_NAME = re.compile(rb'\{"(?P<name>[^"\\]+)":')
_NUMBERS = frozenset(("rank", "compiled_autograd_id", "frame_id", "frame_compile_id", "attempt"))
_PLAIN_SPAN = re.compile(  # including the envelope: most of a log's records
    rb"V(?P<second>\d{4} \d\d:\d\d:\d\d)\.(?P<micro>\d{6}) +(?P<pid>\d{1,20}) [^\]{\n]*\] "
    rb'\{"chromium_event": \{\}(?:, "rank": (?P<rank>\d{1,9}))?'
    rb'(?:, "frame_id": (?P<frame_id>\d{1,9}), "frame_compile_id": (?P<again>\d{1,9}),'
    rb' "attempt": (?P<attempt>\d{1,9}))?, "has_payload": "(?P<digest>[0-9a-f]{32})"\}\n\t'
    + PLAIN_PATTERN
    + rb"\n"
)
_LEFT_OUT = LoggedPayload(state="left_out")
# Before a record of another process or one that names a file, and before anything else
_OTHER = rb"\n(?!\t)(?![VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d{6} +%b [^\]\n]*\][^{\n]*\{\"(?!str\":))"
PART_BYTES = 16 << 20
PART_END = TorchRecord("", -1, 0, "")  # marks where another reader of the same log continues
_MAX_SKIPPED = 16  # processes in a log whose records are recognised by one pattern each
_MAX_PID = 2**32  # larger numbers are threads


def pid_of(text: bytes) -> int | None:
    number = int(text)
    return number if number < _MAX_PID else None


@dataclass
class ReadStats:
    records: int = 0
    rejects: Rejects = field(default_factory=Rejects)
    end_offset: int = 0
    end_line: int = 1
    end_digest: str | None = None  # The digest of the bytes before the end.


@dataclass
class _ProcessSegment:
    process_id: str
    strings: dict[int, str] = field(default_factory=dict)


class TraceLog:
    """One log, which may grow: calling `read` again yields appended records.

    Without `texts`, a record's text is read only if `needs_payload`. `share` is the number and
    count of parallel readers, who take turns.
    """

    def __init__(
        self,
        file: Readable,
        process_id: str,
        clock: LogClock,
        *,
        start_offset: int = 0,
        stats: ReadStats | None = None,
        texts: bool = True,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        self.part = 0  # last read by this share
        self.part_begin = 0  # offset of its first record
        self.part_end = 0  # offset of the first record after it, once PART_END came
        self._is_edited = False  # a text in it does not match its md5
        self.is_elsewhere = share[0] > 0  # the last part read belongs to another share
        self._share = share
        self.stats = stats if stats is not None else ReadStats()
        self._clock = clock
        self._start_offset = start_offset
        self._texts = texts
        self._root_id = process_id
        self._segment = _ProcessSegment(process_id)
        self._segments: dict[
            int | None, _ProcessSegment
        ] = {}  # by pid; all threads of a log are one process
        self._pid = b""
        self._piece: LogPiece | None = None
        # The first reader counts records skipped for their size.
        self._blocks = BlockReader(
            file, self.stats.rejects, start_offset if share[0] == 0 else sys.maxsize
        )
        self._blocks.skip_to(start_offset + share[0] * PART_BYTES)

    @property
    def pid(self) -> int | None:
        return pid_of(self._pid) if self._pid else None

    @property
    def line(self) -> int | None:
        return self._blocks.line_of(self._piece) if self._piece else None

    def set_clock(self, clock: LogClock) -> None:
        self._clock = clock

    def read(self) -> Iterator[TorchRecord]:
        self.stats.rejects.by_kind.pop("truncated", None)
        try:
            for piece in self._blocks:
                if piece.offset < self._start_offset:
                    self._read_prefix(piece)
                    continue
                if self._share[1] > 1 and not self._enter_part(piece):
                    if not self.is_elsewhere:
                        self.is_elsewhere, self.part_end = True, piece.offset
                        next_part = self.part + self._share[1]
                        self._blocks.skip_to(self._start_offset + next_part * PART_BYTES)
                        yield PART_END
                    self._read_prefix(piece)
                    continue
                self._piece = piece
                made = self._read_piece(piece)
                if made is not None:
                    yield made
        except (
            ValueError,
            OSError,
            EOFError,
        ):  # records read are kept: an intact copy continues after them
            self._end()
            raise
        self._end()

    def _enter_part(self, piece: LogPiece) -> bool:
        number, count = self._share
        part = (piece.offset - self._start_offset) // PART_BYTES
        if part % count != number:
            return False
        if self.is_elsewhere:
            self.is_elsewhere, self.part_begin = False, piece.offset
        self.part = part
        return True

    def _end(self) -> None:
        self._piece = None
        self.stats.end_offset, self.stats.end_line = self._blocks.offset, self._blocks.line
        self.stats.end_digest = self._blocks.digest

    def _read_prefix(self, piece: LogPiece) -> None:
        prefix = PREFIX.match(piece.buffer, piece.begin)
        if prefix:
            self._clock.time_us(prefix["second"], prefix["micro"])
            self._enter_segment(prefix["pid"], piece, count=False)
            self._blocks.other = (
                _find_other(self._pid) if len(self._segments) <= _MAX_SKIPPED else BORDER
            )
            if piece.buffer.startswith(b'{"str":', prefix.end()):
                self._intern_string(
                    self._parse_json(piece.buffer[prefix.end() : piece.line_end], None),
                    piece,
                    count=False,
                )

    def _read_piece(self, piece: LogPiece) -> TorchRecord | None:
        if not piece.last:
            plain = _PLAIN_SPAN.fullmatch(piece.buffer, piece.begin, piece.end)
            if plain is not None and (not self._texts or _is_whole(piece, plain)):
                return self._read_plain_span(piece, plain)
        buffer, line_end = piece.buffer, piece.line_end
        prefix = PREFIX.match(buffer, piece.begin)
        if prefix is None or not _NAME.match(buffer, prefix.end()):
            self._reject_stray_line(piece, line_end)
            return None
        body = buffer[prefix.end() : line_end]
        header = self._parse_json(body, piece)
        if header is None:
            return None
        self.stats.records += 1
        if prefix["pid"] != self._pid:
            self._enter_segment(prefix["pid"], piece)
        name = next(iter(header))
        if name == STRING:
            self._intern_string(header, piece)
            return None
        if name == "artifact" and isinstance(header[name], dict):
            name = f"{ARTIFACT}{header[name].get('name')}"
        time_us = self._clock.time_us(prefix["second"], prefix["micro"])
        return self._make_captured(piece, name, header, time_us, line_end)

    def _read_plain_span(self, piece: LogPiece, plain: re.Match[bytes]) -> TorchRecord:
        self.stats.records += 1
        (
            second,
            micro,
            pid,
            rank,
            frame_id,
            again,
            attempt,
            _digest,
            name,
            ts,
            up,
            compile_id,
            phase,
            thread,
        ) = plain.groups()
        if pid != self._pid:
            self._enter_segment(pid, piece)
        at_us = int(ts) + (up is not None)
        return TorchRecord(
            self._segment.process_id,
            piece.offset,
            self._clock.time_us(second, micro) if self._texts else at_us,
            SPAN,
            (
                name.decode(),
                phase.decode(),
                at_us,
                int(thread),
                compile_id.decode() if compile_id else None,
            ),
            None,
            int(frame_id) if frame_id else None,
            int(again) if again else None,
            None,
            int(attempt) if attempt else None,
            int(rank) if rank else None,
            logged=_LEFT_OUT,
        )

    def _reject_stray_line(self, piece: LogPiece, line_end: int) -> None:
        line = piece.buffer[piece.begin : line_end]
        if piece.last and line_end == piece.end and not piece.buffer.endswith(b"\n"):
            self._reject_truncated(piece)
        elif line.strip():
            self.stats.rejects.add("stray_line", self._blocks.line_of(piece), line)

    def _reject_truncated(self, piece: LogPiece) -> None:
        piece.incomplete = True
        self.stats.rejects.add(
            "truncated", self._blocks.line_of(piece), piece.buffer[piece.begin : piece.begin + 400]
        )

    def _parse_json(self, body: bytes, piece: LogPiece | None) -> dict[str, Any] | None:
        try:
            value = _load_record(body)
        except UnicodeDecodeError:
            if piece:
                self.stats.rejects.add("bad_utf8", self._blocks.line_of(piece), body)
            value = _parse_json_or_none(body.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            return value
        if piece and piece.last and not piece.buffer.endswith(b"\n"):
            self._reject_truncated(piece)
        elif piece:
            self.stats.rejects.add("bad_json", self._blocks.line_of(piece), body)
        return None

    def _enter_segment(self, pid_text: bytes, piece: LogPiece, count: bool = True) -> None:
        self._pid, pid = pid_text, pid_of(pid_text)
        known = self._segments.get(pid)
        if known is None:
            known = self._segment if not self._segments else self._new_segment(piece, count)
            self._segments[pid] = known
        self._segment = known

    def _new_segment(self, piece: LogPiece, count: bool) -> _ProcessSegment:
        if count:
            line = self._blocks.line_of(piece)
            self.stats.rejects.add("second_log", line, piece.buffer[piece.begin : piece.line_end])
        digest = blake2b(f"{self._root_id}:{piece.offset}".encode(), digest_size=16)
        return _ProcessSegment(digest.hexdigest())

    def _intern_string(
        self, header: dict[str, Any] | None, piece: LogPiece, count: bool = True
    ) -> None:
        value = header.get(STRING) if header else None
        if (
            isinstance(value, list)
            and len(value) == 2
            and isinstance(value[0], str)
            and isinstance(value[1], int)
        ):
            text, number = value
            if number == 0 and self._segment.strings.get(0, text) != text:
                # Each process counts from 0: another one with the same pid begins here.
                self._segment = self._segments[self.pid] = self._new_segment(piece, count)
            self._segment.strings[number] = text
        elif count:
            self.stats.rejects.add("bad_field", self._blocks.line_of(piece))

    def _make_captured(
        self, piece: LogPiece, name: str, header: dict[str, Any], time_us: int, line_end: int
    ) -> TorchRecord | None:
        payload, logged = self._read_payload(piece, name, header, line_end)
        if piece.incomplete:
            return None
        numbers: dict[str, Any] = {}
        envelope: dict[str, Any] = {}
        entries = iter(header.items())
        _name, metadata = next(entries)
        for key, value in entries:
            if key in _NUMBERS:
                # Negative numbers or ones beyond 32 bits are damage; the store's integers end at
                # 64.
                if type(value) is int and 0 <= value < 2**32:
                    numbers[key] = value
                elif value is not None:
                    self._reject_value(piece, key, value)
                    envelope[key] = value
            elif key != "has_payload":
                envelope[key] = value
            elif not isinstance(value, str):
                self._reject_value(piece, key, value)
                envelope[key] = value
        if envelope:
            envelope = self._resolve_file_names(envelope, piece)
        return TorchRecord(
            process_id=self._segment.process_id,
            sequence=piece.offset,
            time_us=time_us,
            name=name,
            metadata=self._resolve_file_names(metadata, piece) if metadata else metadata,
            payload=payload,
            logged=logged,
            envelope=envelope or None,
            **numbers,
        )

    def _read_payload(
        self, piece: LogPiece, name: str, header: dict[str, Any], line_end: int
    ) -> tuple[str | None, LoggedPayload]:
        digest = header.get("has_payload")
        digest = digest if isinstance(digest, str) else None
        if digest is None and line_end + 1 >= piece.end:
            return None, LoggedPayload()
        if not self._texts and not piece.last and not needs_payload(name):
            return None, LoggedPayload(digest, max(0, piece.end - line_end - 2), "left_out")
        if not self._texts and not piece.last and name == SPAN:
            brief = shorten_span(piece.buffer, line_end + 1, piece.end)
            lines = piece.buffer[line_end + 1 : piece.end].removesuffix(b"\n")
            return brief or _strip_tabs(lines).decode("utf-8", "replace"), LoggedPayload(
                digest, None, "left_out"
            )
        raw, is_whole = _read_text(piece, line_end, digest)
        state = "kept" if self._texts else "left_out"
        if digest is not None and not is_whole:
            # A log that went through Windows, or an editor that removes blank lines at its end.
            candidates = (
                raw.replace(b"\r\n", b"\n").removesuffix(b"\r"),
                raw + b"\n",
                raw + b"\n\n",
            )
            whole = next(
                (
                    text
                    for text in candidates
                    if md5(text, usedforsecurity=False).hexdigest() == digest
                ),
                None,
            )
            if whole is not None:
                raw = whole
            elif piece.last and not (self._is_edited and piece.buffer.endswith(b"\n")):
                self._reject_truncated(piece)
            else:
                kind = "wrong_md5" if raw or line_end + 1 < piece.end else "missing_text"
                self.stats.rejects.add(kind, self._blocks.line_of(piece), name)
                self._is_edited = True
                state = "damaged" if self._texts else "left_out"
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            self.stats.rejects.add("bad_utf8", self._blocks.line_of(piece), name)
            text = raw.decode("utf-8", "replace")
        if not self._texts and not needs_payload(name):
            return None, LoggedPayload(digest, len(raw), state)
        if (
            name == SPAN
            and state == "kept"
            and (brief := shorten_span(piece.buffer, line_end + 1, piece.end))
        ):
            return brief, LoggedPayload(digest, len(raw), state, whole=text)
        return text, LoggedPayload(digest, len(raw), state)

    def _resolve_file_names(self, metadata: Any, piece: LogPiece) -> Any:
        if not isinstance(metadata, dict):
            return metadata
        strings = self._segment.strings
        for key in ("stack", "user_stack", "framework_stack"):
            frames = metadata.get(key)
            for frame in frames if isinstance(frames, list) else ():
                number = frame.get("filename") if isinstance(frame, dict) else None
                if isinstance(number, int):
                    if number not in strings:
                        self.stats.rejects.add(
                            "unknown_file", self._blocks.line_of(piece), f"number {number}"
                        )
                    frame["filename"] = strings.get(number, "<unknown>")
        return metadata

    def _reject_value(self, piece: LogPiece, name: str, value: Any) -> None:
        self.stats.rejects.add(
            "bad_field", self._blocks.line_of(piece), f"{name} is {show_value(value)}"
        )


@lru_cache(maxsize=64)
def _find_other(pid: bytes) -> re.Pattern[bytes]:
    return re.compile(_OTHER % pid)


def _is_whole(piece: LogPiece, plain: re.Match[bytes]) -> bool:
    raw = piece.buffer[plain.end("digest") + 4 : piece.end - 1].translate(None, b"\t")
    return md5(raw, usedforsecurity=False).hexdigest().encode() == plain["digest"]


def _read_text(piece: LogPiece, line_end: int, digest: str | None) -> tuple[bytes, bool]:
    lines = piece.buffer[line_end + 1 : piece.end].removesuffix(b"\n")
    if digest is not None:
        # A third of the time of removing only TABs at line starts; a text with others then does not
        # match its md5.
        raw = lines.translate(None, b"\t")
        if md5(raw, usedforsecurity=False).hexdigest() == digest:
            return raw, True
    raw = _strip_tabs(lines)
    return raw, digest is not None and md5(raw, usedforsecurity=False).hexdigest() == digest


def _strip_tabs(lines: bytes) -> bytes:
    return lines.removeprefix(b"\t").replace(b"\n\t", b"\n")


def _load_record(body: bytes) -> Any:
    if orjson is not None:
        try:
            return orjson.loads(body)
        except ValueError:
            # NaN, lone surrogates, integers beyond 64 bits: torch writes them, json reads them
            pass
    return json.loads(body.decode())


def _parse_json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
