"""A run's spool as a source: records of the hooks, and the journal of our own commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from compileboard.collectors.contract.events import Event
from compileboard.collectors.contract.rejects import IngestResult
from compileboard.collectors.contract.spool_format import JOURNAL_NAME, RECORDS_SUFFIX
from compileboard.collectors.decode import break_texts as break_registry
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.records import TorchRecord
from compileboard.collectors.logs.source import Checkpoint, EventBatch
from compileboard.collectors.record.spool import FilePosition, SpoolReader, read_journal

BATCH_EVENTS = 500


class SpoolSource:
    """Events of a spool. Every reader starts at the beginning, because events are identified by
    process and number.

    `own_process_id` is the process of our own commands; `load_registry` is called with the path of
    torch's graph-break registry.
    """

    def __init__(
        self,
        folder: Path,
        decoder: Decoder,
        *,
        keep_examples: bool = True,
        own_process_id: str = "",
        load_registry: Callable[[str], object] = break_registry.load_registry,
    ) -> None:
        self.reader = SpoolReader(folder, keep_examples)
        self._decoder = decoder
        self._own_process_id = own_process_id
        self._load_registry = load_registry
        self._mark = self.reader.mark()
        # When which process first wrote to each trace file; torch up to 2.12 shares it with forks.
        self.trace_writers: dict[str, tuple[int, str]] = {}

    def read(self) -> Iterator[EventBatch]:
        events: list[Event] = []
        for decoded in self._iterate_events():
            events += decoded
            if len(events) >= BATCH_EVENTS:
                yield EventBatch(events, self._checkpoints())
                events = []
        if events:
            yield EventBatch(events, self._checkpoints())

    def commit(self, batch: EventBatch, result: IngestResult) -> None:
        self.count_unstored(result)
        self._mark = self.reader.mark()

    def rewind(self) -> None:
        self.reader.rewind(self._mark)

    def count_unstored(self, result: IngestResult) -> None:
        for refused in result.refused:
            self._reject(refused.event, "refused", f"{refused.event.KIND}: {refused.reason}")
        for event in result.clashing:
            if (
                event.sequence >= 0 and event.process_id != self._own_process_id
            ):  # ours may be sent again
                self._reject(event, "number_taken", event.KIND)

    def _checkpoints(self) -> list[Checkpoint]:
        committed = self._mark.positions
        return [
            Checkpoint(
                name, committed.get(name, FilePosition()).offset, position.offset, position.line
            )
            for name, position in self.reader.positions.items()
            if position != committed.get(name)
        ]

    def _iterate_events(self) -> Iterator[list[Event]]:
        for captured in self.reader.read():
            yield self._decode(captured)
        for event in read_journal(self.reader):
            yield [event]

    def _decode(self, captured: TorchRecord) -> list[Event]:
        registry_path = captured.extra.get("registry")
        if isinstance(registry_path, str):
            self._load_registry(registry_path)
        trace_name = captured.extra.get("trace")
        if isinstance(trace_name, str):
            writer = (captured.time_us, captured.process_id)
            self.trace_writers[trace_name] = min(writer, self.trace_writers.get(trace_name, writer))
        try:
            return self._decoder.decode(
                captured, lambda what: self._reject(captured, "bad_field", what)
            )
        except Exception as error:
            self._reject(captured, "not_decoded", f"{type(error).__name__}: {error}")
            return []

    def _reject(self, record: TorchRecord | Event, kind: str, reason: str) -> None:
        is_own = record.process_id == self._own_process_id
        file_name = JOURNAL_NAME if is_own else record.process_id + RECORDS_SUFFIX
        self.reader.reject(file_name, kind, example=f"record {record.sequence}: {reason}")
