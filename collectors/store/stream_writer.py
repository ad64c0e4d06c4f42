"""Store lines of streams, each request in one transaction with the stream's new position."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.contract.events import Event, RunEnded, RunStarted, SpanSeen
from compileboard.collectors.contract.rejects import IngestResult, RefusedEvent, Rejects
from compileboard.collectors.fixes.fix import SourceLines
from compileboard.collectors.store.connection import checkpoint, read_value, write_transaction
from compileboard.collectors.store.ingest.frames import LoggedFrames
from compileboard.collectors.store.ingest.ingestor import (
    OTHER_RUN,
    Ingestor,
    describe_refusal,
    is_caused_by_event,
)
from compileboard.collectors.store.ingest.source_files import (
    RejectRow,
    advance_logs,
    begin_trace_file,
    find_logs,
    list_rejects,
    save_log_read,
    save_run_rejects,
    save_trace_pieces,
)
from compileboard.collectors.store.large_runs import refuse_large_run
from compileboard.collectors.store.run_causes import save_source_lines
from compileboard.collectors.store.runs import THIS_MACHINE, RunSender
from compileboard.collectors.store.stream_lines import StreamLines
from compileboard.collectors.store.stream_rows import (
    Stream,
    StreamMoved,
    forget_stream,
    get_stream,
    has_texts,
    save_stream,
    use_texts,
)
from compileboard.collectors.wire.marks import (
    Heartbeat,
    LogRead,
    Mark,
    SourceRead,
    SpoolRejects,
    StreamEnd,
    TracePieces,
)

REMEMBERED = 32  # runs whose compiles are known by heart
CHECKPOINT_BYTES = 16 << 20  # Of lines between checkpoints, to keep the write-ahead log small.


class RunDeleted(Exception):
    pass


@dataclass
class _KnownRun:
    ingestor: Ingestor
    generations: dict[int, int]  # Generations of the events being stored, by their id().
    pub: int | None = None


class StreamWriter:
    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self.connection = connection
        self.path = path
        self._known: OrderedDict[str, _KnownRun] = OrderedDict()
        self._unfolded_bytes = 0

    def store(self, lines: StreamLines, sender: RunSender = THIS_MACHINE) -> Stream:
        """Store lines and return the stream's new state.

        Raises RunDeleted; NotOwner; StreamMoved if another request was faster; RunSealed if a large
        run must be restored first; StoreError.
        """
        before = lines.stream
        refuse_large_run(self.connection, before.run_id)
        current = get_stream(self.connection, before.run_id, before.stream_id)
        if (current.stored_bytes if current else 0) != before.stored_bytes:
            raise StreamMoved(
                f"stream {before.stream_id} of run {before.run_id} was written by another request"
            )
        rejects = lines.rejects.copy()  # what is undone with others is stored again
        known = self._load_known_run(before.run_id)
        known.generations.clear()
        known.generations.update(lines.generations)
        known.ingestor.packed, known.ingestor.sender = lines.packed, sender
        events, foreign, log_ends = self._partition_events(known, before.run_id, lines)
        now_us = read_clock_us()
        stream = _advance(lines, now_us)

        def save_marks(result: IngestResult) -> None:
            rejects.add_refused([*foreign, *result.refused])
            _count_clashing(rejects, result.clashing)
            self._save_marks(lines, rejects)
            save_run_rejects(self.connection, before.run_id, _list_left_out(stream))
            advance_logs(self.connection, log_ends)

        def save_position() -> None:
            save_stream(self.connection, stream, before.stored_bytes)
            known.ingestor.beat(before.run_id, now_us)

        result = known.ingestor.ingest(
            before.run_id,
            events,
            now_us=now_us,
            extra_writes=save_marks,
            final_writes=save_position,
        )
        if result.deleted_run:
            self._known.pop(before.run_id, None)
            raise RunDeleted(before.run_id)
        known.pub = self._read_pub(before.run_id)
        self._unfolded_bytes += lines.size_bytes
        return stream

    @contextmanager
    def single_transaction(self) -> Iterator[None]:
        """Store everything in the block in one transaction. Raises PartFailed if a part of it
        fails.
        """
        try:
            with write_transaction(self.connection):
                yield
        except BaseException:
            self._known.clear()
            raise

    def checkpoint_if_due(self) -> None:
        if self._unfolded_bytes >= CHECKPOINT_BYTES:
            checkpoint(self.connection)
            self._unfolded_bytes = 0

    def restart(self, stream: Stream) -> None:
        with write_transaction(self.connection):
            forget_stream(self.connection, stream.run_id, stream.stream_id)

    def _load_known_run(self, run_id: str) -> _KnownRun:
        known = self._known.pop(run_id, None)
        if known is None:
            generations: dict[int, int] = {}
            frames = LoggedFrames(self.connection, lambda event: generations.get(id(event)))
            known = _KnownRun(Ingestor(self.connection, self.path, frames), generations)
        elif known.pub is None or known.pub != self._read_pub(run_id):
            known.ingestor.forget()
        self._known[run_id] = known
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return known

    def _read_pub(self, run_id: str) -> int | None:
        pub: int | None = read_value(
            self.connection, "select pub from runs where id = ?", (run_id,)
        )
        return pub

    def _partition_events(
        self, known: _KnownRun, run_id: str, lines: StreamLines
    ) -> tuple[list[Event], list[RefusedEvent], dict[str, int]]:
        """Return the events to store, those of a process of another run, and each log's new end."""
        logged = {event.process_id for event in lines.events if id(event) in lines.generations}
        ends = {
            process_id: log.end_offset_bytes
            for process_id, log in find_logs(self.connection, logged).items()
        }
        events: list[Event] = []
        foreign: list[RefusedEvent] = []
        log_ends: dict[str, int] = {}
        for event in lines.events:
            if not known.ingestor.may_have(run_id, event.process_id):
                foreign.append(RefusedEvent(event, OTHER_RUN))
                continue
            if isinstance(event, SpanSeen) and id(event) in lines.generations:
                if event.sequence < ends.get(event.process_id, 0):
                    continue
                log_ends[event.process_id] = ends[event.process_id] = event.sequence + 1
            events.append(event)
        return events, foreign, log_ends

    def _save_marks(self, lines: StreamLines, rejects: Rejects) -> None:
        connection, run_id = self.connection, lines.stream.run_id
        if not has_texts(connection, lines.referred):
            raise StreamMoved(
                f"texts that stream {lines.stream.stream_id} refers to went since it was read"
            )
        use_texts(connection, lines.referred)
        for mark in lines.marks:
            connection.execute("savepoint mark")
            try:
                self._save_mark(run_id, mark, lines)
            except Exception as error:
                if not is_caused_by_event(error):
                    raise
                connection.execute("rollback to mark")
                rejects.add("refused", None, f"{mark.MARK}: {describe_refusal(error)}")
            connection.execute("release mark")
        own = _list_of_file(lines.stream.stream_id, rejects)
        save_run_rejects(connection, run_id, own, are_more=True)

    def _save_mark(self, run_id: str, mark: Mark, lines: StreamLines) -> None:
        connection = self.connection
        if isinstance(mark, LogRead):
            values = {**vars(mark), "read_us": read_clock_us()}
            save_log_read(connection, run_id, values, list_rejects(mark.rejects))
        elif isinstance(mark, SourceRead):
            excerpts = (
                SourceLines(file, first, tuple(code)) for file, first, code in mark.excerpts
            )
            save_source_lines(connection, run_id, excerpts)
        elif isinstance(mark, SpoolRejects):
            save_run_rejects(connection, run_id, _list_of_file(mark.file_name, mark.rejects))
        elif isinstance(mark, TracePieces):
            begin_trace_file(connection, run_id, mark.name, mark.size_bytes)
            save_trace_pieces(
                connection,
                run_id,
                mark.name,
                mark.size_bytes,
                mark.position,
                lines.pieces[id(mark)],
            )


