"""Load a repro by its id in a database, or from an archive, script or folder.

Nothing is executed. Repros recorded elsewhere or exported need `--trust` to run.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path, PurePath, PurePosixPath
from typing import IO, TypeVar

from compileboard.collectors.contract.repros import (
    MAX_PROGRAM_CHARS,
    MAX_REPROS,
    ReproManifest,
    dump_manifest,
    program_digest,
)
from compileboard.collectors.formats.repro_archive import (
    BadArchive,
    is_archive,
    is_exported,
    read_archive,
    read_script,
)
from compileboard.collectors.formats.torch_repro import (
    NoTorchRepro,
    TorchScript,
    parse_torch_script,
)
from compileboard.collectors.logs.discovery import LogSource, SourceGroup, find_sources
from compileboard.collectors.logs.log_loader import ImportSummary, LoadOptions
from compileboard.collectors.logs.source import EventBatch
from compileboard.collectors.logs.sqlite_sink import SqliteSink
from compileboard.collectors.logs.streams import NoSuchLog, SourceDamaged
from compileboard.collectors.record.own_repros import find_other_writer, find_own_folders
from compileboard.collectors.record.spool import home
from compileboard.collectors.repro.repro import NotRunnable, Repro, list_import_events
from compileboard.collectors.store.ingest.source_files import forget_deletion

AnyPath = TypeVar("AnyPath", bound=PurePath)
SCRIPT_NAMES = ("minifier_launcher.py", "repro.py", "fx_graph_runnable.py", "fx_graph_runnable.txt")
MAX_SCRIPTS = 2_000  # read in a folder
# Dynamo's record of a frame that it failed to trace: function, error and line, as torch names it.
RECORD_NAME = re.compile(r".+_(?P<error>[A-Za-z0-9]+)_\d+\.rec")


def load_repro(name: str, database: str, environment: Mapping[str, str]) -> Repro:
    """Load an existing file or folder, otherwise an id of the database.

    Raises NotRunnable or StoreError.
    """
    return load_path(Path(name)) if is_path(name) else load_stored(name, database, environment)


def load_path(path: Path) -> Repro:
    shown = ascii(str(path))
    if not os.path.lexists(path):
        raise NotRunnable(
            f"there is no file {shown}; expected an id of the dashboard, a file or a folder"
        )
    try:
        if path.is_dir():
            path = _choose_script(_find_scripts(path), path)
        if not path.is_file():
            raise NotRunnable(
                f"{shown} is not a regular file; expected an archive, a script or torch's folder"
            )
        with path.open("rb") as file:
            head = file.read(4)
            file.seek(0)
            if is_archive(head):
                return _load_archive(path, file)
            if path.suffix == ".rec":
                raise NotRunnable(
                    f"{shown} is dynamo's record of a frame and has no graph: only `repro run` "
                    "takes it"
                )
            body = file.read(4 * MAX_PROGRAM_CHARS + 1)
    except BadArchive as error:
        raise NotRunnable(f"{shown}: {error}") from None
    except OSError as error:
        raise NotRunnable(f"{shown} cannot be read: {error.strerror or error}") from None
    return _load_script(path, body)


def load_record(path: Path) -> Repro:
    """Load torch's record, in `error_recordings`, of a frame that Dynamo could not trace.

    Raises NotRunnable if the path is not such a file.
    """
    named = RECORD_NAME.fullmatch(path.name)
    if named is None or not path.is_file():
        raise NotRunnable(
            f"{str(path)!a} is not a record of dynamo: expected a file FUNCTION_ERROR_LINE.rec"
        )
    manifest = ReproManifest(kind="compile", level="dynamo", error_type=named["error"])
    path = path.absolute()  # a trial has its own working folder
    return Repro(manifest, "", name=str(path), path=str(path), distrust=find_other_writer(path))


def list_repros(folder: Path) -> list[Path]:
    """Return the repros of a folder: torch's launcher or smallest checkpoint, otherwise all.

    Raises NotRunnable if there is none.
    """
    scripts = _find_scripts(folder)
    if chosen := _list_choices(scripts):
        return sorted(path for path in chosen if path.name == chosen[0].name)
    found = [
        path
        for path in sorted(folder.rglob("*"))
        if RECORD_NAME.fullmatch(path.name) or _is_repro(path)
    ]
    return found or [_choose_script(scripts, folder)]


def _is_repro(path: Path) -> bool:
    if not path.name.endswith((".py", ".gz", ".tgz", ".tar")):
        return False
    with suppress(NotRunnable):
        return bool(load_path(path))
    return False


def _load_archive(path: Path, file: IO[bytes]) -> Repro:
    distrust = f"{str(path)!a} is an archive, which was made to travel"
    try:
        return Repro(*read_archive(file), name=str(path), path=str(path), distrust=distrust)
    except BadArchive:
        packed: dict[PurePath, LogSource] = {}
        with suppress(NoSuchLog, SourceDamaged):
            packed = {
                PurePosixPath(script.label.rpartition(": ")[2]): script
                for script in find_sources(str(path)).repros
            }
        if not packed:
            raise
    try:
        with packed[_choose_script(list(packed), path)].open() as script:
            body = script.read(4 * MAX_PROGRAM_CHARS + 1)
    except (NoSuchLog, SourceDamaged) as error:
        raise NotRunnable(f"{str(path)!a} cannot be read: {error}") from None
    return replace(_load_script(path, body), distrust=distrust)


def _load_script(path: Path, body: bytes) -> Repro:
    shown = ascii(str(path))
    try:
        text = body.decode("utf-8")
        if is_exported(text):
            return Repro(
                *read_script(text),
                name=str(path),
                path=str(path),
                distrust=f"{str(path)!a} was exported to travel",
            )
        script = parse_torch_script(text)
    except UnicodeDecodeError:
        raise NotRunnable(f"{shown} is not text; expected a repro's archive or script") from None
    except NoTorchRepro as error:
        raise NotRunnable(f"{shown} is not a repro: {error}") from None
    return Repro(
        script.manifest,
        script.program,
        name=str(path),
        path=str(path),
        storage_folder=_find_store(path, script.save_dir),
        storage_hashes=script.hashes,
        distrust=find_other_writer(path),
    )


def _find_store(path: Path, save_dir: str | None) -> str | None:
    candidates = [path.parent, path.parent / "checkpoints", *([Path(save_dir)] if save_dir else [])]
    return next((str(folder) for folder in candidates if (folder / "storages").is_dir()), None)


def _find_scripts(folder: Path) -> list[Path]:
    scripts: list[Path] = []
    for root, folders, files in os.walk(folder, followlinks=False):
        folders.sort()
        scripts += [
            Path(root, name)
            for name in sorted(files)
            if name.endswith(".py") or name in SCRIPT_NAMES
        ]
        if len(scripts) > MAX_SCRIPTS:
            break
    return scripts


def _list_choices(scripts: Sequence[AnyPath]) -> list[AnyPath]:
    checkpoints = [
        path for path in scripts if path.stem.isdigit() and path.parent.name == "checkpoints"
    ]
    named = (path for path in scripts if path.name in SCRIPT_NAMES)
    by_name = sorted(named, key=lambda path: SCRIPT_NAMES.index(path.name))
    return by_name or sorted(checkpoints, key=lambda path: int(path.stem))[:1]


def _choose_script(scripts: Sequence[AnyPath], folder: Path) -> AnyPath:
    chosen = _list_choices(scripts)
    if not chosen:
        raise NotRunnable(
            f"{str(folder)!a} has no repro: expected {', '.join(SCRIPT_NAMES[:3])} or "
            "checkpoints/N.py in it"
        )
    same = [path for path in chosen if path.name == chosen[0].name]
    if len(same) > 1:
        names = ", ".join(ascii(str(path)) for path in same[:3])
        ask = "name" if folder.is_dir() else "unpack it and name"
        raise NotRunnable(f"{str(folder)!a} has {len(same)} repros; {ask} one of them: {names}")
    return chosen[0]


def is_path(name: str) -> bool:
    """Return whether a name is a path, even one that does not exist, and not an id."""
    return (
        os.path.lexists(name)
        or "/" in name
        or name.endswith((".py", ".gz", ".tgz", ".tar", ".txt"))
    )


def load_stored(name: str, database: str, environment: Mapping[str, str]) -> Repro:
    """Load a repro of a database by id or unique prefix. Raises NotRunnable or StoreError."""
    from compileboard.collectors.store.connection import open_reader
    from compileboard.collectors.store.repros import NoSuchRepro, load_storage
    from compileboard.collectors.store.repros import load_repro as load_row

    with closing(open_reader(database)) as connection:
        try:
            stored = load_row(connection, name)
        except NoSuchRepro as error:
            raise NotRunnable(f"{error}; nor is there a file of that name") from None
        except ValueError as error:
            raise NotRunnable(f"repro {name} is stored damaged: {error}") from None
        digests = sorted(stored.storage_bytes)
        values = {digest: load_storage(connection, stored.id, digest) for digest in digests}
    repro = Repro(
        stored.manifest,
        stored.program,
        stored.dynamo_program,
        {digest: body for digest, body in values.items() if body is not None},
        name=f"repro {stored.id}",
        id=stored.id,
        run_id=stored.run_id,
        database=database,
    )
    return trust_own(repro, environment)


def trust_own(repro: Repro, environment: Mapping[str, str]) -> Repro:
    """Add the folders of a repro whose run is on this machine. Any other repro becomes
    untrusted.
    """
    manifest, programs = dump_manifest(repro.manifest), (repro.program, repro.dynamo_program)
    folders = find_own_folders(home(environment), repro.run_id or "", manifest, programs)
    if folders is not None:
        return replace(repro, folders=folders)
    return replace(repro, distrust=f"{repro.name} was not recorded by you on this machine")


NO_REPRO = "no_repro"


def import_scripts(
    connection: sqlite3.Connection, database: str, group: SourceGroup, options: LoadOptions
) -> ImportSummary:
    """Import a group's scripts, each graph once; nothing is stored if none is a repro.

    Raises StoreError, LimitExceeded or OSError.
    """
    imported = ImportSummary("", options.name or group.label)
    scripts: dict[str, TorchScript] = {}
    for source in group.repros:
        try:
            text = _read_repro(source)
            script = parse_torch_script(text)
        except (NoTorchRepro, NoSuchLog, SourceDamaged, UnicodeDecodeError) as error:
            imported.rejects.add(NO_REPRO, example=f"{source.label}: {error}")
            continue
        if options.redact_source:
            imported.rejects.add(
                NO_REPRO, example=f"{source.label}: a repro is source, and --redact-source is given"
            )
            continue
        imported.read_bytes += len(text)
        scripts.setdefault(program_digest(script.program, script.manifest.inputs), script)
    names = sorted(scripts)[:MAX_REPROS]
    imported.log_count = imported.repro_count = len(names)
    if not names:
        return imported
    digest = hashlib.sha256("\x1e".join(names).encode()).hexdigest()
    events = list_import_events(
        [Repro(scripts[name].manifest, scripts[name].program) for name in names],
        digest,
        imported.name,
        "not recorded (repros alone)",
        suite=options.suite,
        tags=dict(options.tags),
    )
    imported.run_id = events[0].process_id
    if options.again:
        forget_deletion(connection, imported.run_id, options.sender)
    sink = SqliteSink(connection, database, imported.run_id, sender=options.sender)
    result = sink.ingest(EventBatch(events))
    imported.deleted, imported.known_run = result.deleted_run, not result.new_count
    imported.record_count = len(names) if result.new_count else 0
    return imported


def _read_repro(source: LogSource) -> str:
    with source.open() as file:
        body = file.read(4 * MAX_PROGRAM_CHARS + 1)
    return body.decode("utf-8")
