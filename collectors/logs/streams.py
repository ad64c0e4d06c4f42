"""Streams of an imported log, with damage and limits.

If the underlying generator raises, the stream ends like a file and stores the error. Data before it
is delivered first, through any number of layers, and only the outermost stream raises.
"""

from __future__ import annotations

import io
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

CHUNK_BYTES = 256 * 1024
RATIO_FROM_BYTES = (
    16 << 20
)  # a short repetitive log may be packed a thousand times without being an attack
_MAX_NAME_LENGTH = 300


class NoSuchLog(ValueError):
    pass


class SourceDamaged(ValueError):
    pass


class LimitExceeded(ValueError):
    """An import exceeds a limit, named by `limit` as in `import --limit-rows`."""

    def __init__(self, message: str, limit: str = "") -> None:
        super().__init__(message)
        self.limit = limit


def clean_name(text: str) -> str:
    """Make a name, which may contain any bytes, printable on one line."""
    text = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )
    return text if len(text) <= _MAX_NAME_LENGTH else "…" + text[1 - _MAX_NAME_LENGTH :]


class Closable(Protocol):
    def close(self) -> object: ...


class ByteReader(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


@dataclass(frozen=True)
class Limits:
    total_bytes: int | None = None
    ratio: float | None = None
    entries: int | None = None
    records: int | None = None
    rows: int | None = None


@dataclass
class StreamLimits:
    """Limits on the streams of one import.

    A log opened twice counts once. Bytes skipped to reach a log count too, in each layer.
    """

    limits: Limits
    _reached: dict[tuple[str, int], int] = field(default_factory=dict)
    _out_of: dict[str, int] = field(default_factory=dict)
    _total: int = 0
    _entry_count: int = 0

    def add_entries(self, file: str, count: int = 1) -> None:
        self._entry_count += count
        self.check_entries(file, self._entry_count)

    def check_entries(self, file: str, count: int) -> None:
        if self.limits.entries is not None and count > self.limits.entries:
            raise LimitExceeded(
                f"{file}: {count:,} entries or more, the limit is {self.limits.entries:,} "
                "entries for all "
                "archives together; pack only the logs.",
                "entries",
            )

    def layer(self, file: str, file_bytes: int | None) -> Callable[[int], None]:
        return lambda position: self._check(file, file_bytes, position, position)

    def log(self, file: str, number: int, file_bytes: int | None) -> Callable[[int], None]:
        def reached(position: int) -> None:
            new = max(0, position - self._reached.get((file, number), 0))
            self._reached[file, number] = self._reached.get((file, number), 0) + new
            self._out_of[file] = self._out_of.get(file, 0) + new
            self._total += new
            self._check(file, file_bytes, self._out_of[file], self._total)

        return reached

    def _check(self, file: str, file_bytes: int | None, out_bytes: int, total_bytes: int) -> None:
        most, ratio = self.limits.total_bytes, self.limits.ratio
        if most is not None and total_bytes > most:
            raise LimitExceeded(
                f"{file}: it has unpacked to {total_bytes:,} bytes so far, "
                f"the limit is {most:,} bytes for all logs together; import fewer logs at once.",
                "bytes",
            )
        if ratio is None or file_bytes is None or out_bytes <= RATIO_FROM_BYTES:
            return
        if out_bytes > ratio * max(file_bytes, 1):
            raise LimitExceeded(
                f"{file}: {file_bytes:,} bytes unpacked to {out_bytes:,}, which is more than "
                f"{ratio:g} times as much, "
                "the limit; unpack the log and import it as it is.",
                "ratio",
            )


class ChunkStream(io.RawIOBase):
    def __init__(
        self,
        chunks: Iterable[bytes],
        closing: Iterable[Closable] = (),
        watch: Callable[[int], None] | None = None,
        damage: ValueError | None = None,
    ) -> None:
        super().__init__()
        self._chunks: Iterator[bytes] = iter(chunks)
        self._closing = tuple(closing)
        self.watch = watch
        self._pending = memoryview(b"")
        self.damage = damage
        self.position = 0  # bytes received, some of them still pending

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        if not self._pending and not self._advance():
            return 0
        size = min(len(view), len(self._pending))
        view[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size

    def peek(self, size: int) -> bytes:
        held = bytes(self._pending)
        while len(held) < size and self._advance():
            held += self._pending
        self._pending = memoryview(held)
        return held[:size]

    def check(self) -> None:
        if self.damage is not None:
            raise self.damage

    def close(self) -> None:
        if not self.closed:
            super().close()
            for closing in self._closing:
                closing.close()

    def _advance(self) -> bool:
        if self.damage is not None:
            return False
        try:
            chunk = next((candidate for candidate in self._chunks if candidate), None)
            self.position += len(chunk or b"")
            if self.watch is not None:
                self.watch(self.position)
            if chunk is None:
                return False
        except ValueError as error:
            self.damage = error
            return False
        except OSError as error:
            self.damage = SourceDamaged(
                f"Reading stopped: {error.strerror or error}; copy the file again."
            )
            return False
        self._pending = memoryview(chunk)
        return True


class LogStream(io.BufferedReader):
    def __init__(self, chunks: ChunkStream) -> None:
        super().__init__(chunks, CHUNK_BYTES)
        self._source = chunks

    def __iter__(self) -> Iterator[bytes]:
        # Lines come from C code: going through __next__ below takes twice as long.
        yield from iter(super().readline, b"")
        self._source.check()

    def __next__(self) -> bytes:
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def read(self, size: int | None = -1, /) -> bytes:
        return self._checked(super().read(size), size)

    def read1(self, size: int = -1, /) -> bytes:
        return self._checked(super().read1(size), size)

    def readline(self, size: int | None = -1, /) -> bytes:
        return self._checked(super().readline(size), size)

    def readinto(self, buffer: Any, /) -> int:
        return self._counted(super().readinto(buffer), buffer)

    def readinto1(self, buffer: Any, /) -> int:
        return self._counted(super().readinto1(buffer), buffer)

    def _checked(self, data: bytes, size: int | None) -> bytes:
        if not data and size != 0:
            self._source.check()
        return data

    def _counted(self, count: int, buffer: Any) -> int:
        if not count and len(buffer):
            self._source.check()
        return count


def read_chunks(file: ByteReader, size: int | None = None) -> Iterator[bytes]:
    left = size
    while left is None or left > 0:
        chunk = file.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left))
        if not chunk:
            return
        left = None if left is None else left - len(chunk)
        yield chunk


class SpooledInput:
    """An unnamed temporary file for an archive on standard input."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)
        self.size_bytes = 0

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = os.write(self._descriptor, view)
            self.size_bytes += written
            view = view[written:]

    def open(self) -> io.RawIOBase:
        return _SpooledFile(self)

    def read_at(self, offset: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, offset)


class _SpooledFile(io.RawIOBase):
    def __init__(self, spooled: SpooledInput) -> None:
        super().__init__()
        self._spooled = spooled
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {
            os.SEEK_SET: 0,
            os.SEEK_CUR: self._position,
            os.SEEK_END: self._spooled.size_bytes,
        }[whence]
        if start + offset < 0:
            raise OSError("a place before the file's start")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        data = self._spooled.read_at(self._position, len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
