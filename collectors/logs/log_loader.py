"""Import the trace logs of one run, each from the last byte read before, and follow them."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from heapq import merge

from compileboard.collectors.contract.events import Event, RunEnded, RunStarted
from compileboard.collectors.contract.rejects import IngestResult, Reject, Rejects
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.records import PathNamer, Qualify, qualify
from compileboard.collectors.logs.discovery import LogSource, SourceGroup
from compileboard.collectors.logs.imported_trace import DecodedBatch, ImportedTrace
from compileboard.collectors.logs.log_head import HEAD_BYTES, LogHead, PeekedFile, read_head
from compileboard.collectors.logs.log_processes import WorkerProcesses, can_fork
from compileboard.collectors.logs.read_source import SourceReader
from compileboard.collectors.logs.source import EventBatch, ImportedFile, LateFacts, pump
from compileboard.collectors.logs.sqlite_sink import SqliteSink
from compileboard.collectors.logs.streams import LimitExceeded, NoSuchLog
from compileboard.collectors.logs.trace_log import PART_BYTES
from compileboard.collectors.record.spool import new_run_id
from compileboard.collectors.store.connection import checkpoint
from compileboard.collectors.store.ingest.payload_writer import TextPacker
from compileboard.collectors.store.ingest.source_files import (
    LEARNT_LATE,
    LogRow,
    find_last_us,
    find_logs,
    forget_deletion,
)
from compileboard.collectors.store.runs import THIS_MACHINE, RunSender

STATE = "imported"  # a log does not say how its program ended
APART_US = 10 * 60 * 1_000_000  # ranks and workers of one job start closer together


@dataclass(frozen=True)
class LoadOptions:
    payloads: bool = True
    redact_source: bool = False
    name: str | None = None
    suite: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    roots: tuple[str, ...] = ()
    again: bool = False
    sender: RunSender = THIS_MACHINE


@dataclass
class ImportSummary:
    run_id: str
    name: str
    log_count: int = 0
    known_run: bool = False
    deleted: bool = False
    without_payloads: bool = False  # imported so before, and left
    with_source: bool = False  # the same
    elsewhere: list[tuple[str, str]] = field(default_factory=list)  # logs of other runs: name, run
    changed: list[tuple[str, str]] = field(
        default_factory=list
    )  # logs that begin like one of a run: name, run
    also_in: list[tuple[str, str]] = field(
        default_factory=list
    )  # result files of other runs: name, run
    apart: bool = False  # some logs began long after the others had ended
    record_count: int = 0
    event_count: int = 0
    read_bytes: int = 0
    rejects: Rejects = field(default_factory=Rejects)
    result_count: int | None = None  # New results of result files.
    break_count: int = 0
    repro_count: int | None = None  # Graphs of torch's scripts.


Progress = Callable[[int], None]  # bytes read so far


class LogLoader:
    def __init__(
        self,
        connection: sqlite3.Connection,
        database: str,
        group: SourceGroup,
        options: LoadOptions,
        *,
        process_count: int = 1,
    ) -> None:
        """Create a loader. With several processes, the others decode logs while this one stores the
        results; the rows are the same.
        """
        self._connection = connection
        self._process_count = process_count if can_fork() else 1
        self._processes: WorkerProcesses | None = None
        self._options = options
        self.group = group
        namer, accepts = PathNamer(options.roots), _limit_to_roots(options)
        self._decoder = Decoder(namer, _make_qualifier(accepts))
        self._source_reader = SourceReader(namer, accepts) if accepts else None
        self._readings: dict[str, ImportedTrace] = {}
        self._heads: dict[str, tuple[LogSource, LogHead]] = {}
        self._known: dict[str, LogRow] = {}
        self._replaced: set[str] = set()
        self._single: PeekedFile | None = None  # a stream that can be opened only once
        self._changed: list[
            tuple[str, str]
        ] = []  # copies of logs that continue differently: name, run of the other
        self._unread: dict[
            str, tuple[str, str]
        ] = {}  # files without a readable record: kind, example
        self._take_logs(group.sources)
        if not self._heads:
            self.close()
            why = " ".join(
                example for kind, example in self._unread.values() if kind == "damaged_file"
            )
            why = why or "give a log that torch wrote with TORCH_TRACE=DIR set."
            raise NoSuchLog(f"{group.label}: there is no record of torch's trace in it; {why}")
        heads = [head for _source, head in self._heads.values()]
        self.first = min(heads, key=lambda head: (head.first_us or 0, head.key or ""))
        self.imported = ImportSummary(
            run_id=next((row.run_id for row in self._known.values()), None) or _run_id(self.first),
            name=options.name
            or next((head.program for head in heads if head.program), None)
            or group.label,
            known_run=bool(self._known),
            changed=self._changed,
        )
        self._sink = SqliteSink(connection, database, self.imported.run_id, sender=options.sender)

    def read(self, progress: Progress = lambda _bytes: None) -> ImportSummary:
        """Import new records. Raises StoreError or OSError; records stored before are kept."""
        done = self.imported
        if self._options.again:
            forget_deletion(self._connection, done.run_id, self._options.sender)
        self._begin_run()
        keys = self._list_own_logs()
        ahead = {} if done.deleted else self._decode_ahead(keys)
        for key in keys:
            if done.deleted:
                break
            if key not in self._readings:
                self._readings[key] = self._open_log(key, ahead.get(key))
                done.log_count += 1
            self._read_log(self._readings[key], progress)
        done.apart = self._are_apart()
        done.rejects = self._unread_files()
        for reading in self._readings.values():
            done.rejects.add_all(reading.rejects)
        return done

    def _list_own_logs(self) -> list[str]:
        done, keys = self.imported, []
        for key, (source, _head) in self._heads.items():
            if key in self._replaced:
                continue
            row = self._known.get(key)
            if row is None or row.run_id == done.run_id:
                keys.append(key)
            elif (source.label, row.run_id) not in done.elsewhere:
                done.elsewhere.append((source.label, row.run_id))
        return keys

    def _open_log(
        self,
        key: str,
        decoded: Iterable[DecodedBatch] | None = None,
        share: tuple[int, int] = (0, 1),
    ) -> ImportedTrace:
        done, options = self.imported, self._options
        (source, head), row = self._heads[key], self._known.get(key)
        left_out = row is not None and row.payloads == "left_out"
        done.without_payloads |= left_out and options.payloads
        done.with_source |= bool(row and not row.redacted and options.redact_source)
        imported = ImportedFile(
            process_id=key,
            name=source.label,
            file_name=source.file_name,
            payloads="kept" if options.payloads and not left_out else "left_out",
            redacted=options.redact_source,
            keep_examples=not options.redact_source,
            first_us=head.first_us,
        )
        file = None
        if decoded is None:
            file, self._single = self._single or PeekedFile(source.open()), None
        return ImportedTrace(
            source.path,
            head,
            file,
            imported,
            row,
            run_id=done.run_id,
            decoder=self._decoder,
            decoded=decoded,
            share=share,
        )

    def _decode_ahead(self, keys: list[str]) -> dict[str, Iterable[DecodedBatch]]:
        if self._process_count == 1 or self._single is not None or not keys:
            return {}
        source, _head = self._heads[keys[0]]
        is_parted = (
            len(keys) == 1 and source.path is not None and (source.size_bytes or 0) > 2 * PART_BYTES
        )
        share_count = self._process_count if is_parted else 1
        tasks = [(key, (number, share_count)) for key in keys for number in range(share_count)]
        processes = self._processes = WorkerProcesses(
            partial(self._decode, tasks, []), len(tasks), self._process_count
        )
        shares: dict[str, list[Iterator[DecodedBatch]]] = {key: [] for key in keys}
        for number, (key, _share) in enumerate(tasks):
            shares[key].append(processes.read(number))
        return {
            key: merge(*of_log, key=lambda decoded: decoded.part) for key, of_log in shares.items()
        }

    def _decode(
        self, tasks: list[tuple[str, tuple[int, int]]], packers: list[TextPacker], number: int
    ) -> Iterator[DecodedBatch]:
        packers += [] if packers else [TextPacker()]
        key, share = tasks[number]
        reading = self._open_log(key, share=share)
        if key == tasks[0][0]:
            reading.unread_beside = self._unread_files()
        with closing(reading):
            yield from reading.decode_ahead(packers[0])

    def _read_log(self, reading: ImportedTrace, progress: Progress) -> None:
        done = self.imported
        if reading is next(iter(self._readings.values())):
            reading.unread_beside = self._unread_files()
        before_bytes = sum(
            other.offset_bytes for other in self._readings.values() if other is not reading
        )

        def count(batch: EventBatch, result: IngestResult) -> None:
            (position,) = batch.checkpoints
            done.event_count += result.new_count
            done.record_count += batch.record_count
            done.read_bytes += position.end_bytes - position.begin_bytes
            done.deleted |= result.deleted_run
            progress(before_bytes + position.end_bytes)
            if self._source_reader is not None:
                self._sink.save_source(self._source_reader.read(batch.events))
                self._source_reader.unsaved.clear()

        pump(reading, self._sink, count)

    def _are_apart(self) -> bool:
        readings = self._readings.values()
        if self.imported.known_run or not readings:
            return False
        spans = sorted(
            (reading.file.first_us or 0, reading.last_us or reading.file.first_us or 0)
            for reading in readings
        )
        ended_us = spans[0][1]
        for first_us, last_us in spans[1:]:
            if first_us > ended_us + APART_US:
                return True
            ended_us = max(ended_us, last_us)
        return False

    def finish(self) -> None:
        self.close()
        if self.imported.deleted:
            return
        last = find_last_us(self._connection, self.imported.run_id) or self.first.first_us or 0
        end = (
            sum(reading.offset_bytes for reading in self._readings.values()) + 1
        )  # a longer copy ends differently
        run_id = self.imported.run_id
        self._store(RunEnded(run_id, end, last, run_id, STATE))
        checkpoint(self._connection)

    def read_new_logs(self, group: SourceGroup) -> None:
        """Read logs that were added or restarted. Raises OSError or ValueError."""
        for source in group.sources:
            held = {
                key: reading
                for key, reading in self._readings.items()
                if reading.path == source.path and not reading.is_replaced()
            }
            if source.path is None or held:
                continue
            for key in [reading for reading in self._readings if reading not in self._replaced]:
                if self._readings[key].path != source.path:
                    continue
                self._replaced.add(key)
                self._read_log(
                    self._readings[key], lambda _bytes: None
                )  # written before it was moved away
                self._readings[key].close()
            begun = self._take_logs([source])
            if begun in self._replaced:  # the same log in another file: renamed, or copied
                self._replaced.remove(begun)
                del self._readings[begun]

    def reread_heads(self) -> None:
        for key, reading in self._readings.items():
            source, head = self._heads[key]
            if source.path is None or key in self._replaced or reading.learnt_bytes >= HEAD_BYTES:
                continue
            with suppress(OSError, ValueError), closing(source.open()) as file:
                reading.learnt_bytes = reading.offset_bytes
                head = replace(read_head(file.read(HEAD_BYTES), source.modified_us), key=key)
                self._heads[key] = source, head
                reading.set_clock(head.clock)
        self._known.update(find_logs(self._connection, self._readings))
        named = next((head.program for _source, head in self._heads.values() if head.program), None)
        self.imported.name = self._options.name or named or self.imported.name

    def _unread_files(self) -> Rejects:
        rejects = Rejects()
        for label, (kind, example) in self._unread.items():
            rejects.add_file(label, Rejects({kind: Reject(1, None, example)}))
        return rejects

    def send_heartbeat(self) -> None:
        self._sink.send_heartbeat()

    def close(self) -> None:
        if self._processes is not None:
            self._processes.close()
        for reading in self._readings.values():
            reading.close()
        if self._single is not None:
            self._single.close()
            self._single = None

    def _take_logs(self, sources: list[LogSource]) -> str | None:
        key = None
        for source, (head, damage) in zip(sources, self._read_heads(sources), strict=True):
            if isinstance(damage, LimitExceeded):
                raise damage
            if head.key is None:
                kind = "empty_log" if damage is None else "damaged_file"
                self._unread[source.label] = kind, str(damage or source.label)
                continue
            self._unread.pop(source.label, None)
            # It may have been read when it had fewer records than its key needs now.
            known = find_logs(self._connection, [head.key, *head.earlier_keys])
            own_key, original = head.key, next(iter(known.values()), None)
            if (
                original
                and self._single is None
                and (other_key := _name_changed_copy(source, original))
            ):
                own_key, known = other_key, find_logs(self._connection, [other_key])
                self._changed.append((source.label, original.run_id))
            key = next(iter(known), own_key)
            self._known.update(known)
            if key not in self._heads or key in self._replaced:
                self._heads[key] = source, replace(head, key=key)
        return key

    def _read_heads(self, sources: list[LogSource]) -> Iterator[tuple[LogHead, Exception | None]]:
        if len(sources) == 1 and sources[0].path is None:
            self._single = PeekedFile(sources[0].open())
            yield read_head(self._single.peek_log(), sources[0].modified_us), self._single.damage
        elif self._process_count == 1:
            yield from map(_read_head, sources)
        else:
            processes = WorkerProcesses(
                lambda number: [_read_head(sources[number])],
                len(sources),
                self._process_count,
            )
            with closing(processes):
                for number in range(len(sources)):
                    yield from processes.read(number)

    def _begin_run(self) -> None:
        run_id, options, first = self.imported.run_id, self._options, self.first
        gpu = next((head.gpu_name for _source, head in self._heads.values() if head.gpu_name), None)
        gpu_count = max(
            1, len({head.rank for _source, head in self._heads.values() if head.rank is not None})
        )
        # The beginnings of logs that were shorter may contain more now.
        late = {
            key: LateFacts(
                {name: getattr(self._heads[key][1], name) for name in LEARNT_LATE},
                gpu_count,
                self.imported.name,
                self.group.label,
            )
            for key, row in self._known.items()
            if key in self._heads and row.run_id == run_id
        }
        started = RunStarted(
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
            gpus=[{"name": gpu}] * gpu_count if gpu else [],
        )
        self._store(started, late)

    def _store(self, event: Event, late: Mapping[str, LateFacts] | None = None) -> None:
        self.imported.deleted |= self._sink.ingest(EventBatch([event], late=late or {})).deleted_run


def _read_head(source: LogSource) -> tuple[LogHead, Exception | None]:
    with closing(PeekedFile(source.open())) as file:
        return read_head(file.peek_log(), source.modified_us), file.damage


def _name_changed_copy(source: LogSource, known: LogRow) -> str | None:
    """Return the name of a log that starts like a known one and differs later, as an edited copy
    does.

    A shorter copy is treated as the beginning of the known log.
    """
    if known.content_digest is None:
        return None
    digest, left = blake2b(digest_size=16), known.end_offset_bytes
    with suppress(OSError, ValueError, EOFError), closing(PeekedFile(source.open())) as file:
        file.peek_log()
        while left and (block := file.read(min(left, 1 << 20))):
            digest.update(block)
            left -= len(block)
    if left or digest.hexdigest() == known.content_digest:
        return None
    return blake2b(f"{known.process_id}:{digest.hexdigest()}".encode(), digest_size=16).hexdigest()


def _limit_to_roots(options: LoadOptions) -> Callable[[str], bool] | None:
    """Restrict source reading to the given roots, because a log may contain the name of any
    file.
    """
    folders = tuple(os.path.abspath(root).rstrip(os.sep) + os.sep for root in options.roots)
    if not folders or options.redact_source:
        return None
    return lambda path: os.path.realpath(path).startswith(folders)


def _make_qualifier(accepts: Callable[[str], bool] | None) -> Qualify | None:
    if accepts is None:
        return None
    return lambda path, line, name: qualify(path, line, name) if accepts(path) else None


def _run_id(head: LogHead) -> str:
    """Derive the run's id from its first log, so that it is the same in every database."""
    digest = int((head.key or "0" * 32)[:20], 16)
    return new_run_id((head.first_us or 0) // 1000, digest)


INTERVAL_S = 0.5
HEARTBEAT_S = 5.0

Find = Callable[[], SourceGroup]


def await_log(
    path: str,
    find: Find,
    open_loader: Callable[[SourceGroup], LogLoader],
    print_line: Callable[[str], None],
) -> LogLoader:
    """Wait for the first record in an existing file or folder.

    Raises NoSuchLog if it does not exist, KeyboardInterrupt on Ctrl-C.
    """
    is_reported = False
    while True:
        try:
            return open_loader(find())
        except NoSuchLog:
            if not os.path.exists(path):
                raise
            if not is_reported:
                print_line(f"{path}: no log with a record in it yet; waiting, Ctrl-C ends it")
            is_reported = True
        time.sleep(INTERVAL_S)


def follow(loader: LogLoader, find: Find, progress: Progress) -> None:
    """Read new records until Ctrl-C. Raises StoreError or OSError."""
    beat_s = 0.0
    try:
        while not loader.imported.deleted:
            time.sleep(INTERVAL_S)
            _poll_logs(loader, find, progress)
            if time.monotonic() >= beat_s:
                loader.send_heartbeat()
                beat_s = time.monotonic() + HEARTBEAT_S
    except KeyboardInterrupt:
        _poll_logs(loader, find, progress)  # written in the meantime
        loader.read(progress)  # and stores learnt facts


def _poll_logs(loader: LogLoader, find: Find, progress: Progress) -> None:
    with suppress(NoSuchLog):  # deleted: the open file is read to its end
        loader.read_new_logs(find())
    loader.read(progress)
    loader.reread_heads()
