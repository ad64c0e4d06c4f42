"""Read one log of a run into its rows, from where it was last read."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from compileboard.collectors.contract.events import (
    CompileStarted,
    Event,
    ProcessStarted,
    Recompiled,
    RunEnded,
    RunStarted,
    SpanSeen,
)
from compileboard.collectors.contract.rejects import OF_LAST_READING, Rejects
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.paths import PathNamer, Qualify, qualify
from compileboard.collectors.decode.records import Captured
from compileboard.collectors.pipeline.redact_records import redact_record
from compileboard.collectors.pipeline.trace_reader import count_refused, list_rejects
from compileboard.collectors.sources.discovery import LogSource, SourceGroup
from compileboard.collectors.sources.log_clock import LogClock
from compileboard.collectors.sources.log_head import HEAD_BYTES, Head, PeekedFile, facts_of, read_head
from compileboard.collectors.sources.streams import LimitExceeded, NoSuchLog, SourceDamaged
from compileboard.collectors.sources.trace_log import ReadStats, TraceLog
from compileboard.collectors.spool.folders import new_run_id
from compileboard.collectors.store.connection import checkpoint
from compileboard.collectors.store.ingest.ingestor import Ingestor, IngestResult
from compileboard.collectors.store.ingest.source_files import (
    LEARNT_LATE,
    LogRow,
    advance_log,
    complete_process,
    find_last_us,
    find_logs,
    forget_deletion,
    name_run,
    save_rejects,
)

if TYPE_CHECKING:
    pass  # RESTRUCTURE


BATCH_EVENTS = 2_000
BATCH_BYTES = 8 << 20  # of texts
BATCH_PARTS = 20_000  # of stacks and recompiles: each may be a row, and who else writes waits for a batch
CHECKPOINT_BYTES = 64 << 20  # of log: the write-ahead log must not grow with it


class LogReading:
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
            save_rejects(loader._connection, self._head.key or "", shown)

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


STATE = "imported"  # how the program ended is not in its log
APART_US = 10 * 60 * 1_000_000  # ranks and workers of one job are not that long apart


@dataclass(frozen=True)
class LoadOptions:
    """Say what of a log is stored, and under which name."""

    payloads: bool = True
    redact_source: bool = False
    name: str | None = None
    suite: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    roots: tuple[str, ...] = ()
    again: bool = False


@dataclass
class Imported:
    """Say what an import did."""

    run_id: str
    name: str
    log_count: int = 0
    known_run: bool = False
    deleted: bool = False
    without_payloads: bool = False  # imported so before, and left so
    with_source: bool = False  # the same
    elsewhere: list[tuple[str, str]] = field(default_factory=list)  # logs of other runs: name, run
    also_in: list[tuple[str, str]] = field(default_factory=list)  # files of results that other runs have: name, run
    apart: bool = False  # some logs began long after the others had ended
    record_count: int = 0
    event_count: int = 0
    read_bytes: int = 0
    rejects: Rejects = field(default_factory=Rejects)
    result_count: int | None = None  # of files of results: what is new
    break_count: int = 0


Progress = Callable[[int], None]  # bytes read so far


class Loader:
    """Import one group of logs; `read` may be called again for what was written since, where the logs are files."""

    def __init__(self, connection: sqlite3.Connection, database: str, group: SourceGroup, options: LoadOptions) -> None:
        self._connection = connection
        self._options = options
        self.group = group
        self._ingestor = Ingestor(connection, database)
        self._decoder = Decoder(PathNamer(options.roots), _qualifier(options))
        self._readings: dict[str, LogReading] = {}
        self._heads: dict[str, tuple[LogSource, Head]] = {}
        self._known: dict[str, LogRow] = {}
        self._replaced: set[str] = set()
        self._single: PeekedFile | None = None  # a stream that can be opened only once
        self._unread: dict[str, tuple[str, str]] = {}  # files of which nothing could be read: kind, example
        self._look(group.sources)
        if not self._heads:
            self.close()
            why = " ".join(example for kind, example in self._unread.values() if kind == "damaged_file")
            why = why or "give a log that torch wrote with TORCH_TRACE=DIR set."
            raise NoSuchLog(f"{group.label}: there is no record of torch's trace in it; {why}")
        heads = [head for _source, head in self._heads.values()]
        self.first = min(heads, key=lambda head: (head.first_us or 0, head.key or ""))
        self.imported = Imported(
            run_id=next((row.run_id for row in self._known.values()), None) or _run_id(self.first),
            name=options.name or next((head.program for head in heads if head.program), None) or group.label,
            known_run=bool(self._known),
        )

    def read(self, progress: Progress = lambda _bytes: None) -> Imported:
        """Import what is new.

        Raises: StoreError, OSError; what was read before is kept.
        """
        done = self.imported
        if self._options.again:
            forget_deletion(self._connection, done.run_id)
        self._begin_run()
        for key, (source, head) in self._heads.items():
            if done.deleted or key in self._replaced:
                continue
            reading = self._readings.get(key)
            row = self._known.get(key)
            if row is not None and row.run_id != done.run_id:
                if (source.label, row.run_id) not in done.elsewhere:
                    done.elsewhere.append((source.label, row.run_id))
                continue
            if reading is None:
                done.without_payloads |= bool(row and row.payloads == "left_out" and self._options.payloads)
                done.with_source |= bool(row and not row.redacted and self._options.redact_source)
                file, self._single = self._single or PeekedFile(source.open()), None
                reading = self._readings[key] = LogReading(self, source, head, file, row)
                done.log_count += 1
            before = sum(it.offset for it in self._readings.values() if it is not reading)
            reading.read(lambda offset, before=before: progress(before + offset))  # type: ignore[misc]
        done.apart = self._are_apart()
        done.rejects = Rejects()
        for met in (self.unread(), *(reading.met for reading in self._readings.values())):
            for kind, it in met.by_kind.items():
                done.rejects.add(kind, it.first_line, it.example, it.count)
        return done

    def _are_apart(self) -> bool:
        """Say whether the logs look like several jobs': one began long after all before it had ended."""
        readings = self._readings.values()
        if self.imported.known_run or not readings:
            return False
        spans = sorted((it.first_us or 0, it.last_us or it.first_us or 0) for it in readings)
        ended_us = spans[0][1]
        for first_us, last_us in spans[1:]:
            if first_us > ended_us + APART_US:
                return True
            ended_us = max(ended_us, last_us)
        return False

    def finish(self) -> None:
        """Say that this is all for now, and close the logs."""
        self.close()
        if self.imported.deleted:
            return
        last = find_last_us(self._connection, self.imported.run_id) or self.first.first_us or 0
        end = sum(it.offset for it in self._readings.values()) + 1  # a longer copy ends anew
        run_id = self.imported.run_id
        self._ingest([RunEnded(run_id, end, last, run_id, STATE)])
        checkpoint(self._connection)

    def look(self, group: SourceGroup) -> None:
        """Take what came since: other logs, and those whose file was begun anew.

        Raises: OSError, ValueError.
        """
        for source in group.sources:
            held = {key: it for key, it in self._readings.items() if it.path == source.path and not it.is_replaced()}
            if source.path is None or held:
                continue
            for key in [it for it in self._readings if it not in self._replaced]:
                if self._readings[key].path != source.path:
                    continue
                self._replaced.add(key)
                self._readings[key].read(lambda _bytes: None)  # what was written before it was moved away
                self._readings[key].close()
            begun = self._look([source])
            if begun in self._replaced:  # the same log in another file: renamed, or copied anew
                self._replaced.remove(begun)
                del self._readings[begun]

    def learn(self) -> None:
        """Look again at the beginnings of followed logs that were short: what they tell names the run."""
        for key, reading in self._readings.items():
            source, head = self._heads[key]
            if source.path is None or key in self._replaced or reading.learnt_bytes >= HEAD_BYTES:
                continue
            with suppress(OSError, ValueError), closing(source.open()) as file:
                reading.learnt_bytes = reading.offset
                head = replace(read_head(file.read(HEAD_BYTES), source.modified_us), key=key)
                self._heads[key] = source, head
                reading.set_clock(head.clock)
        self._known.update(find_logs(self._connection, self._readings))
        named = next((head.program for _source, head in self._heads.values() if head.program), None)
        self.imported.name = self._options.name or named or self.imported.name

    def unread(self) -> Rejects:
        """Count the files of which nothing could be read."""
        rejects = Rejects()
        for kind, example in self._unread.values():
            rejects.add(kind, None, example)
        return rejects

    def touch(self) -> None:
        """Say that the logs are still followed."""
        self._ingestor.touch(self.imported.run_id)

    def close(self) -> None:
        """Close the logs."""
        for reading in self._readings.values():
            reading.close()
        if self._single is not None:
            self._single.close()
            self._single = None

    def _look(self, sources: list[LogSource]) -> str | None:
        """Take the logs among the sources, and return the last; a copy of another, or it packed, is the same log."""
        key = None
        for source in sources:
            file = PeekedFile(source.open())
            head = read_head(file.peek_log(), source.modified_us)
            if len(sources) == 1 and source.path is None:
                self._single = file
            else:
                file.close()
            if isinstance(file.damage, LimitExceeded):
                raise file.damage
            if head.key is None:
                kind = "empty_log" if file.damage is None else "damaged_file"
                self._unread[source.label] = kind, str(file.damage or source.label)
                continue
            self._unread.pop(source.label, None)
            # It may have been read when it had fewer records than what names it now.
            known = find_logs(self._connection, [head.key, *head.earlier_keys])
            key = next(iter(known), head.key)
            self._known.update(known)
            if key not in self._heads or key in self._replaced:
                self._heads[key] = source, replace(head, key=key)
        return key

    def _begin_run(self) -> None:
        run_id, options, first = self.imported.run_id, self._options, self.first
        gpu = next((head.gpu_name for _source, head in self._heads.values() if head.gpu_name), None)
        self._ingest(
            [
                RunStarted(
                    process_id=run_id,
                    sequence=0,
                    time_us=first.first_us or 0,
                    run_id=run_id,
                    name=self.imported.name,
                    suite=options.suite,
                    tags=options.tags,
                    source="import",
                    level="full" if options.payloads else "light",
                    keep_source=not options.redact_source,
                    gpus=[{"name": gpu}] * self._gpu_count() if gpu else [],
                )
            ],
            self._complete,
        )

    def _gpu_count(self) -> int:
        return max(1, len({head.rank for _source, head in self._heads.values() if head.rank is not None}))

    def _complete(self, result: IngestResult) -> None:
        """Say of what was read when it was shorter what the beginnings of its logs tell now."""
        for key, row in self._known.items():
            head = self._heads[key][1] if key in self._heads else None
            if head is not None and row.run_id == self.imported.run_id:
                facts = {name: getattr(head, name) for name in LEARNT_LATE}
                complete_process(self._connection, key, row.run_id, facts, gpu_count=self._gpu_count())
                name_run(self._connection, row.run_id, self.imported.name, self.group.label)

    def _ingest(self, events: list[Event], also: Callable[[IngestResult], None] = lambda result: None) -> IngestResult:
        result = self._ingestor.ingest(self.imported.run_id, events, also=also)
        self.imported.deleted |= result.deleted_run
        return result

    def decode(self, captured: Captured, log: TraceLog) -> list[Event]:
        """Make events of a record, without the user's code if so asked."""
        if self._options.redact_source:
            captured = redact_record(captured)
        return self._decoder.decode(captured, lambda what: log.stats.rejects.add("bad_field", log.line, what))


