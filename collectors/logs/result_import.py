"""Import benchmark result files: one run per folder, or one per commit if rows have commits."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import PurePath

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.contract.events import (
    BenchMeasured,
    Event,
    ProcessStarted,
    RunEnded,
    RunStarted,
)
from compileboard.collectors.contract.rejects import IngestResult, Rejects
from compileboard.collectors.contract.values import fit_event
from compileboard.collectors.decode.records import PathNamer
from compileboard.collectors.formats.merge_files import (
    MergedResults,
    build_break_table,
    commit_key,
    merge,
    series_text,
    time_us_of,
)
from compileboard.collectors.formats.reader import break_event, read_results
from compileboard.collectors.formats.result_file import ResultFile, digest, name_task, stem_of
from compileboard.collectors.logs.discovery import LogSource, SourceGroup
from compileboard.collectors.logs.log_loader import STATE, ImportSummary, LoadOptions, Progress
from compileboard.collectors.logs.source import Checkpoint, EventBatch, ImportedFile, pump
from compileboard.collectors.logs.sqlite_sink import SqliteSink
from compileboard.collectors.logs.streams import LimitExceeded, NoSuchLog, SourceDamaged
from compileboard.collectors.record.spool import new_run_id
from compileboard.collectors.store.ingest.source_files import (
    count_rows,
    find_logs,
    find_result_runs,
    find_runs_of_any,
    forget_deletion,
    list_result_files,
)

ALONE = "alone"  # salt of files without a measured time, and without a sibling that has one


@dataclass
class ParsedFile:
    file: ResultFile
    source: LogSource
    content_hash: str
    size_bytes: int
    time_us: int


@dataclass
class ResultFolder:
    name: str  # name of their run
    read: list[ParsedFile]


@dataclass
class ResultRun:
    run_id: str
    salt: str
    results: list[tuple[ParsedFile, BenchMeasured]] = field(default_factory=list)
    files: list[ParsedFile] = field(default_factory=list)  # their graph breaks and damage are shown
    commit: str | None = None
    branch: str | None = None
    also_in: list[tuple[str, str]] = field(
        default_factory=list
    )  # files that were imported separately: label, run

    def process_id(self, connection: sqlite3.Connection, file: ParsedFile) -> str:
        """Return the file's id. A file that was imported when it was shorter keeps its id."""
        if self.commit is not None:
            return digest("results", self.run_id, file.file.kind, file.file.stem)
        every = [file.file.keys(), file.file.keys(self.salt), file.file.keys(self.run_id)]
        every.append([digest("results", self.run_id, file.file.name)])
        rows = find_logs(connection, [key for keys in every for key in keys])
        known = next((key for key, row in rows.items() if row.run_id == self.run_id), None)
        # The same file may be in another run, with other files beside it.
        return known or next(keys[0] for keys in every if keys and keys[0] not in rows)


def plan_runs(
    connection: sqlite3.Connection,
    folder: ResultFolder,
    merged: MergedResults,
    taken: Collection[str] = (),
) -> list[ResultRun]:
    """Split a folder's results into runs: one per commit and day, and one for the rest.

    `taken` are runs of sibling folders, which match only identical files.
    """
    read = folder.read
    by_file = {id(file.file): file for file in read}
    runs: dict[tuple[str, str], ResultRun] = {}
    others: list[tuple[ParsedFile, BenchMeasured]] = []
    for file, result in merged.results:
        key = commit_key(result)
        if key is None:
            others.append((by_file[id(file)], result))
            continue
        if key not in runs:
            runs[key] = _plan_commit_run(key, result)
        runs[key].results.append((by_file[id(file)], result))
    planned = list(runs.values())
    if others or any(file.file.breaks for file in read):
        run = _plan_content_run(
            connection, folder, {result_run.run_id for result_run in planned}, taken
        )
        run.results = others
        planned.insert(0, run)
    planned[0].files = list(read)
    return planned


def _plan_commit_run(key: tuple[str, str], result: BenchMeasured) -> ResultRun:
    run_id = _run_id(digest("commit", *key))
    return ResultRun(run_id, run_id, commit=key[0], branch=result.facts.get("branch"))


