"""Back up a live database, and restore it.

<backup>/
    manifest.json   versions, time, rows by table, and each file's size and SHA-256
    database.db     a snapshot in one file without WAL
    trash/          deleted runs
    runs/           files of sealed runs, hard links if on the same disk

Pages are copied in one read transaction beside writers; the WAL grows meanwhile. A backup appears
atomically.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.store.connection import (
    BOARD,
    DATABASE_VERSION,
    StoreError,
    StoreTooNew,
    check_pages,
    explain,
    open_immutable,
    open_reader,
    read_value,
)
from compileboard.collectors.store.leases import SERVE, copy_owner, try_acquire_lease, try_lock
from compileboard.collectors.store.sealed_files import (
    RunFile,
    RunFileDamaged,
    RunFileUnavailable,
    describe_problem,
    fsync_path,
    hash_file,
    list_sealed_runs,
    restore_run_file,
    run_folder,
)
from compileboard.collectors.store.trash import find_sealed_run, trash_path

FORMAT = 1
MANIFEST, DATABASE, TRASH, RUN_FILES = "manifest.json", "database.db", "trash", "runs"
COUNTED = ("runs", "events", "compiles", "results", "payloads", "incidents", "baselines", "audit")
PAGES_AT_ONCE = 1024
# A run is restored, or deleted for good, between the snapshot and the copy of its file.
TRASH_TRIES = 5
Progress = Callable[
    [str, int, int], None
]  # Called with a step in words, the amount done and the total.


class BackupError(StoreError):
    pass


@dataclass(frozen=True)
class BackupFile:
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class BackupManifest:
    format: int
    program_version: str
    database_version: int
    created_us: int
    row_counts: dict[str, int]
    files: dict[str, BackupFile]
    missing_trash: int  # deleted runs whose file was gone already
    missing_run_files: int = 0  # sealed runs whose file was gone already, or damaged


@dataclass(frozen=True)
class RestoredBackup:
    manifest: BackupManifest
    replaced_path: str | None
    replaced_run_count: int | None


@dataclass(frozen=True)
class RestoreReport:
    run_ids: list[str]
    problems: list[str]


def write_backup(
    database: str,
    target: str,
    *,
    program_version: str,
    problems: list[str],
    progress: Progress = lambda step, done, total: None,
) -> BackupManifest:
    """Back up a database into a new folder.

    Files of deleted and sealed runs that cannot be used are left out and listed in `problems`.
    Raises StoreError, for example for a damaged database; the folder is then not created.
    """
    folder = Path(os.path.abspath(target))
    if os.path.lexists(folder):
        raise BackupError(
            f"{target} is there already; give a backup a name of its own, as backups/2026-11-23."
        )
    if not folder.parent.is_dir():
        raise BackupError(f"there is no folder {folder.parent}; make it first.")
    with _partial_folder(folder) as partial:
        created_us = read_clock_us()
        missing, missing_run_files, run_files = _copy_snapshot(database, partial, progress)
        progress("check", 0, 1)
        with closing(open_immutable(partial / DATABASE)) as copy:
            check_pages(
                copy, database
            )  # the copy: its pages were written just now, so they are in memory
            version = int(read_value(copy, "pragma user_version"))
            counts = {
                name: count for name in COUNTED if (count := _count_rows(copy, name)) is not None
            }
        paths = _list_files(partial)
        total_bytes, done_bytes = sum(path.stat().st_size for path in paths), 0
        files: dict[str, BackupFile] = {}
        for path in paths:

            def show(file_bytes: int, before_bytes: int = done_bytes) -> None:
                progress("checksums", before_bytes + file_bytes, total_bytes)

            described = _describe_file(path, show)
            files[str(path.relative_to(partial))] = described
            done_bytes += described.size_bytes
        missing_run_files += _remove_damaged(files, run_files, database, partial)
        problems += [*missing, *missing_run_files]
        manifest = BackupManifest(
            *(FORMAT, program_version, version, created_us, counts, files, len(missing)),
            missing_run_files=len(missing_run_files),
        )
        (partial / MANIFEST).write_text(
            json.dumps(asdict(manifest), indent=2) + "\n", encoding="utf-8"
        )
        folders = [path for path in partial.rglob("*") if path.is_dir()]
        progress("to the disk", 0, 1)
        for path in (*_list_files(partial), *folders, partial):
            fsync_path(path)
        try:
            os.rename(partial, folder)
        except OSError as error:
            raise BackupError(f"{target} cannot be made ({error.strerror}).") from error
        fsync_path(folder.parent)
    return manifest


@contextmanager
def _partial_folder(folder: Path) -> Iterator[Path]:
    partial = folder.with_name(f"{folder.name}.partial")
    try:
        partial.mkdir(mode=0o700, exist_ok=True)
        descriptor = try_lock(partial, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise BackupError(
            f"{partial} cannot be made ({error.strerror}); give another folder."
        ) from error
    if descriptor is None:
        raise BackupError(
            f"another backup is being written to {folder}; wait for it, or give another name."
        )
    try:
        try:
            for left in partial.iterdir():
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
            (partial / TRASH).mkdir(mode=0o700)
            yield partial
        except BaseException as error:
            shutil.rmtree(partial, ignore_errors=True)
            if isinstance(error, OSError):
                raise BackupError(
                    f"{partial} cannot be written ({error.strerror}); nothing was backed up."
                ) from error
            raise
    finally:
        os.close(descriptor)


def _copy_snapshot(
    database: str, partial: Path, progress: Progress
) -> tuple[list[str], list[str], dict[str, RunFile]]:
    for attempt in range(TRASH_TRIES):
        with closing(open_reader(database, allow_older=True)) as reader:
            reader.execute("begin")
            missing = _copy_trash(reader, database, partial / TRASH)
            run_files = _list_run_files(reader, partial / TRASH)
            missing_run_files = _copy_run_files(run_files, database, partial)
            if (missing or missing_run_files) and attempt + 1 < TRASH_TRIES:
                time.sleep(0.1)
                continue
            _copy_pages(reader, database, partial / DATABASE, progress)
            return missing, missing_run_files, run_files
    raise AssertionError("unreachable")


def _copy_trash(reader: sqlite3.Connection, database: str, target: Path) -> list[str]:
    rows = reader.execute(
        "select run_id from removed_runs where expires_us is not null order by run_id"
    )
    paths = [trash_path(database, row["run_id"]) for row in rows]
    missing = []
    for path in paths:
        try:
            shutil.copyfile(path, target / path.name)
        except FileNotFoundError:
            missing.append(f"{path} is missing: its deleted run cannot be restored.")
    return missing


def _list_run_files(reader: sqlite3.Connection, trash: Path) -> dict[str, RunFile]:
    sealed = list_sealed_runs(reader)
    for path in trash.glob("*.db"):
        # One that is damaged, which `verify` names, or goes just now has no file that we could
        # name.
        with suppress(sqlite3.DatabaseError), closing(open_immutable(path)) as deleted:
            run = find_sealed_run(deleted)
            sealed += [run] if run is not None else []
    return {run.run_id: run.file for run in sealed}


def _copy_run_files(files: Mapping[str, RunFile], database: str, partial: Path) -> list[str]:
    problems = []
    for run_id, file in sorted(files.items()):
        target = partial / RUN_FILES / file.name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            if not target.exists():
                _link(run_folder(database) / file.name, target)
        except OSError:
            target.unlink(missing_ok=True)
            problem = describe_problem(database, file)
            if problem is None:  # it is the backup's disk that fails
                raise
            problems.append(f"run {run_id}: {problem}")
    return problems


def _remove_damaged(
    files: dict[str, BackupFile], run_files: Mapping[str, RunFile], database: str, partial: Path
) -> list[str]:
    problems = []
    for run_id, file in sorted(run_files.items()):
        name = f"{RUN_FILES}/{file.name}"
        if name in files and files[name].sha256 != file.digest.hex():
            del files[name]
            (partial / name).unlink()
            problem = (
                describe_problem(database, file)
                or f"{run_folder(database) / file.name} changed meanwhile"
            )
            problems.append(f"run {run_id}: {problem}")
    return problems


def _link(source: Path, target: Path) -> None:
    """Hard-link a file that never changes, or copy it."""
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links; or it is missing, as copyfile tells
        shutil.copyfile(source, target)


def _copy_pages(
    reader: sqlite3.Connection, database: str, target: Path, progress: Progress
) -> None:
    try:
        with closing(sqlite3.connect(target, isolation_level=None)) as copy:
            copy.execute("pragma synchronous = off")  # the whole file is synced at the end
            reader.backup(
                copy,
                pages=PAGES_AT_ONCE,
                progress=lambda _, left, total: progress("pages", total - left, total),
            )
            copy.execute("pragma journal_mode = delete")
    except sqlite3.Error as error:
        raise explain(error, str(target) if "full" in str(error) else database) from error


def _count_rows(copy: sqlite3.Connection, table: str) -> int | None:
    try:
        return int(read_value(copy, f"select count(*) from {table}"))  # noqa: S608 - our own names
    except sqlite3.OperationalError:
        return None  # The database is of a later version than the backup.


def _list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)


def _describe_file(path: Path, progress: Callable[[int], None] = lambda done: None) -> BackupFile:
    with path.open("rb") as file:
        return BackupFile(path.stat().st_size, hash_file(file, progress).hex())


def is_backup(path: str) -> bool:
    return (Path(path) / MANIFEST).is_file()


def read_manifest(folder: str) -> BackupManifest:
    """Read a backup's manifest. Raises BackupError if it is missing, damaged or of a later
    version.
    """
    path = Path(folder) / MANIFEST
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["format"] > FORMAT:
            raise StoreTooNew(
                f"{folder} is a backup of format {values['format']}; this CompileBoard knows "
                f"{FORMAT}. Upgrade it."
            )
        values["files"] = {name: BackupFile(**file) for name, file in values["files"].items()}
        return BackupManifest(**values)
    except FileNotFoundError:
        raise BackupError(
            f"{folder} is not a backup: it has no {MANIFEST}. Give the folder that `backup` made."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackupError(f"{path} cannot be read or is damaged; take another backup.") from error


def list_changed_files(folder: str, manifest: BackupManifest) -> list[str]:
    root = Path(folder)
    present = {str(path.relative_to(root)): path for path in _list_files(root)}
    problems = [f"{name} is missing" for name in sorted(manifest.files.keys() - present.keys())]
    problems += [
        f"{name} is not of this backup" for name in sorted(present.keys() - manifest.files.keys())
    ]
    for name in sorted(manifest.files.keys() & present.keys()):
        if (file := _describe_file(present[name])) != manifest.files[name]:
            expected = manifest.files[name]
            what = "size" if file.size_bytes != expected.size_bytes else "SHA-256"
            problems.append(f"{name} is damaged: its {what} is not the manifest's")
    return problems


def restore_run_files(folder: str, database: str) -> RestoreReport:
    """Restore missing or damaged files of sealed runs. The database may be in use. Raises
    StoreError.
    """
    read_manifest(folder)
    restored = RestoreReport([], [])
    files = _list_files_of(database)
    lost = {
        run_id: problem
        for run_id, file in sorted(files.items())
        if (problem := describe_problem(database, file))
    }
    current = _list_files_of(database) if lost else {}
    for run_id, problem in lost.items():
        file = files[run_id]
        if (
            current.get(run_id) != file
        ):  # put back, sealed anew or deleted for good since: this file is nobody's
            continue
        try:
            restore_run_file(database, file, Path(folder, RUN_FILES))
            restored.run_ids.append(run_id)
        except RunFileUnavailable as error:
            kind = "damaged" if isinstance(error, RunFileDamaged) else "not"
            restored.problems.append(
                f"run {run_id}: {problem} The file is {kind} in {folder}; try another backup."
            )
        except StoreError as error:
            restored.problems.append(f"run {run_id}: {error}")
    return restored


def _list_files_of(database: str) -> dict[str, RunFile]:
    with closing(open_reader(database)) as reader:
        return _list_run_files(reader, trash_path(database, "").parent)


def restore_backup(folder: str, database: str) -> RestoredBackup:
    manifest = read_manifest(folder)
    if manifest.database_version > DATABASE_VERSION:
        raise StoreTooNew(
            f"{folder} has database version {manifest.database_version}; this CompileBoard "
            "knows versions up to "
            f"{DATABASE_VERSION}. Upgrade CompileBoard."
        )
    problems = list_changed_files(folder, manifest)
    if problems:
        raise BackupError(
            f"{folder} is damaged, so nothing was replaced: {problems[0]}. Take another backup."
        )
    target = Path(os.path.realpath(database))
    try:
        lease = try_acquire_lease(target, SERVE)
        if lease is None:
            raise BackupError(
                f"{database} is served; stop its servers first. Nothing was replaced."
            )
        with lease:
            return _replace(Path(folder), target, manifest)
    except OSError as error:
        raise BackupError(
            f"{database} cannot be replaced ({error.strerror}: {error.filename})."
        ) from error


def _replace(folder: Path, target: Path, manifest: BackupManifest) -> RestoredBackup:
    trash, runs = trash_path(str(target), "").parent, run_folder(str(target))
    new_trash, new_runs = Path(f"{trash}.restoring"), Path(f"{target}-runs.restoring")
    new = Path(f"{target}.restoring")
    moves = [(new_trash, trash, "-trash"), (new, target, "")]
    if (folder / RUN_FILES).is_dir() or target.name == BOARD:
        moves.insert(0, (new_runs, runs, "-runs"))
    _remove_left(new, new_trash, new_runs)
    try:
        shutil.copyfile(folder / DATABASE, new)
        sources = {new_trash: folder / TRASH, new_runs: folder / RUN_FILES}
        for made, _, _ in moves:
            if made != new:
                made.mkdir(mode=0o700)  # nobody else's while it is filled
                if sources[made].is_dir():
                    shutil.copytree(sources[made], made, dirs_exist_ok=True)
                    made.chmod(0o700)
        model = target if target.exists() else target.parent
        if model == target:
            shutil.copymode(target, new)
        for made, _, _ in moves:
            for path in (*made.rglob("*"), made):
                copy_owner(path, model)
                fsync_path(path)
        run_count = _close_down(target) if target.exists() else None
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        aside = target.with_name(f"{target.name}.replaced-{stamp}")
        Path(f"{target}-shm").unlink(missing_ok=True)
        for suffix in ("", "-wal", "-journal"):  # a damaged one's would be read into the new one
            if os.path.exists(f"{target}{suffix}"):
                os.rename(f"{target}{suffix}", f"{aside}{suffix}")
        for made, place, suffix in moves:
            if place.exists():
                os.rename(place, f"{aside}{suffix}")
            os.rename(made, place)
        fsync_path(target.parent)
    except BaseException:
        _remove_left(new, new_trash, new_runs)
        raise
    return RestoredBackup(manifest, None if run_count is None else str(aside), run_count)


def _remove_left(new: Path, *folders: Path) -> None:
    new.unlink(missing_ok=True)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _close_down(target: Path) -> int:
    """Checkpoint an unused database; return its number of runs. Raises BackupError if it is
    in use.
    """
    with closing(sqlite3.connect(target, timeout=1, isolation_level=None)) as old:
        try:
            old.execute("pragma locking_mode = exclusive")
            old.execute("begin exclusive")
            with suppress(sqlite3.OperationalError):
                return int(read_value(old, "select count(*) from runs"))
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                return 0
            raise BackupError(
                f"{target} is open in another program, such as a recorder; end it first. "
                "Nothing was replaced."
            ) from error
        except sqlite3.DatabaseError:
            return 0  # damaged: that may be why a backup is put back
        finally:
            if old.in_transaction:
                old.execute("rollback")
            with suppress(sqlite3.Error):
                old.execute("pragma journal_mode = delete")
    return 0
