"""Store torch's scripts of failing graphs as repros of a new run, reading them as text only."""

from __future__ import annotations

import hashlib
import sqlite3
import time

from compileboard.collectors.contract.events import (
    Event,
    ProcessStarted,
    ReproCaptured,
    RunEnded,
    RunStarted,
)
from compileboard.collectors.contract.repros import (
    MOST_PROGRAM_CHARS,
    MOST_REPROS,
    dump_manifest,
    program_digest,
)
from compileboard.collectors.formats.torch_repro import (
    NoTorchRepro,
    TorchScript,
    parse_torch_script,
)
from compileboard.collectors.pipeline.log_loader import Imported, LoadOptions
from compileboard.collectors.pipeline.source import EventBatch
from compileboard.collectors.pipeline.sqlite_sink import SqliteSink
from compileboard.collectors.sources.discovery import LogSource, SourceGroup
from compileboard.collectors.sources.streams import NoSuchLog, SourceDamaged
from compileboard.collectors.spool.folders import new_run_id
from compileboard.collectors.store.ingest.source_files import forget_deletion

NO_REPRO = "no_repro"


def import_scripts(
    connection: sqlite3.Connection, database: str, group: SourceGroup, options: LoadOptions
) -> Imported:
    """Import a group's scripts, each graph once; nothing is stored if none is a repro.

    Raises StoreError, LimitExceeded or OSError.
    """
    imported = Imported("", options.name or group.label)
    scripts: dict[str, TorchScript] = {}
    for source in group.repros:
        try:
            text = _read(source)
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
    names = sorted(scripts)[:MOST_REPROS]
    imported.log_count = imported.repro_count = len(names)
    if not names:
        return imported
    digest = hashlib.sha256("\x1e".join(names).encode()).hexdigest()
    # The same scripts are the same run, whenever they come.
    imported.run_id = new_run_id(0, int(digest[:20], 16))
    if options.again:
        forget_deletion(connection, imported.run_id, options.sender)
    events = _list_events(imported, digest[:32], [scripts[name] for name in names], options)
    sink = SqliteSink(connection, database, imported.run_id, sender=options.sender)
    result = sink.ingest(EventBatch(events))
    imported.deleted, imported.known_run = result.deleted_run, not result.new_count
    imported.record_count = len(names) if result.new_count else 0
    return imported


def _read(source: LogSource) -> str:
    with source.open() as file:
        body = file.read(4 * MOST_PROGRAM_CHARS + 1)
    return body.decode("utf-8")


def _list_events(
    imported: Imported, process_id: str, scripts: list[TorchScript], options: LoadOptions
) -> list[Event]:
    run_id, now_us = imported.run_id, time.time_ns() // 1000
    first = scripts[0].manifest
    started = RunStarted(
        run_id,
        0,
        now_us,
        run_id,
        imported.name,
        source="import",
        suite=options.suite,
        tags=dict(options.tags),
    )
    process = ProcessStarted(
        process_id,
        0,
        now_us,
        run_id,
        pid=0,
        torch_version=first.versions.get("torch"),
        cuda_version=first.versions.get("cuda"),
        capabilities={"trace": "not recorded (repros alone)"},
    )
    captured = [
        ReproCaptured(
            process_id,
            1 + number,
            now_us,
            position=number,
            manifest=dump_manifest(script.manifest),
            program=script.program,
        )
        for number, script in enumerate(scripts)
    ]
    return [started, process, *captured, RunEnded(run_id, 1, now_us, run_id, "imported")]
