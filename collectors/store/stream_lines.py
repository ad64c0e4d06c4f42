"""Parse the lines of one request before taking the write lock."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from compileboard.collectors.contract.events import (
    ArtifactSeen,
    ConfigSeen,
    Event,
    Json,
    ReproCaptured,
)
from compileboard.collectors.contract.fingerprints import config_hash
from compileboard.collectors.contract.rejects import Rejects
from compileboard.collectors.contract.values import MAX_EXACT_INTEGER, fit_event
from compileboard.collectors.store.codec import pack, unpack, unpack_bytes
from compileboard.collectors.store.ingest.ingestor import HELD_WHOLE
from compileboard.collectors.store.ingest.payload_writer import TextReference
from compileboard.collectors.store.stream_rows import Stream, find_texts, list_dropped, read_text
from compileboard.collectors.wire.lines import (
    MAX_LINE_BYTES,
    MAX_PIECES,
    TRACE_PIECE_BYTES,
    UnknownLine,
    WireError,
    checksum_of,
    list_digests,
    load_line,
    read_line,
)
from compileboard.collectors.wire.marks import Mark, StreamEnd, TracePieces, load_mark

try:
    import orjson

    parse: Callable[[bytes], Any] | None = orjson.loads
except ImportError:
    parse = None

MAX_LINES = 20_000
MAX_TEXT_BYTES = 256 << 20  # Texts read whole for one request; artifacts' texts are not.


class TooManyLines(Exception):
    pass


class StreamDiffers(Exception):
    """The stored stream differs from the client's."""


class TextsMissing(Exception):
    def __init__(self, digests: list[str]) -> None:
        super().__init__(f"{len(digests)} texts have to come first")
        self.digests = digests


@dataclass
class StreamLines:
    stream: Stream
    size_bytes: int
    checksum: int
    events: list[Event] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    rejects: Rejects = field(default_factory=Rejects)
    generations: dict[int, int] = field(default_factory=dict)  # by the id() of an event of a log
    packed: dict[int, bytes] = field(
        default_factory=dict
    )  # what the store keeps of an event, by its id()
    digests: set[str] = field(default_factory=set)
    # The rows of those that rows will point to, by digest; of the others a copy is stored.
    referred: dict[str, int] = field(default_factory=dict)
    pieces: dict[int, list[bytes]] = field(
        default_factory=dict
    )  # Pieces of a kept trace log, by the id() of its mark.
    dropped_text_count: int = 0


def read_lines(connection: sqlite3.Connection, stream: Stream, lines: bytes) -> StreamLines:
    """Parse whole lines that continue a stream; invalid ones are rejects.

    Raises UnknownLine, TooManyLines, TextsMissing or StreamDiffers.
    """
    read = StreamLines(stream, len(lines), checksum_of(lines, stream.checksum))
    bodies = list(_read_bodies(read, lines))
    texts = _Texts(connection, stream.run_id, read.digests)
    for begin, line, body in bodies:
        try:
            if "mark" in body:
                _add_mark(read, load_mark(body), lines[:begin], texts)
            else:
                _add_event(read, line, body, texts)
        except UnknownLine:
            raise
        except ValueError as error:
            read.rejects.add("bad_event", None, str(error))
    return read


def _read_bodies(
    read: StreamLines, lines: bytes
) -> Iterable[tuple[int, bytes, Mapping[str, Json]]]:
    line_count = lines.count(b"\n")
    if line_count > MAX_LINES:
        raise TooManyLines(f"{line_count:,} lines; expected {MAX_LINES:,} at most in one request")
    begin = 0
    for line in lines.split(b"\n")[:-1]:
        try:
            if len(line) > MAX_LINE_BYTES:
                raise WireError(
                    f"a line of {len(line):,} bytes; expected {MAX_LINE_BYTES:,} at most"
                )
            body = read_line(line, parse) if parse else read_line(line)
            digests = list_digests(body)
        except UnknownLine:
            raise
        except WireError as error:
            read.rejects.add("bad_event", None, str(error))
        else:
            read.digests.update(digests)
            yield begin, line, body
        begin += len(line) + 1


