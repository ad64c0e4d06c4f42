"""Import benchmark result files: one run per folder, or one per commit where rows name them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import replace
from hashlib import blake2b

from compileboard.collectors.contract.events import (
    BenchMeasured,
    Event,
    ProcessStarted,
    RunEnded,
    RunStarted,
)
from compileboard.collectors.contract.rejects import IngestResult, Rejects
from compileboard.collectors.contract.values import fit_event
from compileboard.collectors.decode.paths import PathNamer
from compileboard.collectors.formats.merge_files import (
    Merged,
    build_break_table,
    merge,
    series_text,
    time_us_of,
)
from compileboard.collectors.formats.reader import break_event, read_results
from compileboard.collectors.formats.results import digest, task_of
from compileboard.collectors.pipeline.log_loader import STATE, Imported, LoadOptions, Progress
from compileboard.collectors.pipeline.result_runs import (
    ReadFile,
    ResultFolder,
    ResultRun,
    part_folders,
    plan_runs,
)
from compileboard.collectors.pipeline.source import Checkpoint, EventBatch, ImportedFile, pump
from compileboard.collectors.pipeline.sqlite_sink import SqliteSink
from compileboard.collectors.sources.discovery import LogSource, SourceGroup
from compileboard.collectors.sources.streams import LimitExceeded, NoSuchLog, SourceDamaged
from compileboard.collectors.store.ingest.source_files import (
    count_rows,
    find_logs,
    find_result_runs,
    forget_deletion,
)

MOST_BYTES = (
    256 << 20
)  # of one file; the phases of all models of a suite, upstream's largest, have some 40 MB
_PIECE_BYTES = 1 << 20


def load_results(
    connection: sqlite3.Connection,
    database: str,
    group: SourceGroup,
    options: LoadOptions,
    progress: Progress = lambda _bytes: None,
    *,
    most_records: int | None = None,
) -> Iterator[Imported]:
    """Import the new results of a group's files, one run at a time.

    Raises NoSuchLog if no file has a result; LimitExceeded, StoreError or OSError.
    """
    now_us, read_bytes = time.time_ns() // 1000, 0
    taken: set[str] = set()
    for part, folder in part_folders(group.results):
        read: list[ReadFile] = []
        for source in folder:
            read.append(_read(source, options, now_us))
            read_bytes += read[-1].size_bytes
            progress(read_bytes)
        merged = merge([file.file for file in read])
        record_count = len(merged.results) + sum(len(file.file.breaks) for file in read)
        if most_records is not None and record_count > most_records:
            raise LimitExceeded(
                f"{group.label}: {record_count:,} records are in it, the limit is "
                f"{most_records:,} records for one "
                "import; import fewer files at once.",
                "records",
            )
        if not merged.results and not any(file.file.breaks for file in read):
            raise NoSuchLog(_format_no_results(read))
        name = options.name or (f"{group.label}/{part}" if part else group.label)
        runs = plan_runs(connection, ResultFolder(name, read), merged, taken)
        taken |= {run.run_id for run in runs}
        for run in sorted(runs, key=lambda run: min(_times(run))):
            sink = SqliteSink(connection, database, run.run_id, sender=options.sender)
            yield _import_run(sink, name, options, run, merged)


def _read(source: LogSource, options: LoadOptions, now_us: int) -> ReadFile:
    rejects = Rejects()
    pieces: list[bytes] = []
    size = 0
    try:
        with closing(source.open()) as stream:
            while (piece := stream.read(_PIECE_BYTES)) and size <= MOST_BYTES:
                pieces.append(piece)
                size += len(piece)
    except LimitExceeded:
        raise
    except (SourceDamaged, EOFError) as error:  # what came before is read
        rejects.add("damaged_file", None, str(error))
    if size > MOST_BYTES:
        rejects.add("too_large_file", None, source.label)
        pieces = []
    data = b"".join(pieces)
    file = read_results(source.file_name, data, options.suite)
    if rejects.total:
        file.rejects.by_kind.pop("empty_log", None)
        file.rejects.by_kind.update(rejects.by_kind)
    # With its name: a model breaks alike when it is timed and when it is checked, and each file
    # says so of its own.
    keys = file.keys(every=True) or [digest(file.stem, blake2b(data, digest_size=16).hexdigest())]
    return ReadFile(file, source, keys[0], size, source.modified_us or now_us)


def _format_no_results(read: list[ReadFile]) -> str:
    reasons = "; ".join(
        (
            f"{file.name}: "
            f"{next((reject.example or kind for kind, reject in file.rejects.by_kind.items()), file.kind)}"
        )
        for file in (source.file for source in read[:3])
    )
    return (
        f"There is no benchmark result in {len(read)} file{'s' if len(read) > 1 else ''} "
        f"({reasons}); expected a table "
        "with a column `name` and one of speedup, abs_latency, accuracy, or the benchmark "
        "database's JSON "
        "(docs/formats.md)."
    )


def _times(run: ResultRun) -> list[int]:
    result_times = [time_us_of(result) or file.time_us for file, result in run.results]
    return result_times or [file.time_us for file in run.files]


def _import_run(
    sink: SqliteSink, name: str, options: LoadOptions, run: ResultRun, merged: Merged
) -> Imported:
    if run.commit and not options.name:
        name = f"{name} {run.commit[:10]}"
    done = Imported(run.run_id, name, result_count=0, also_in=run.also_in)
    connection = sink.connection
    if options.again:
        forget_deletion(connection, run.run_id, options.sender)
    query = "select 1 from runs where id = :id"
    done.known_run = connection.execute(query, {"id": run.run_id}).fetchone() is not None
    before = count_rows(connection, run.run_id)
    times = _times(run)
    sink.ingest(EventBatch([_start_run(run, name, options, min(times))]))
    files = list(
        {id(file): file for file in (*run.files, *(file for file, _result in run.results))}.values()
    )

    def count(batch: EventBatch, result: IngestResult) -> None:
        done.event_count += result.new_count

    if not sink.is_deleted:
        pump(ResultSource(connection, run, files, merged.stems, options), sink, count)
        done.log_count = len(files)
    done.read_bytes = sum(file.size_bytes for file in files)
    for file in run.files:
        done.rejects.add_file(file.source.label, file.file.rejects)
    after = count_rows(connection, run.run_id)
    done.result_count, done.break_count = after[0] - before[0], after[1] - before[1]
    done.record_count = done.result_count + done.break_count
    # Files written at other moments, as by a checkout, say nothing of how long a run took.
    ended_us = (
        max(times) if any(time_us_of(result) for _file, result in run.results) else min(times)
    )
    sink.ingest(
        EventBatch([RunEnded(run.run_id, done.read_bytes + 1, ended_us, run.run_id, STATE)])
    )
    done.deleted = sink.is_deleted
    return done


def _start_run(run: ResultRun, name: str, options: LoadOptions, time_us: int) -> RunStarted:
    results = [result for _it, result in run.results]
    suites = sorted({result.suite for result in results if result.suite})
    gpus = sorted(
        {result.hardware for result in results if result.hardware and result.device != "cpu"}
    )
    return RunStarted(
        process_id=run.run_id,
        sequence=0,
        time_us=time_us,
        run_id=run.run_id,
        name=name,
        suite=options.suite or (suites[0] if len(suites) == 1 else None),
        tags=options.tags,
        source="import",
        git={"commit": run.commit, "branch": run.branch} if run.commit else {},
        gpus=[{"name": name} for name in gpus[:1]],
    )


class ResultSource:
    def __init__(
        self,
        connection: sqlite3.Connection,
        run: ResultRun,
        files: list[ReadFile],
        stems: Collection[str],
        options: LoadOptions,
    ) -> None:
        self._connection = connection
        self._run = run
        self._files = files
        self._stems = stems
        self._options = options
        self._namer = PathNamer(options.roots)
        self._reading = files[0]

    def read(self) -> Iterator[EventBatch]:
        for file in self._files:
            if self._run.run_id not in find_result_runs(self._connection, file.content_hash):
                self._reading = file
                yield self._read_file(file)

    def commit(self, batch: EventBatch, result: IngestResult) -> None:
        self._reading.file.rejects.add_refused(result.refused, batch.line_of)

    def rewind(self) -> None:
        """Nothing to do: a file that is not stored is read again."""

    def _read_file(self, other_file: ReadFile) -> EventBatch:
        run, file = self._run, other_file.file
        process_id = run.process_id(self._connection, other_file)
        events: list[Event] = []
        for result in [result for of_file, result in run.results if of_file is other_file]:
            event, notes = fit_event(self._identify(other_file, result, process_id))
            events += [event] if event is not None else []
            if notes:
                file.rejects.add("bad_field", _line_of(result), "; ".join(notes))
        is_shown = other_file in run.files
        if is_shown:
            events += self._list_breaks(other_file, process_id)
        is_log = bool(events or (is_shown and file.rejects.total))
        if is_log:
            events.insert(0, self._start_process(process_id, other_file.time_us, None))
        known = find_logs(self._connection, [process_id]).get(process_id)
        return EventBatch(
            events,
            [
                Checkpoint(
                    process_id,
                    known.end_offset_bytes if known else 0,
                    other_file.size_bytes,
                    file.line_count,
                )
            ],
            file.rejects if is_shown else Rejects(),
            ImportedFile(
                process_id,
                other_file.source.label,
                other_file.source.file_name,
                keep_examples=not self._options.redact_source,
                first_us=other_file.time_us,
                content_hash=other_file.content_hash,
                kind=file.kind,
                row_count=file.row_count,
                is_log=is_log,
            ),
            record_count=file.row_count if known is None else 0,
            last_us=other_file.time_us,
            line_of=_line_of,
        )

    def _identify(self, file: ReadFile, result: BenchMeasured, process_id: str) -> BenchMeasured:
        # An export of many commits begins elsewhere each time: there a result is known by what it
        # is, not by its row.
        sequence = result.sequence
        if self._run.commit is not None:
            sequence = int(digest(series_text(result))[:12], 16)
        time_us = time_us_of(result) or file.time_us
        return replace(result, process_id=process_id, sequence=sequence, time_us=time_us)

    def _list_breaks(self, file: ReadFile, process_id: str) -> Iterator[Event]:
        table = build_break_table(file.file, self._stems) if file.file.breaks else ""
        counts: dict[str, int] = {}
        for row in file.file.breaks:
            task = task_of(table, row.model)
            of_model = digest(process_id, task)
            if row.model not in counts:
                yield self._start_process(of_model, file.time_us, task)
            counts[row.model] = counts.get(row.model, 0) + 1
            yield break_event(row, self._namer, of_model, counts[row.model], file.time_us)

    def _start_process(self, process_id: str, time_us: int, task: str | None) -> ProcessStarted:
        known = {"results": "ok (read from upstream's file)"}
        return ProcessStarted(
            process_id, -1, time_us, self._run.run_id, pid=0, task=task, capabilities=known
        )


def _line_of(event: Event) -> int | None:
    line = (event.origin or "").rpartition(":")[2] if isinstance(event, BenchMeasured) else ""
    return int(line) if line.isdecimal() and len(line) < 10 else None
