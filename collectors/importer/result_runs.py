"""Which run a file of results belongs to: by its first records, its whole content, or the commit that its rows name."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from collectors.events import BenchMeasured
from collectors.formats.results import ResultFile, digest
from collectors.formats.twins import Merged, commit_key
from collectors.read.sources import LogSource
from collectors.record.home import new_run_id
from collectors.store.logs import find_logs
from collectors.store.result_files import find_result_runs

ALONE = "alone"  # salt of files without a measured time that come without one that has


@dataclass
class ReadFile:
    """Hold one file with what it was read from."""

    file: ResultFile
    source: LogSource
    content_hash: str
    size_bytes: int
    time_us: int


@dataclass
class ResultRun:
    """Hold what becomes one run."""

    run_id: str
    salt: str
    results: list[tuple[ReadFile, BenchMeasured]] = field(default_factory=list)
    files: list[ReadFile] = field(default_factory=list)  # whose breaks and damage it shows
    commit: str | None = None
    branch: str | None = None
    elsewhere: list[tuple[str, str]] = field(default_factory=list)  # files of other runs: label, run

    def process_id(self, connection: sqlite3.Connection, it: ReadFile) -> str:
        """Return the file's identity: that which it was given when it was shorter, if it was imported so."""
        if self.commit is not None:
            return digest("results", self.run_id, it.file.kind, it.file.stem)
        keys = it.file.keys() or it.file.keys(self.salt) or [digest("results", self.run_id, it.file.name)]
        return next(iter(find_logs(connection, keys)), keys[0])


def plan_runs(connection: sqlite3.Connection, read: Sequence[ReadFile], merged: Merged) -> list[ResultRun]:
    """Part the results of one folder into runs: one of each commit and day that rows name, one of all others."""
    by_file = {id(it.file): it for it in read}
    runs: dict[tuple[str, str] | None, ResultRun] = {}
    has_breaks = any(it.file.breaks for it in read)
    for file, result in merged.results:
        key = commit_key(result)
        if key not in runs:
            runs[key] = _commit_run(key, result) if key else _content_run(connection, read)
        runs[key].results.append((by_file[id(file)], result))
    if None not in runs and has_breaks:
        runs[None] = _content_run(connection, read)
    (runs.get(None) or next(iter(runs.values()))).files = list(read)
    return list(runs.values())


def _commit_run(key: tuple[str, str], result: BenchMeasured) -> ResultRun:
    run_id = _run_id(digest("commit", *key))
    return ResultRun(run_id, run_id, commit=key[0], branch=result.facts.get("branch"))


def _content_run(connection: sqlite3.Connection, read: Sequence[ReadFile]) -> ResultRun:
    """Find the run that the files are in already, or name a new one after them."""
    timed = [(it, keys) for it in read if (keys := it.file.keys())]
    named = timed or [(it, keys) for it in read if (keys := it.file.keys(ALONE))]
    homes = {id(it): _find_home(connection, it, keys) for it, keys in named}
    known = next((home for home in homes.values() if home), None)
    run_id = known or _run_id(min(keys[-1] for _it, keys in named))
    run = ResultRun(run_id, run_id if timed else ALONE)
    run.elsewhere = [(it.source.label, home) for it, _keys in named if (home := homes[id(it)]) not in (None, run_id)]
    return run


def _find_home(connection: sqlite3.Connection, it: ReadFile, keys: list[str]) -> str | None:
    rows = find_logs(connection, keys)
    if rows:
        return next(iter(rows.values())).run_id
    # A rounded twin has no rows of its own; it is known by all that it says.
    return next(iter(find_result_runs(connection, it.content_hash)), None)


def part_folders(sources: Sequence[LogSource]) -> list[list[LogSource]]:
    """Part files into those of one run: folders in which a file has the same name are of different nights."""
    names = [source.file_name for source in sources]
    if len(set(names)) == len(names):
        return [list(sources)]
    folders: dict[str, list[LogSource]] = {}
    for source in sources:
        folders.setdefault(PurePath(source.label).parent.as_posix(), []).append(source)
    return list(folders.values())


def _run_id(key: str) -> str:
    """Make the id of a run of its content; there may be no time in it, and none is made up."""
    value = int(key, 16)
    return new_run_id(value >> 80 & ((1 << 45) - 1), value & ((1 << 80) - 1))
