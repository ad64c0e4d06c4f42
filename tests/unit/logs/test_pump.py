"""One pump for every source: what a sink did not take is read again, and what it took is not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from compileboard.collectors.contract.events import Event
from compileboard.collectors.contract.rejects import IngestResult
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.logs.source import EventBatch, pump
from compileboard.collectors.observe.spool_writer import Spool
from compileboard.collectors.record.spool_source import SpoolSource


@dataclass
class ListSink:
    """A sink into a list; the batch with number `fails_at` is refused once."""

    fails_at: int = 0
    batches: list[EventBatch] = field(default_factory=list)
    asked_count: int = 0

    def ingest(self, batch: EventBatch) -> IngestResult:
        self.asked_count += 1
        if self.asked_count == self.fails_at:
            raise OSError("away")
        self.batches.append(batch)
        return IngestResult(new_count=len(batch.events))

    @property
    def events(self) -> list[Event]:
        return [event for batch in self.batches for event in batch.events]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a spool of two processes, each with five events and a line that is not a record."""
    monkeypatch.setattr("compileboard.collectors.record.spool_source.BATCH_EVENTS", 2)
    for _ in range(2):
        spool = Spool(str(tmp_path), "RUN", "t.db", lambda: {"run_id": "RUN", "pid": 1})
        for number in range(4):
            spool.write(
                "cudagraph_skip", {"reason": "cpu device"}, context=[None, number, 0, 0, None]
            )
        spool.close()
        with (tmp_path / f"{spool.process_id}.jsonl").open("ab") as file:
            file.write(b"no record\n")
    return tmp_path


@pytest.mark.parametrize("fails_at", range(1, 6))
def test_a_batch_that_was_not_stored_is_read_again_and_no_other(
    folder: Path, fails_at: int
) -> None:
    source, sink = SpoolSource(folder, Decoder()), ListSink(fails_at)
    with pytest.raises(OSError, match="away"):
        pump(source, sink)
    assert len(sink.batches) == fails_at - 1
    pump(source, sink)
    numbers = [(event.process_id, event.sequence) for event in sink.events]
    assert len(numbers) == len(set(numbers)) == 10
    assert [reject.total for reject in source.reader.rejects.values()] == [1, 1], (
        "each bad line is counted once"
    )


def test_checkpoints_of_batches_follow_one_another_to_the_end_of_each_file(folder: Path) -> None:
    sink = ListSink()
    pump(SpoolSource(folder, Decoder()), sink)
    ends: dict[str, int] = {}
    for batch in sink.batches:
        for position in batch.checkpoints:
            assert position.begin_bytes == ends.get(position.file_key, 0) < position.end_bytes
            ends[position.file_key] = position.end_bytes
    first, last = sorted(folder.glob("*.jsonl"))
    assert ends == {
        first.name: first.stat().st_size,
        last.name: last.stat().st_size - len(b"no record\n"),
    }


def test_what_is_raised_between_two_batches_ends_the_pump_behind_the_stored_one(
    folder: Path,
) -> None:
    source, sink = SpoolSource(folder, Decoder()), ListSink()

    def pause(batch: EventBatch, result: IngestResult) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pump(source, sink, pause)
    assert len(sink.events) == 2
    pump(source, sink)
    assert len(sink.events) == 10