def _qualifier(options: LoadOptions) -> Qualify | None:
    """Look classes up in the sources below the given roots, and nowhere else: a log may name any file."""
    folders = tuple(os.path.abspath(root).rstrip(os.sep) + os.sep for root in options.roots)
    if not folders or options.redact_source:
        return None
    return lambda path, line, name: qualify(path, line, name) if os.path.realpath(path).startswith(folders) else None


def _run_id(head: Head) -> str:
    """Make the id of an imported run of its first log: the same log gives the same id everywhere."""
    digest = int((head.key or "0" * 32)[:20], 16)
    return new_run_id((head.first_us or 0) // 1000, digest)


INTERVAL_S = 0.5
HEARTBEAT_S = 5.0

Find = Callable[[], SourceGroup]


def await_log(
    path: str, find: Find, open_loader: Callable[[SourceGroup], Loader], say: Callable[[str], None]
) -> Loader:
    """Wait for the first record where the folder, or the file, is there already.

    Raises: NoSuchLog if nothing is there; KeyboardInterrupt.
    """
    told = False
    while True:
        try:
            return open_loader(find())
        except NoSuchLog:
            if not os.path.exists(path):
                raise
            if not told:
                say(f"{path}: no log with a record in it yet; waiting, Ctrl-C ends it")
            told = True
        time.sleep(INTERVAL_S)


def follow(loader: Loader, find: Find, progress: Progress) -> None:
    """Read what comes until Ctrl-C.

    Raises: StoreError, OSError.
    """
    beat_s = 0.0
    try:
        while not loader.imported.deleted:
            time.sleep(INTERVAL_S)
            _read_on(loader, find, progress)
            if time.monotonic() >= beat_s:
                loader.touch()
                beat_s = time.monotonic() + HEARTBEAT_S
    except KeyboardInterrupt:
        _read_on(loader, find, progress)  # what was written since
        loader.read(progress)  # and says what was learnt


def _read_on(loader: Loader, find: Find, progress: Progress) -> None:
    with suppress(NoSuchLog):  # deleted: what is held open is read to its end
        loader.look(find())
    loader.read(progress)
    loader.learn()
