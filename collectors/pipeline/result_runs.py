"""Decide which run a result file belongs to: by its records, or by the commit in its rows.

A longer copy of a file starts with the same records; if one record differs, it is another file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.formats.file_names import stem_of
from compileboard.collectors.formats.merge_files import Merged, commit_key
from compileboard.collectors.formats.results import ResultFile, digest
from compileboard.collectors.sources.discovery import LogSource
from compileboard.collectors.spool.folders import new_run_id
from compileboard.collectors.store.ingest.source_files import (
    find_logs,
    find_runs_of_any,
    list_result_files,
)

ALONE = "alone"  # salt of files without a measured time that come without one that has


@dataclass
class ReadFile:
    file: ResultFile
    source: LogSource
    content_hash: str
    size_bytes: int
    time_us: int


@dataclass
class ResultFolder:
    name: str  # what a run of them is called
    read: list[ReadFile]


@dataclass
class ResultRun:
    run_id: str
    salt: str
    results: list[tuple[ReadFile, BenchMeasured]] = field(default_factory=list)
    files: list[ReadFile] = field(default_factory=list)  # whose breaks and damage it shows
    commit: str | None = None
    branch: str | None = None
    also_in: list[tuple[str, str]] = field(
        default_factory=list
    )  # files that were imported by themselves: label, run

    def process_id(self, connection: sqlite3.Connection, file: ReadFile) -> str:
        """Return the file's id; a file that was imported when it was shorter keeps its id."""
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
    merged: Merged,
    taken: Collection[str] = (),
) -> list[ResultRun]:
    """Split a folder's results into runs: one per commit and day, and one for the rest.

    `taken` are runs of sibling folders, which match only identical files.
    """
    read = folder.read
    by_file = {id(file.file): file for file in read}
    runs: dict[tuple[str, str], ResultRun] = {}
    others: list[tuple[ReadFile, BenchMeasured]] = []
    for file, result in merged.results:
        key = commit_key(result)
        if key is None:
            others.append((by_file[id(file)], result))
            continue
        if key not in runs:
            runs[key] = _commit_run(key, result)
        runs[key].results.append((by_file[id(file)], result))
    planned = list(runs.values())
    if others or any(file.file.breaks for file in read):
        run = _content_run(connection, folder, {result_run.run_id for result_run in planned}, taken)
        run.results = others
        planned.insert(0, run)
    planned[0].files = list(read)
    return planned


def _commit_run(key: tuple[str, str], result: BenchMeasured) -> ResultRun:
    run_id = _run_id(digest("commit", *key))
    return ResultRun(run_id, run_id, commit=key[0], branch=result.facts.get("branch"))


def _content_run(
    connection: sqlite3.Connection,
    folder: ResultFolder,
    of_commits: Collection[str],
    taken: Collection[str],
) -> ResultRun:
    own = [
        file
        for file in folder.read
        if file.file.breaks or file.file.additions or _has_own(file.file)
    ] or folder.read
    timed = [(file, keys) for file in own if (keys := file.file.keys())]
    named = timed or [(file, keys) for file in own if (keys := file.file.keys(every=True))]
    homes: dict[str, list[ReadFile]] = {}
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
        # A file that was imported by itself does not draw the rest of its folder into a run that is
        # called after it.
        and (len(files) > 1 or len(named) == 1 or names[run_id] == folder.name)
        and not _differs(connection, run_id, folder.read, exactly=run_id in taken)
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


def _has_own(file: ResultFile) -> bool:
    return any(commit_key(result) is None for result in file.results)


def _differs(
    connection: sqlite3.Connection, run_id: str, read: Sequence[ReadFile], *, exactly: bool
) -> bool:
    last: dict[tuple[str, str], str] = {}
    seen: set[str] = set()
    for kind, name, content_hash in list_result_files(connection, run_id):
        last[kind, _stem(name)] = content_hash
        seen.add(content_hash)
    for file in read:
        if file.content_hash in seen or not (file.file.results or file.file.breaks):
            continue
        before = last.get((file.file.kind, file.file.stem))
        if exactly or (before is not None and before not in file.file.keys(every=True)):
            return True
    return False


def _stem(label: str) -> str:
    return stem_of(label.rsplit(": ", 1)[-1])


def _new_id(connection: sqlite3.Connection, named: Sequence[tuple[ReadFile, list[str]]]) -> str:
    """Name a run after its files' first records, so that a deleted run stays deleted as files
    grow.
    """
    run_id = _run_id(min(keys[-1] for _it, keys in named))
    if connection.execute("select 1 from runs where id = :id", {"id": run_id}).fetchone() is None:
        return run_id
    return _run_id(digest("run", *sorted(file.content_hash for file, _keys in named)))


def part_folders(sources: Sequence[LogSource]) -> list[tuple[str, list[LogSource]]]:
    """Split files into runs: folders that contain the same file name are of different nights.

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