class _Texts:
    def __init__(self, connection: sqlite3.Connection, run_id: str, digests: set[str]) -> None:
        self._connection = connection
        self.rows = find_texts(connection, digests)
        missing = digests - self.rows.keys()
        lacking = missing - list_dropped(connection, run_id, missing) if missing else missing
        if lacking:
            raise TextsMissing(sorted(lacking))
        self._texts: dict[str, str] = {}
        self._read_bytes = 0

    def pack_pieces(self, mark: TracePieces) -> list[bytes]:
        rows = [self.rows[digest] for digest in mark.pieces]
        if len(rows) > MAX_PIECES or any(row.size_bytes > TRACE_PIECE_BYTES for row in rows):
            raise WireError(
                f"{mark.name[:80]}: expected {MAX_PIECES} pieces of {TRACE_PIECE_BYTES:,} "
                "bytes at most"
            )
        self._count(sum(row.size_bytes for row in rows))
        return [zlib.compress(unpack_bytes(read_text(self._connection, row)), 6) for row in rows]

    def _count(self, size_bytes: int) -> None:
        self._read_bytes += size_bytes
        if self._read_bytes > MAX_TEXT_BYTES:
            raise TooManyLines(
                f"texts of more than {MAX_TEXT_BYTES >> 20} MiB; send fewer lines at once"
            )

    def find_reference(self, digest: str) -> str | None:
        row = self.rows.get(digest)
        return None if row is None else TextReference.of(row.id)

    def read(self, digest: str) -> str | None:
        row = self.rows.get(digest)
        if row is None:
            return None
        if digest not in self._texts:
            self._count(row.size_bytes)
            self._texts[digest] = unpack(read_text(self._connection, row))
        return self._texts[digest]


def _add_event(read: StreamLines, line: bytes, body: Mapping[str, Json], texts: _Texts) -> None:
    dropped_count = (
        sum(digest not in texts.rows for digest in list_digests(body)) if "texts" in body else 0
    )
    loaded = load_line(
        body, texts.find_reference if body["kind"] == ArtifactSeen.KIND else texts.read
    )
    event, notes = fit_event(loaded)
    if event is None or not event.process_id.isprintable():
        raise WireError(
            f"a {loaded.KIND} event has an impossible field: {'; '.join(notes) or 'process_id'}"
        )
    # Runs share a configuration by its hash.
    if (
        isinstance(event, ConfigSeen)
        and not dropped_count
        and config_hash(event.body) != event.config_hash
    ):
        raise WireError(
            f"a configuration is {config_hash(event.body)}, not {event.config_hash[:80]!r}"
        )
    generation = body.get("generation")
    if generation is not None:
        if type(generation) is not int or abs(generation) > MAX_EXACT_INTEGER:
            raise WireError(f"a {event.KIND} event of generation {str(generation)[:80]!r}")
        read.generations[id(event)] = generation
    if isinstance(event, (ArtifactSeen, ReproCaptured)):
        read.referred.update(
            {digest: texts.rows[digest].id for digest in list_digests(body) if digest in texts.rows}
        )
    if notes:
        read.rejects.add("bad_field", None, f"{event.KIND}: {'; '.join(notes)}")
    if event is loaded and type(event) not in HELD_WHOLE:
        read.packed[id(event)] = pack(line.decode())
    if not (isinstance(event, ConfigSeen) and dropped_count):  # no text is not that configuration
        read.events.append(event)
    read.dropped_text_count += dropped_count


def _add_mark(read: StreamLines, mark: Mark, before: bytes, texts: _Texts) -> None:
    stream = read.stream
    if isinstance(mark, StreamEnd):
        size_bytes, checksum = (
            stream.stored_bytes + len(before),
            checksum_of(before, stream.checksum),
        )
        if (mark.size_bytes, mark.checksum) != (size_bytes, checksum):
            raise StreamDiffers(
                f"{size_bytes:,} bytes are stored; the machine has {mark.size_bytes:,}, or others"
            )
    if isinstance(mark, TracePieces):
        lost_count = sum(digest not in texts.rows for digest in mark.pieces)
        read.dropped_text_count += lost_count
        if lost_count:
            return  # a log with a hole is none
        read.pieces[id(mark)] = texts.pack_pieces(mark)
    read.marks.append(mark)
