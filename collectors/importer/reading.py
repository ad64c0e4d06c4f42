"""Read one log of a run into its rows, from where it was last read."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from compileboard.collectors.decode.captured import Captured
from compileboard.collectors.events import CompileStarted, Event, ProcessStarted, Recompiled, SpanSeen
from compileboard.collectors.read.head import Head, PeekedFile, facts_of
from compileboard.collectors.read.log_clock import LogClock
from compileboard.collectors.read.rejects import Rejects
from compileboard.collectors.read.sources import LogSource, SourceDamaged
from compileboard.collectors.read.trace_log import ReadStats, TraceLog
from compileboard.collectors.record.traces import count_refused, list_rejects
from compileboard.collectors.rejects import OF_LAST_READING
from compileboard.collectors.store.connect import checkpoint
from compileboard.collectors.store.ingest import IngestResult
from compileboard.collectors.store.logs import LEARNT_LATE, LogRow, advance_log, complete_process, keep_rejects

if TYPE_CHECKING:
    from compileboard.collectors.importer.loader import Loader, Progress

BATCH_EVENTS = 2_000
BATCH_BYTES = 8 << 20  # of texts
BATCH_PARTS = 20_000  # of stacks and recompiles: each may be a row, and who else writes waits for a batch
CHECKPOINT_BYTES = 64 << 20  # of log: the write-ahead log must not grow with it


class Reading:
    """Read one log of a run, from where it was last read."""

    def __init__(self, loader: Loader, source: LogSource, head: Head, file: PeekedFile, row: LogRow | None) -> None:
        self._loader = loader
        self._source = source
        self.path = source.path
        self._head = head
        self._file = file
        self.offset = row.end_offset_bytes if row else 0
        self._started: set[str] = set()
        self._lines: dict[int, int | None] = {}  # of the batch's records, by their offsets
        self.learnt_bytes = 0  # of the beginning that was looked at
        self._payloads = loader._options.payloads and not (row and row.payloads == "left_out")
        self.first_us = head.first_us
        self.last_us: int | None = None
        self.met = Rejects()  # all that was, by any of its readings; a torn end only by the last
        self._stats = ReadStats()
        self._log = TraceLog(
            file,
            head.key or "",
            self._head.clock,
            start_offset=self.offset,
            stats=self._stats,
            texts=self._payloads,
        )
        self._checkpoint_at = CHECKPOINT_BYTES
        self._stored_count = 0  # of the records that this reading has met
        self._facts: dict[str, Any] = {name: getattr(head, name) for name in LEARNT_LATE if name != "rank"}
        self._missing = {name for name, fact in self._facts.items() if fact is None}
        self._learnt: dict[str, Any] = {}  # what its beginning does not tell, since the last batch

    def close(self) -> None:
        """Close the log."""
        self._file.close()

    def set_clock(self, clock: LogClock) -> None:
        """Take a clock that knows year and zone, where the first records told neither."""
        if clock.is_set and not self._head.clock.is_set:
            self._log.set_clock(clock)

    def is_replaced(self) -> bool:
        """Say whether its file is another one now, or was begun anew."""
        try:
            now, held = os.stat(self.path or ""), os.fstat(self._file.fileno())
        except (OSError, ValueError):
            return True
        return (now.st_dev, now.st_ino) != (held.st_dev, held.st_ino) or now.st_size < self.offset

    def read(self, progress: Progress) -> None:
        """Import what is new in the log."""
        loader, stats = self._loader, self._stats
        done, begun = loader.imported, self.offset
        before = done.record_count - stats.records
        batch: list[Event] = []
        text_bytes = part_count = 0
        self._lines.clear()
        try:
            for captured in self._log.read():
                if captured.process_id not in self._started:
                    batch.append(self._start(captured))
                events = loader.decode(captured, self._log)
                batch += events
                if self._missing and type(events[0] if events else None) is not SpanSeen:
                    self._learn(events)
                self._lines[captured.sequence] = self._log.line
                self.last_us = captured.time_us
                if captured.logged is not None and captured.logged.state == "kept":
                    text_bytes += captured.logged.size_bytes or 0
                part_count += sum(_count_parts(event) for event in events)
                if len(batch) >= BATCH_EVENTS or text_bytes >= BATCH_BYTES or part_count >= BATCH_PARTS:
                    self._write(batch, captured.sequence + 1)
                    done.record_count = before + stats.records
                    progress(captured.sequence)
                    batch, text_bytes, part_count = [], 0, 0
                    self._lines.clear()
        except (SourceDamaged, EOFError) as error:
            stats.rejects.add("damaged_file", None, str(error))
        self._write(batch, max(stats.end_offset, self.offset), final=True)
        done.record_count = before + stats.records
        done.read_bytes += max(0, self.offset - begun)
        progress(self.offset)

    def _write(self, batch: list[Event], end_offset: int, *, final: bool = False) -> None:
        loader, begin = self._loader, self.offset
        run_id = loader.imported.run_id
        if final and not self._started:
            batch.insert(0, self._start(None))
        values = {
            "process_id": self._head.key,
            "run_id": run_id,
            "name": self._source.label,
            "file_name": self._source.file_name,
            "size_bytes": end_offset,
            "end_offset_bytes": end_offset,
            "line_count": self._stats.end_line - 1,
            "record_count": self._stats.records - self._stored_count,
            "payloads": "kept" if self._payloads else "left_out",
            "redacted": int(loader._options.redact_source),
            "first_us": self._head.first_us,
            "last_us": self.last_us,
            "read_us": time.time_ns() // 1000,
        }

        def advance(result: IngestResult) -> None:
            advance_log(loader._connection, begin, values)
            for process_id in self._started if self._learnt else ():
                complete_process(loader._connection, process_id, run_id, self._learnt)
            rejects = Rejects({kind: replace(it) for kind, it in self._stats.rejects.by_kind.items()})
            count_refused(result.refused, rejects, self._line_of)
            if final and self is next(iter(loader._readings.values())):
                rejects.by_kind.update(loader.unread().by_kind)
            shown = list_rejects(rejects, examples=not loader._options.redact_source)
            keep_rejects(loader._connection, self._head.key or "", shown)

        result = loader._ingest(batch, advance)
        self._learnt = {}
        count_refused(result.refused, self._stats.rejects, self._line_of)
        loader.imported.event_count += result.new_count
        self.offset, self._stored_count = end_offset, self._stats.records
        for kind in OF_LAST_READING:
            self.met.by_kind.pop(kind, None)
        for kind, it in self._stats.rejects.by_kind.items():
            self.met.add(kind, it.first_line, it.example, it.count)
        self._stats.rejects.by_kind.clear()
        if end_offset >= self._checkpoint_at:
            checkpoint(loader._connection)
            self._checkpoint_at = end_offset + CHECKPOINT_BYTES

    def _learn(self, events: list[Event]) -> None:
        """Take what a record tells of torch, Python and the GPU, where the log's beginning did not."""
        for event in events:
            told = facts_of(event, self._missing)
            for name in [name for name in self._missing if told.get(name)]:
                self._facts[name] = self._learnt[name] = told[name]
                self._missing.remove(name)

    def _line_of(self, event: Event) -> int | None:
        """Say at which line the record begins that an event was made of; its configs stand just behind it."""
        begins = [offset for offset in self._lines if offset <= event.sequence]
        return self._lines[max(begins)] if begins else None

    def _start(self, captured: Captured | None) -> ProcessStarted:
        head = self._head
        process_id = captured.process_id if captured else head.key or ""
        self._started.add(process_id)
        rank = captured.rank if captured and captured.rank is not None else head.rank
        return ProcessStarted(
            process_id=process_id,
            sequence=-1,
            time_us=captured.time_us if captured else head.first_us or 0,
            run_id=self._loader.imported.run_id,
            pid=self._log.pid or head.pid or 0,
            rank=rank,
            level="full" if self._payloads else "light",
            **{name: self._facts[name] for name in ("python_version", "torch_version", "torch_git", "cuda_version")},
            capabilities={"trace": "ok (read from its log)"},
        )


def _count_parts(event: Event) -> int:
    """Count what of an event may be rows of their own."""
    if isinstance(event, CompileStarted):
        return len(event.stack)
    return len(event.guards) if isinstance(event, Recompiled) else 0
