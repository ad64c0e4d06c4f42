"""Verify a database or backup: pages, references, roll-ups, deleted and sealed runs, texts."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from compileboard.collectors.store.codec import unpack_bytes
from compileboard.collectors.store.connection import DATABASE_VERSION, open_reader, set_cache
from compileboard.collectors.store.dashboard.trash import find_sealed_run, trash_path
from compileboard.collectors.store.errors import explain
from compileboard.collectors.store.maintenance.backup import (
    DATABASE,
    TRASH,
    is_backup,
    list_changed_files,
    read_manifest,
)
from compileboard.collectors.store.maintenance.recount import list_differences
from compileboard.collectors.store.sealed.files import RunFileUnavailable, describe_problem
from compileboard.collectors.store.sealed.reopening import unpack_current
from compileboard.collectors.store.sealed.rows import SealedRun, get_sealed_run, list_sealed_runs

MOST_PROBLEMS = 20
CACHE_KIB = (
    64 << 10
)  # each row is looked up in every index: a third less CPU time, a quarter of the reads


class StoreCheck(NamedTuple):
    subject: str
    problems: tuple[str, ...] = ()
    skipped: str | None = None


def verify(
    path: str, *, texts: bool = False, progress: Callable[[str], None] = lambda subject: None
) -> Iterator[StoreCheck]:
    if is_backup(path):
        manifest = read_manifest(path)
        progress("files of the backup")
        yield StoreCheck("files of the backup", tuple(list_changed_files(path, manifest)))
        yield from _verify_database(
            os.path.join(path, DATABASE), Path(path, TRASH), texts, progress
        )
    else:
        yield from _verify_database(path, trash_path(path, "").parent, texts, progress)


def _verify_database(
    path: str, trash: Path, texts: bool, progress: Callable[[str], None] = lambda subject: None
) -> Iterator[StoreCheck]:
    with closing(open_reader(path, allow_older=True)) as reader:
        set_cache(reader, CACHE_KIB)
        try:
            progress("pages and indexes")
            rows = reader.execute(f"pragma integrity_check({MOST_PROBLEMS})")
            yield StoreCheck(
                "pages and indexes", tuple(str(row[0]) for row in rows if row[0] != "ok")
            )
            progress("references")
            yield StoreCheck("references", tuple(_list_orphans(reader)))
            version = int(reader.execute("pragma user_version").fetchone()[0])
            if version < DATABASE_VERSION:
                reason = f"version {version}; `compileboard migrate` a copy to check them"
                yield StoreCheck("roll-ups", skipped=reason)
                yield StoreCheck("deleted runs", skipped=reason)
                yield StoreCheck("sealed runs", skipped=reason)
            else:
                progress("roll-ups")
                yield StoreCheck("roll-ups", tuple(list_differences(reader)))
                progress("deleted runs")
                yield StoreCheck("deleted runs", tuple(_list_lost_trash(reader, path, trash)))
                progress("sealed runs")
                yield StoreCheck("sealed runs", tuple(_list_damaged_runs(reader, path, texts)))
            if texts:
                progress("texts")
                yield StoreCheck("texts", tuple(_list_damaged_texts(reader)))
            else:
                yield StoreCheck("texts", skipped="--texts reads each against its digest")
        except sqlite3.DatabaseError as error:
            explained = explain(error, path)
            if "damaged" not in str(explained):
                raise explained from error
            yield StoreCheck("rest of the file", (str(explained),))


def _list_orphans(reader: sqlite3.Connection) -> Iterator[str]:
    for position, row in enumerate(reader.execute("pragma foreign_key_check")):
        if position == MOST_PROBLEMS:
            return
        yield f"{row['table']}, row {row['rowid']}: points to no row of {row['parent']}"


def _list_lost_trash(reader: sqlite3.Connection, path: str, folder: Path) -> Iterator[str]:
    rows = reader.execute(
        "select run_id from removed_runs where expires_us is not null order by run_id"
    ).fetchall()
    for row in rows:
        file = folder / trash_path(path, row["run_id"]).name
        if not file.is_file():
            yield f"run {row['run_id']}: {file} is missing, it cannot be restored"
            continue
        try:
            with closing(
                sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
            ) as deleted:
                state = deleted.execute("pragma quick_check(1)").fetchone()[0]
                sealed = find_sealed_run(deleted)
                problem = sealed and describe_problem(path, sealed.file)
                if problem:
                    yield f"run {row['run_id']}: it cannot be restored: {problem}"
        except sqlite3.DatabaseError as error:
            state = str(error)
        if state != "ok":
            yield f"run {row['run_id']}: {file} is damaged, it cannot be restored"


def _list_damaged_runs(reader: sqlite3.Connection, path: str, whole: bool) -> Iterator[str]:
    count = 0
    for sealed in list_sealed_runs(reader):
        problem = describe_problem(path, sealed.file)
        try:
            problems = (
                [problem] if problem else _list_run_problems(reader, path, sealed) if whole else []
            )
        except RunFileUnavailable as error:  # pruned or reopened meanwhile
            problems = [str(error)] if get_sealed_run(reader, sealed.run_id) == sealed else []
        yield from (f"run {sealed.run_id}: {problem}" for problem in problems)
        count += len(problems)
        if count >= MOST_PROBLEMS:
            return


def _list_run_problems(reader: sqlite3.Connection, path: str, sealed: SealedRun) -> list[str]:
    with TemporaryDirectory() as folder:
        file = Path(folder, "run.db")
        unpack_current(path, sealed.file, file)
        problems = [
            problem
            for check in _verify_database(str(file), Path(folder, TRASH), True)
            for problem in check.problems
        ]
        with closing(open_reader(file)) as run:
            query = "select * from run_totals where run_id = ?"
            totals = [
                tuple(source.execute(query, (sealed.run_id,)).fetchone())
                for source in (reader, run)
            ]
        return [
            *problems,
            *(["its totals are not those of its file"] if totals[0] != totals[1] else []),
        ]


def _list_damaged_texts(reader: sqlite3.Connection) -> Iterator[str]:
    count = 0
    for row in reader.execute("select id, digest, body from payloads"):
        try:
            digest = blake2b(unpack_bytes(row["body"]), digest_size=len(row["digest"])).digest()
            is_whole = digest == row["digest"]
        except ValueError:
            is_whole = False
        if not is_whole:
            count += 1
            yield f"text {row['id']}: not what its digest says"
        if count == MOST_PROBLEMS:
            return