def _plan_content_run(
    connection: sqlite3.Connection,
    folder: ResultFolder,
    of_commits: Collection[str],
    taken: Collection[str],
) -> ResultRun:
    own = [
        file
        for file in folder.read
        if file.file.breaks or file.file.additions or _has_results_without_commit(file.file)
    ] or folder.read
    timed = [(file, keys) for file in own if (keys := file.file.keys())]
    named = timed or [(file, keys) for file in own if (keys := file.file.keys(every=True))]
    homes: dict[str, list[ParsedFile]] = {}
    names: dict[str, str] = {}
    for file, keys in named:
        run_ids = find_runs_of_any(connection, [file.content_hash, *keys])
        names |= run_ids
        for run_id in run_ids:
            homes.setdefault(run_id, []).append(file)
    fit = [
        run_id
        for run_id, files in homes.items()
        if run_id not in of_commits
        # A file that was imported separately does not draw the rest of its folder into its run.
        and (len(files) > 1 or len(named) == 1 or names[run_id] == folder.name)
        and not _has_changed(connection, run_id, folder.read, exactly=run_id in taken)
    ]
    known = max(fit, key=lambda run_id: len(homes[run_id]), default=None)
    run_id = known or _new_id(connection, named)
    run = ResultRun(run_id, run_id if timed else ALONE)
    if known is None:
        alone = [
            (files[0], other)
            for other, files in homes.items()
            if len(files) == 1 and other not in of_commits
        ]
        run.also_in = [
            (file.source.label, other) for file, other in alone if names[other] == file.source.label
        ]
    return run


def _has_results_without_commit(file: ResultFile) -> bool:
    return any(commit_key(result) is None for result in file.results)


def _has_changed(
    connection: sqlite3.Connection, run_id: str, read: Sequence[ParsedFile], *, exactly: bool
) -> bool:
    last: dict[tuple[str, str], str] = {}
    seen: set[str] = set()
    for kind, name, content_hash in list_result_files(connection, run_id):
        last[kind, _strip_extensions(name)] = content_hash
        seen.add(content_hash)
    for file in read:
        if file.content_hash in seen or not (file.file.results or file.file.breaks):
            continue
        before = last.get((file.file.kind, file.file.stem))
        if exactly or (before is not None and before not in file.file.keys(every=True)):
            return True
    return False


def _strip_extensions(label: str) -> str:
    return stem_of(label.rsplit(": ", 1)[-1])


def _new_id(connection: sqlite3.Connection, named: Sequence[tuple[ParsedFile, list[str]]]) -> str:
    """Derive a run's id from its files' first records, so that a deleted run stays deleted as files
    grow.
    """
    run_id = _run_id(min(keys[-1] for _it, keys in named))
    if connection.execute("select 1 from runs where id = :id", {"id": run_id}).fetchone() is None:
        return run_id
    return _run_id(digest("run", *sorted(file.content_hash for file, _keys in named)))


def split_folders(sources: Sequence[LogSource]) -> list[tuple[str, list[LogSource]]]:
    """Split files into runs: folders that contain the same file name are from different nights.

    Returns each part with its folder, or without one if all belong together.
    """
    names = [source.file_name for source in sources]
    if len(set(names)) == len(names):
        return [("", list(sources))]
    folders: dict[str, list[LogSource]] = {}
    for source in sources:
        archive, _, path = source.label.rpartition(": ")
        parents = (archive, PurePath(path).parent.as_posix())
        folders.setdefault(
            "/".join(parent for parent in parents if parent not in ("", ".")), []
        ).append(source)
    return list(folders.items())


def _run_id(key: str) -> str:
    value = int(key, 16)
    return new_run_id(value >> 80 & ((1 << 45) - 1), value & ((1 << 80) - 1))


MAX_BYTES = (
    256 << 20
)  # per file; the phases of all models of upstream's largest suite have some 40 MB
_PIECE_BYTES = 1 << 20