def _list_of_file(file_name: str, rejects: Rejects) -> list[RejectRow]:
    return [{"file_name": file_name, **row} for row in list_rejects(rejects)]


def _list_left_out(stream: Stream) -> list[RejectRow]:
    left_out = Rejects()
    if stream.lost_count:
        left_out.add("no_room", count=stream.lost_count)
    if stream.dropped_text_count:
        left_out.add("dropped_text", count=stream.dropped_text_count)
    return _list_of_file(stream.stream_id, left_out)


def _count_clashing(rejects: Rejects, clashing: list[Event]) -> None:
    for event in clashing:
        if event.sequence >= 0 and not isinstance(event, (RunStarted, RunEnded)):
            rejects.add("number_taken", None, f"{event.process_id} {event.sequence}: {event.KIND}")


def _advance(lines: StreamLines, now_us: int) -> Stream:
    stream = lines.stream
    counts = [mark.lost_count for mark in lines.marks if isinstance(mark, (Heartbeat, StreamEnd))]
    versions = [
        mark.version for mark in lines.marks if isinstance(mark, Heartbeat) and mark.version
    ]
    has_ended = any(isinstance(mark, StreamEnd) for mark in lines.marks)
    return replace(
        stream,
        stored_bytes=stream.stored_bytes + lines.size_bytes,
        checksum=lines.checksum,
        event_count=stream.event_count + len(lines.events),
        lost_count=max(stream.lost_count, *counts, 0),
        dropped_text_count=stream.dropped_text_count + lines.dropped_text_count,
        version=versions[-1][:80] if versions else stream.version,
        started_us=stream.started_us or now_us,
        updated_us=now_us,
        ended_us=now_us if has_ended else None,
    )
