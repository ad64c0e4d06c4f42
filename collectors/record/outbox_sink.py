"""Write a run's events into the outbox, from which the sender sends them to a server."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from compileboard.collectors.contract.events import (
    Compiled,
    CompileFailed,
    CompileStarted,
    Event,
    GraphBroke,
    ProcessStarted,
    Recompiled,
    RunEnded,
    RunStarted,
)
from compileboard.collectors.contract.rejects import IngestResult, RefusedEvent, Rejects
from compileboard.collectors.fixes.fix import SourceLines
from compileboard.collectors.logs.source import EventBatch
from compileboard.collectors.logs.sqlite_sink import SqliteSink
from compileboard.collectors.push.outbox import OutboxQuota, OutboxStream
from compileboard.collectors.push.sender import spawn_sender
from compileboard.collectors.push.target import Target
from compileboard.collectors.store.connection import StoreError, StoreMoved
from compileboard.collectors.store.ingest.frames import ResetDetector
from compileboard.collectors.store.ingest.source_files import LogRow
from compileboard.collectors.wire.lines import (
    MAX_LINE_BYTES,
    MAX_PIECES,
    MAX_TEXT_BYTES,
    TRACE_PIECE_BYTES,
    checksum_of,
    digest_of,
    dump_line,
)
from compileboard.collectors.wire.marks import (
    Heartbeat,
    LogRead,
    Mark,
    SourceRead,
    SpoolRejects,
    StreamEnd,
    TracePieces,
    dump_mark,
)
from compileboard.version import VERSION

SILENT_S = 5.0
GenerationOf = Callable[[Event], int | None]  # None for events of the hooks.


class OutboxSink:
    """The outbox as the sink of one run, as one stream for the recorder's lifetime.

    Batches are also stored in a local `database` for commands that read it. Raises StoreError.
    """

    def __init__(
        self,
        root: Path,
        run_id: str,
        target: Target,
        max_bytes: int,
        database: str = "",
        busy_timeout_ms: int = 0,
    ) -> None:
        self.root = root
        self.run_id = run_id
        self.target = target
        # The run was deleted on the server, so nothing more is written.
        self.is_deleted = False
        self.lost_count = 0  # events without space
        self.event_count = 0
        self._beside = (
            SqliteSink.open(database, run_id, busy_timeout_ms=busy_timeout_ms) if database else None
        )
        self._room = OutboxQuota(root, max_bytes)
        try:
            self._stream = OutboxStream(root, run_id, uuid.uuid4().hex, target)
        except OSError as error:
            if self._beside is not None:
                self._beside.close()
            raise StoreError(
                f"the outbox {root} cannot be written: {error.strerror or error}. Set "
                "COMPILEBOARD_HOME to a folder on a local disk that may be written."
            ) from error
        self._checksum = 0
        self._written_s = time.monotonic()
        self._processes: dict[str, ProcessStarted] = {}
        self._recompiles: Counter[str] = Counter()
        self._counts: Counter[type[Event]] = Counter()
        self._compile_count = 0
        self._compiles: dict[
            str, tuple[ResetDetector, set[str]]
        ] = {}  # by process: the ids since its last reset()
        self._logs: dict[str, LogRead] = {}
        self._traces: dict[str, list[str]] = {}
        self._write([dump_mark(Heartbeat(VERSION))])
        with suppress(OSError):  # retried with each heartbeat
            spawn_sender(root)

    def ingest(self, batch: EventBatch) -> IngestResult:
        if self._beside is not None:
            self._beside.ingest(batch)
        return self._write_events(batch.events, lambda _event: None)

    def _write_events(self, events: Sequence[Event], generation_of: GenerationOf) -> IngestResult:
        if self.is_deleted:
            return IngestResult(deleted_run=True)
        result = IngestResult()
        lines = []
        for event in events:
            self._track_event(event)
            try:
                lines.append(dump_line(event, self._save_text, generation_of(event)))
            except (TypeError, ValueError, RecursionError) as error:
                result.refused.append(RefusedEvent(event, f"{type(error).__name__}: {error}"[:200]))
                continue
            if len(lines[-1]) > MAX_LINE_BYTES:
                result.refused.append(RefusedEvent(event, f"more than {MAX_LINE_BYTES >> 20} MiB"))
                lines.pop()
        is_needed = any(isinstance(event, (RunStarted, RunEnded)) for event in events)
        result.new_count = self._write(lines, is_needed=is_needed)
        self.lost_count += len(lines) - result.new_count
        self.event_count += result.new_count
        return result

    def _track_event(self, event: Event) -> None:
        self._counts[type(event)] += 1
        if isinstance(event, ProcessStarted):
            self._processes[event.process_id] = event
        elif isinstance(event, Recompiled):
            self._recompiles[event.process_id] += 1
        if (
            isinstance(event, (CompileStarted, Compiled, CompileFailed, GraphBroke, Recompiled))
            and event.compile_id
        ):
            generation, compile_ids = self._compiles.setdefault(
                event.process_id, (ResetDetector(), set())
            )
            if isinstance(event, CompileStarted) and generation.trace(
                event.compile_id, event.attempt
            ):
                compile_ids.clear()
            self._compile_count += (
                event.compile_id not in compile_ids
            )  # a compile at the recompile limit never starts
            compile_ids.add(event.compile_id)

    def _save_text(self, digest: str, body: bytes) -> None:
        if len(body) <= MAX_TEXT_BYTES:
            self._stream.save_text(
                digest, body, self._room
            )  # without space, the sender tells the server

    def _write(self, lines: Sequence[bytes], *, is_needed: bool = False) -> int:
        size_bytes = sum(map(len, lines))
        if not (self._room.try_reserve(size_bytes) or is_needed):
            return 0
        written_count = self._stream.append(list(lines))
        if written_count < len(lines):  # the disk is full: delete texts
            self._room.drop_texts(size_bytes)
            written_count += self._stream.append(list(lines[written_count:]))
        for line in lines[:written_count]:
            self._checksum = checksum_of(line, self._checksum)
        if written_count:
            self._written_s = time.monotonic()
        return written_count

    def _write_mark(self, mark: Mark, *, is_needed: bool = False) -> None:
        line = dump_mark(mark)
        if not self.is_deleted and len(line) <= MAX_LINE_BYTES:
            self._write([line], is_needed=is_needed)

    def save_source(self, excerpts: Sequence[SourceLines]) -> None:
        if excerpts:
            self._write_mark(
                SourceRead(
                    [
                        (excerpt.file, excerpt.first_line, list(excerpt.lines))
                        for excerpt in excerpts
                    ]
                )
            )

    def save_run_rejects(self, rejects: Mapping[str, Rejects]) -> None:
        for name, of_file in rejects.items():
            self._write_mark(SpoolRejects(name, of_file))

    def send_heartbeat(self) -> None:
        if time.monotonic() - self._written_s >= SILENT_S:
            self._write_mark(Heartbeat(VERSION, self.lost_count))
        with suppress(OSError):
            spawn_sender(self.root)
        if self._beside is not None:
            self._beside.send_heartbeat()

    def find_log(self, process_id: str) -> LogRow | None:
        log = self._logs.get(process_id)
        return (
            None
            if log is None
            else LogRow(process_id, self.run_id, log.end_bytes, "kept", redacted=False)
        )

    def open_log(self, generation_of: GenerationOf) -> LogOutboxSink:
        return LogOutboxSink(self, generation_of)

    def ingest_log(self, batch: EventBatch, generation_of: GenerationOf) -> IngestResult:
        assert batch.file is not None
        (position,) = batch.checkpoints
        process_id = batch.file.process_id
        if process_id not in self._logs:
            self._logs[process_id] = LogRead(process_id, batch.file.name)
            self._write_mark(self._logs[process_id])
        result = self._write_events(batch.events, generation_of)
        self._logs[process_id] = self._logs[process_id].advance(
            position.end_bytes,
            position.line_count,
            batch.record_count,
            batch.last_us,
            batch.rejects,
        )
        self._write_mark(self._logs[process_id])
        return result

    def save_trace_file(self, path: Path) -> None:
        digests: list[str] = []
        size_bytes = 0
        with path.open("rb") as file:
            while piece := file.read(TRACE_PIECE_BYTES):
                digests.append(digest_of(piece))
                size_bytes += len(piece)
                self._save_text(digests[-1], piece)
        if self._traces.get(path.name) != digests:
            self._traces[path.name] = digests
            for first in range(0, len(digests), MAX_PIECES):
                pieces = digests[first : first + MAX_PIECES]
                self._write_mark(TracePieces(path.name, size_bytes, first, pieces))

    def count_compiles(self) -> tuple[int, int, int]:
        return self._compile_count, self._counts[GraphBroke], self._counts[Recompiled]

    def count_recompiles(self, task: str) -> int:
        by_rank: Counter[int | None] = Counter()
        for process in self._processes.values():
            if process.task == task:
                by_rank[process.rank] += self._recompiles[process.process_id]
        return max(by_rank.values(), default=0)

    def check_file(self) -> None:
        """Raises StoreMoved if the server needs a new stream, or no more data of the run."""
        reason = self._stream.read_stop()
        self.is_deleted = self.is_deleted or reason == "deleted"
        if reason == "restart":
            raise StoreMoved(
                f"{self.target.server} has lost data of run {self.run_id}; all is sent anew."
            )
        if not self._stream.exists():
            raise StoreMoved(
                f"{self.root / self.run_id} was removed while it was being recorded into."
            )

    def check_readable(self) -> None:
        """Do nothing, because the server compares size and checksum."""

    def set_busy_timeout(self, busy_timeout_ms: int) -> None:
        """Do nothing, because the stream has no other writers."""

    def index(self, max_s: float) -> None:
        """Do nothing, because the server indexes the run."""

    def finish(self) -> None:
        self._write_mark(
            StreamEnd(self._stream.size_bytes, self._checksum, self.lost_count), is_needed=True
        )

    def close(self) -> None:
        self._stream.close()
        if self._beside is not None:
            self._beside.close()


class LogOutboxSink:
    def __init__(self, outbox: OutboxSink, generation_of: GenerationOf) -> None:
        self._outbox = outbox
        self._generation_of = generation_of

    def ingest(self, batch: EventBatch) -> IngestResult:
        return self._outbox.ingest_log(batch, self._generation_of)