def load_results(
    connection: sqlite3.Connection,
    database: str,
    group: SourceGroup,
    options: LoadOptions,
    progress: Progress = lambda _bytes: None,
    *,
    max_records: int | None = None,
) -> Iterator[ImportSummary]:
    """Import the new results of a group's files, one run at a time.

    Raises NoSuchLog if no file has a result; LimitExceeded, StoreError or OSError.
    """
    now_us, read_bytes = read_clock_us(), 0
    taken: set[str] = set()
    for part, folder in split_folders(group.results):
        read: list[ParsedFile] = []
        for source in folder:
            read.append(_read(source, options, now_us))
            read_bytes += read[-1].size_bytes
            progress(read_bytes)
        merged = merge([file.file for file in read])
        record_count = len(merged.results) + sum(len(file.file.breaks) for file in read)
        if max_records is not None and record_count > max_records:
            raise LimitExceeded(
                f"{group.label}: {record_count:,} records are in it, the limit is "
                f"{max_records:,} records for one "
                "import; import fewer files at once.",
                "records",
            )
        if not merged.results and not any(file.file.breaks for file in read):
            raise NoSuchLog(_format_no_results(read))
        name = options.name or (f"{group.label}/{part}" if part else group.label)
        runs = plan_runs(connection, ResultFolder(name, read), merged, taken)
        taken |= {run.run_id for run in runs}
        for run in sorted(runs, key=lambda run: min(_list_times(run))):
            sink = SqliteSink(connection, database, run.run_id, sender=options.sender)
            yield _import_run(sink, name, options, run, merged)


def _read(source: LogSource, options: LoadOptions, now_us: int) -> ParsedFile:
    rejects = Rejects()
    pieces: list[bytes] = []
    size = 0
    try:
        with closing(source.open()) as stream:
            while (piece := stream.read(_PIECE_BYTES)) and size <= MAX_BYTES:
                pieces.append(piece)
                size += len(piece)
    except LimitExceeded:
        raise
    except (SourceDamaged, EOFError) as error:  # earlier results are kept
        rejects.add("damaged_file", None, str(error))
    if size > MAX_BYTES:
        rejects.add("too_large_file", None, source.label)
        pieces = []
    data = b"".join(pieces)
    file = read_results(source.file_name, data, options.suite)
    if rejects.total:
        file.rejects.by_kind.pop("empty_log", None)
        file.rejects.by_kind.update(rejects.by_kind)
    # With its name: a model breaks in the same way when timed and when checked, and each file
    # reports its own.
    keys = file.keys(every=True) or [digest(file.stem, blake2b(data, digest_size=16).hexdigest())]
    return ParsedFile(file, source, keys[0], size, source.modified_us or now_us)


def _first_reject(file: ResultFile) -> str | None:
    return next((reject.example or kind for kind, reject in file.rejects.by_kind.items()), None)


def _format_no_results(read: list[ParsedFile]) -> str:
    reasons = "; ".join(
        f"{source.file.name}: {_first_reject(source.file) or source.file.kind}"
        for source in read[:3]
    )
    return (
        f"There is no benchmark result in {len(read)} file{'s' if len(read) > 1 else ''} "
        f"({reasons}); expected a table "
        "with a column `name` and one of speedup, abs_latency, accuracy, or the benchmark "
        "database's JSON "
        "(docs/formats.md)."
    )


def _list_times(run: ResultRun) -> list[int]:
    result_times = [time_us_of(result) or file.time_us for file, result in run.results]
    return result_times or [file.time_us for file in run.files]


def _import_run(
    sink: SqliteSink, name: str, options: LoadOptions, run: ResultRun, merged: MergedResults
) -> ImportSummary:
    if run.commit and not options.name:
        name = f"{name} {run.commit[:10]}"
    done = ImportSummary(run.run_id, name, result_count=0, also_in=run.also_in)
    connection = sink.connection
    if options.again:
        forget_deletion(connection, run.run_id, options.sender)
    query = "select 1 from runs where id = :id"
    done.known_run = connection.execute(query, {"id": run.run_id}).fetchone() is not None
    before = count_rows(connection, run.run_id)
    times = _list_times(run)
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
    # Files written at other times, as by a checkout, do not show how long a run took.
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
        files: list[ParsedFile],
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
        """Do nothing, because a file that is not stored is read again."""

    def _read_file(self, other_file: ParsedFile) -> EventBatch:
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

    def _identify(self, file: ParsedFile, result: BenchMeasured, process_id: str) -> BenchMeasured:
        # An export of many commits starts elsewhere each time: there a result is identified by its
        # content, not its row.
        sequence = result.sequence
        if self._run.commit is not None:
            sequence = int(digest(series_text(result))[:12], 16)
        time_us = time_us_of(result) or file.time_us
        return replace(result, process_id=process_id, sequence=sequence, time_us=time_us)

    def _list_breaks(self, file: ParsedFile, process_id: str) -> Iterator[Event]:
        table = build_break_table(file.file, self._stems) if file.file.breaks else ""
        counts: dict[str, int] = {}
        for row in file.file.breaks:
            task = name_task(table, row.model)
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
