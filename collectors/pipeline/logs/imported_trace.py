from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compileboard.collectors.contract.events import ArtifactSeen, Event, ProcessStarted, SpanSeen
from compileboard.collectors.contract.rejects import IngestResult, Rejects
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.records import Captured
from compileboard.collectors.pipeline.source import EventBatch, ImportedFile, LateFacts
from compileboard.collectors.pipeline.trace_source import TraceSource
from compileboard.collectors.sources.log_clock import LogClock
from compileboard.collectors.sources.log_head import Head, PeekedFile, facts_of
from compileboard.collectors.sources.redact_records import redact_record
from compileboard.collectors.store.ingest.payloads import TextPacker
from compileboard.collectors.store.ingest.source_files import LEARNT_LATE, LogRow

STARTED_WITH = ("python_version", "torch_version", "torch_git", "cuda_version", "triton_version")


@dataclass
class DecodedBatch:
    batch: EventBatch
    rejects: Rejects  # without those of the files beside
    part: int  # of its log: several processes take its parts in turn

    def add_before(self, earlier: DecodedBatch) -> None:
        (begin,), (end,) = earlier.batch.checkpoints, self.batch.checkpoints
        self.batch.checkpoints = [replace(end, begin_bytes=begin.begin_bytes)]
        self.batch.record_count += earlier.batch.record_count
        for mine, others in (
            (self.batch.rejects, earlier.batch.rejects),
            (self.rejects, earlier.rejects),
        ):
            own = mine.copy()
            mine.by_kind = others.copy().by_kind
            mine.add_all(own)


class ImportedTrace(TraceSource):
    def __init__(
        self,
        source_path: Path | None,
        head: Head,
        file: PeekedFile | None,
        imported: ImportedFile,
        row: LogRow | None,
        *,
        run_id: str,
        decoder: Decoder,
        decoded: Iterable[DecodedBatch] | None = None,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        self.path = source_path
        self.learnt_bytes = 0  # of the beginning that was looked at
        self._head = head
        self._file = file
        self._run_id = run_id
        self._decoded = decoded
        self._packer: TextPacker | None = None
        super().__init__(file or io.BytesIO(), imported, head.clock, decoder, row, share)
        self._started: set[str] = set()
        self._facts: dict[str, Any] = {
            name: getattr(head, name) for name in LEARNT_LATE if name != "rank"
        }
        self._missing = {name for name, fact in self._facts.items() if fact is None}
        self._learnt: dict[str, Any] = {}  # what its beginning does not tell, since the last batch

    def read(self) -> Iterator[EventBatch]:
        if self._decoded is None:
            yield from super().read()
            return
        before: DecodedBatch | None = None
        for decoded in self._decoded:
            if before is not None:
                decoded.add_before(before)
            batch, self._batch_rejects = decoded.batch, decoded.rejects
            if batch.last_us is not None:
                self.last_us = batch.last_us
            for late in batch.late.values():
                self._facts |= {
                    name: fact for name, fact in late.facts.items() if self._facts.get(name) is None
                }
            batch.events = [event for event in map(self._begin_once, batch.events) if event]
            before = None if self._started else decoded  # no process is there yet whose log it is
            if before is None:
                yield batch

    def _begin_once(self, event: Event) -> Event | None:
        if not isinstance(event, ProcessStarted):
            return event
        if event.process_id in self._started:
            return None
        self._started.add(event.process_id)
        unknown = [
            name for name in STARTED_WITH if getattr(event, name) is None and self._facts.get(name)
        ]
        return replace(event, **{name: self._facts[name] for name in unknown}) if unknown else event

    def decode_ahead(self, packer: TextPacker) -> Iterator[DecodedBatch]:
        self._packer = packer
        for batch in super().read():
            rejects = self._batch_rejects.copy()
            self.commit(batch, IngestResult())
            packer.finish()
            yield DecodedBatch(batch, rejects, self._log.part)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def set_clock(self, clock: LogClock) -> None:
        if clock.is_set and not self._head.clock.is_set:
            self._log.set_clock(clock)

    def is_replaced(self) -> bool:
        assert self._file is not None
        try:
            now, held = os.stat(self.path or ""), os.fstat(self._file.fileno())
        except (OSError, ValueError):
            return True
        return (now.st_dev, now.st_ino) != (
            held.st_dev,
            held.st_ino,
        ) or now.st_size < self.offset_bytes

    def decode(self, captured: Captured) -> list[Event]:
        begun = [] if captured.process_id in self._started else [self._start(captured)]
        events = super().decode(redact_record(captured) if self.file.redacted else captured)
        if self._missing and type(events[0] if events else None) is not SpanSeen:
            self._learn(events)
        if self._packer is not None:
            for event in events:
                _pack_text(event, self._packer)
        return [*begun, *events] if begun else events

    def closing_events(self) -> list[Event]:
        return [] if self._started else [self._start(None)]

    def late_facts(self) -> dict[str, LateFacts]:
        facts, self._learnt = self._learnt, {}
        return {process_id: LateFacts(facts) for process_id in self._started} if facts else {}

    def _learn(self, events: list[Event]) -> None:
        for event in events:
            facts = facts_of(event, self._missing)
            for name in [name for name in self._missing if facts.get(name)]:
                self._facts[name] = self._learnt[name] = facts[name]
                self._missing.remove(name)

    def _start(self, captured: Captured | None) -> ProcessStarted:
        head = self._head
        process_id = captured.process_id if captured else self.file.process_id
        self._started.add(process_id)
        rank = captured.rank if captured and captured.rank is not None else head.rank
        return ProcessStarted(
            process_id=process_id,
            sequence=-1,
            time_us=captured.time_us if captured else head.first_us or 0,
            run_id=self._run_id,
            pid=self._log.pid or head.pid or 0,
            rank=rank,
            level="full" if self.file.payloads == "kept" else "light",
            **{name: self._facts[name] for name in STARTED_WITH},
            capabilities={"trace": "ok (read from its log)"},
        )


def _pack_text(event: Event, packer: TextPacker) -> None:
    if isinstance(event, ArtifactSeen | SpanSeen) and event.text is not None:
        vars(event)["text"] = packer.pack(
            event.text
        )  # nobody else has it yet, and a copy costs as much as decoding
