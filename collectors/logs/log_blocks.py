"""Split a trace log into records, holding only one record and one block in memory.

A record is a line without a leading TAB and the following lines with one. Tools that trim lines
remove the TAB of blank lines, so blank lines before a line with a TAB belong to the record's text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

from compileboard.collectors.contract.rejects import Rejects

BLOCK_BYTES = 512 << 10  # fits a core's cache; 4 MiB take a third longer
MAX_BYTES = 64 << 20
_NEWLINE = 0x0A
BORDER = re.compile(rb"\n(?=[^\t])")


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(slots=True)
class LogPiece:
    buffer: bytes
    begin: int
    end: int  # after its last newline
    offset: int  # The position of its first byte in the log.
    last: bool  # nothing follows it, so far
    incomplete: bool = False  # set by the reader to leave it for later

    @property
    def line_end(self) -> int:
        end = self.buffer.find(b"\n", self.begin, self.end)
        return self.end if end < 0 else end


class BlockReader:
    def __init__(self, file: Readable, rejects: Rejects, counted_from: int = 0) -> None:
        self._file = file
        self._rejects = rejects
        self._buffer = b""
        self._ahead = b""  # read before the file's next block
        # Damage that an earlier reading has counted.
        self._counted_from = counted_from
        self._base_offset = 0  # The position of the buffer's first byte.
        self._base_line = 1
        self._counted = (
            0,
            1,
        )  # a position in the buffer and its line, because a log of stray lines needs every one
        self._skip_end = 0
        self.other = BORDER  # before records that are not skipped
        self._digest = blake2b(digest_size=16)

    @property
    def offset(self) -> int:
        """The offset after the last whole record that was read."""
        return self._base_offset

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    @property
    def line(self) -> int:
        return self._base_line

    def line_of(self, piece: LogPiece) -> int:
        position, line = self._counted if self._counted[0] <= piece.begin else (0, self._base_line)
        self._counted = (piece.begin, line + self._buffer.count(b"\n", position, piece.begin))
        return self._counted[1]

    def skip_to(self, offset: int) -> None:
        self._skip_end = offset

    def __iter__(self) -> Iterator[LogPiece]:
        scanned, last, blank = (
            0,
            0,
            -1,
        )  # the last border, and the start of blank lines that end there
        while block := self._ahead or self._file.read(BLOCK_BYTES):
            self._buffer, self._ahead = self._buffer + block, b""
            if self._base_offset + len(self._buffer) <= self._skip_end and b"\nV" in self._buffer:
                yield from self._skip_block()
                scanned, last, blank = 0, 0, -1
                continue
            begin = 0
            for border in BORDER.finditer(self._buffer, scanned):
                end = border.start() + 1
                if blank >= 0 and self._buffer.find(b"\n\t", last, end) >= 0:
                    blank = -1  # the text continues after them
                last = end
                if self._is_blank(end):
                    blank = end if blank < 0 else blank
                    continue
                if blank >= 0:
                    yield self._piece(begin, blank)
                    begin, blank = blank, -1
                yield self._piece(begin, end)
                begin = end
            if begin == 0 and len(self._buffer) > MAX_BYTES:
                self._drop_bytes(self._skip_oversized_record())
                self._ahead, self._buffer = (
                    self._buffer,
                    b"",
                )  # data that came with its end is not processed yet
                scanned, blank = 0, -1
                continue
            self._drop_bytes(begin)
            last, blank = max(0, last - begin), blank - begin if blank >= 0 else -1
            # The last newline's successor is not here yet: check it again later.
            scanned = max(0, len(self._buffer) - 1)
        if blank >= 0 and self._buffer.find(b"\n\t", last) < 0:
            yield self._piece(0, blank)
            self._drop_bytes(blank)
        if self._buffer:
            piece = self._piece(0, len(self._buffer), is_last=True)
            yield piece
            if not piece.incomplete:
                self._drop_bytes(len(self._buffer))

    def _skip_block(self) -> Iterator[LogPiece]:
        end = (
            self._buffer.rfind(b"\nV") + 1
        )  # a record begins there, regardless of what precedes it
        begin = 0
        while begin < end:
            yield self._piece(begin, end)
            border = self.other.search(self._buffer, begin, end)
            begin = border.end() if border else end
        self._drop_bytes(end)

    def _piece(self, begin: int, end: int, *, is_last: bool = False) -> LogPiece:
        return LogPiece(self._buffer, begin, end, self._base_offset + begin, is_last)

    def _is_blank(self, position: int) -> bool:
        return self._buffer[position] == _NEWLINE or self._buffer.startswith(b"\r\n", position)

    def _drop_bytes(self, count: int) -> None:
        position, line = self._counted if self._counted[0] <= count else (0, self._base_line)
        self._base_line = line + self._buffer.count(b"\n", position, count)
        self._base_offset += count
        self._digest.update(memoryview(self._buffer)[:count])
        self._buffer = self._buffer[count:]
        self._counted = (0, self._base_line)

    def _skip_oversized_record(self) -> int:
        if self._base_offset >= self._counted_from:
            self._rejects.add("too_large", self._base_line, self._buffer[:400])
        while True:
            border = BORDER.search(self._buffer)
            if border:
                return border.start() + 1
            # Count its newlines and discard its bytes.
            self._base_line += self._buffer.count(b"\n", 0, len(self._buffer) - 1)
            self._counted = (0, self._base_line)
            self._base_offset += len(self._buffer) - 1
            self._digest.update(memoryview(self._buffer)[:-1])
            block = self._file.read(BLOCK_BYTES)
            if not block:
                return len(self._buffer)
            self._buffer = self._buffer[-1:] + block
