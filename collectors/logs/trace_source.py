"""A torch trace log as a source. For a recorded run it yields only the events that the hooks did
not see.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from compileboard.collectors.contract.events import CompileStarted, ConfigSeen, Event, Recompiled
from compileboard.collectors.contract.record_names import COMPILE_START
from compileboard.collectors.contract.rejects import OF_LAST_READING, IngestResult, Rejects
from compileboard.collectors.contract.values import clean_text
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.records import TorchRecord
from compileboard.collectors.logs.log_blocks import Readable
from compileboard.collectors.logs.log_head import HEAD_BYTES, read_head
from compileboard.collectors.logs.source import (
    Checkpoint,
    EventBatch,
    ImportedFile,
    LateFacts,
    RunSink,
    pump,
)
from compileboard.collectors.logs.streams import SourceDamaged
from compileboard.collectors.logs.trace_log import PART_END, LogClock, ReadStats, TraceLog
from compileboard.collectors.store.ingest.frames import ResetDetector
from compileboard.collectors.store.ingest.ingestor import HELD_WHOLE
from compileboard.collectors.store.ingest.source_files import LogRow

BATCH_EVENTS = 2_000
BATCH_BYTES = 8 << 20  # The size of texts after which a batch ends.
# Stacks and recompiles: each may be a row, and other writers wait for a batch.
BATCH_PARTS = 20_000


@dataclass(frozen=True)
class RecordLines:
    lines: dict[int, int | None]

    def __call__(self, event: Event) -> int | None:
        begins = [offset for offset in self.lines if offset <= event.sequence]
        return self.lines[max(begins)] if begins else None


class TraceSource:
    def __init__(
        self,
        file: Readable,
        imported: ImportedFile,
        clock: LogClock,
        decoder: Decoder,
        row: LogRow | None,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        self.file = imported
        self.offset_bytes = row.end_offset_bytes if row else 0
        self.last_us: int | None = None
        self.rejects = Rejects()  # Rejects of all readings; a torn end only from the last one.
        self.unread_beside = Rejects()  # unreadable files, counted with this one
        self._decoder = decoder
        self._stats = ReadStats()
        self._log = TraceLog(
            file,
            imported.process_id,
            clock,
            start_offset=self.offset_bytes,
            stats=self._stats,
            texts=imported.payloads == "kept",
            share=share,
        )
        self._lines: dict[int, int | None] = {}  # The lines of the batch's records, by offset.
        self._batch_rejects = Rejects()
        self._stored_count = 0  # The number of records encountered.
        self._is_broken = False

    def read(self) -> Iterator[EventBatch]:
        """Yield new events. A last batch, which may be empty, contains the error that ended the
        log.
        """
        if self._is_broken:
            return
        events: list[Event] = []
        text_bytes = part_count = 0
        self._lines = {}
        try:
            for captured in self._log.read():
                if captured is PART_END:
                    yield self._batch(events, self._log.part_end)
                    events, text_bytes, part_count, self.last_us = [], 0, 0, None
                    self._lines = {}
                    continue
                made = self.decode(captured)
                events += made
                self._lines[captured.sequence] = self._log.line
                self.last_us = captured.time_us
                if captured.logged is not None and captured.logged.state == "kept":
                    text_bytes += captured.logged.size_bytes or 0
                for event in made:
                    part_count += _count_parts(event)
                if (
                    len(events) >= BATCH_EVENTS
                    or text_bytes >= BATCH_BYTES
                    or part_count >= BATCH_PARTS
                ):
                    yield self._batch(events, captured.sequence + 1)
                    events, text_bytes, part_count = [], 0, 0
                    self._lines = {}
        except (SourceDamaged, EOFError) as error:
            self._stats.rejects.add("damaged_file", None, str(error))
        if self._log.is_elsewhere:
            return
        last = self._batch(
            events + self.closing_events(), max(self._stats.end_offset, self.offset_bytes)
        )
        (position,) = last.checkpoints
        if position.end_bytes == self._stats.end_offset:
            last.checkpoints = [replace(position, digest=self._stats.end_digest)]
        last.rejects.add_all(self.unread_beside)
        yield last

    def decode(self, captured: TorchRecord) -> list[Event]:
        return self._decoder.decode(captured, self._report)

    def _report(self, reason: str) -> None:
        self._stats.rejects.add("bad_field", self._log.line, reason)

    def closing_events(self) -> list[Event]:
        return []

    def late_facts(self) -> Mapping[str, LateFacts]:
        return {}

    def commit(self, batch: EventBatch, result: IngestResult) -> None:
        (position,) = batch.checkpoints
        self.offset_bytes = position.end_bytes
        self._stored_count += batch.record_count
        self._batch_rejects.add_refused(result.refused, batch.line_of)
        for kind in OF_LAST_READING:
            self.rejects.by_kind.pop(kind, None)
        self.rejects.add_all(self._batch_rejects)

    def rewind(self) -> None:
        self._is_broken = True

    def _batch(self, events: list[Event], end_bytes: int) -> EventBatch:
        stats = self._stats
        begin_bytes = max(self.offset_bytes, self._log.part_begin)
        self._batch_rejects = Rejects(stats.rejects.by_kind)
        stats.rejects.by_kind = {}
        return EventBatch(
            events,
            [Checkpoint(self.file.process_id, begin_bytes, end_bytes, stats.end_line - 1)],
            self._batch_rejects.copy(),
            self.file,
            record_count=stats.records - self._stored_count,
            last_us=self.last_us,
            late=self.late_facts(),
            line_of=RecordLines(self._lines),
        )


def _count_parts(event: Event) -> int:
    if isinstance(event, CompileStarted):
        return len(event.stack)
    return len(event.guards) if isinstance(event, Recompiled) else 0


class GenerationTracker:
    def __init__(self) -> None:
        self._resets: list[int] = []  # sequences of starts that followed a reset()
        self._generation = ResetDetector()

    def begin_logged(self, captured: TorchRecord) -> None:
        if captured.compile_id is not None and self._generation.trace(
            captured.compile_id, captured.attempt
        ):
            self._resets.append(captured.sequence)

    def generation_of(self, event: Event) -> int:
        return bisect_right(self._resets, event.sequence)


class HookedTrace(TraceSource):
    def __init__(
        self,
        file: Readable,
        imported: ImportedFile,
        clock: LogClock,
        decoder: Decoder,
        row: LogRow | None,
    ) -> None:
        super().__init__(file, imported, clock, decoder, row)
        self.generations = GenerationTracker()

    def decode(self, captured: TorchRecord) -> list[Event]:
        if captured.name == COMPILE_START:
            self.generations.begin_logged(captured)
        events = super().decode(captured)
        return [
            event
            for event in events
            if type(event) in HELD_WHOLE and not isinstance(event, ConfigSeen)
        ]


def read_hooked_log(sink: RunSink, decoder: Decoder, path: Path, process_id: str) -> None:
    """Read new records of a process's log into its run. Raises StoreError or OSError."""
    with path.open("rb") as file:
        head = read_head(file.read(HEAD_BYTES), int(path.stat().st_mtime * 1e6))
        file.seek(0)
        imported = ImportedFile(process_id, clean_text(path.name), clean_text(path.name))
        source = HookedTrace(file, imported, head.clock, decoder, sink.find_log(process_id))
        pump(source, sink.open_log(source.generations.generation_of))
