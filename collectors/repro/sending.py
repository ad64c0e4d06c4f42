"""Export a repro to a file, another database or a server. It is never executed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from compileboard.collectors.contract.events import Event, ReproAnswered
from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.contract.repros import dump_manifest
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.contract.shapes import Gpu
from compileboard.collectors.formats.repro_archive import (
    MAX_ARCHIVE_BYTES,
    BadArchive,
    read_archive,
    write_archive,
    write_script,
)
from compileboard.collectors.logs.source import EventBatch
from compileboard.collectors.logs.sqlite_sink import SqliteSink
from compileboard.collectors.push.client import (
    Client,
    ServerResponse,
    explain,
    find_value,
    quote_path,
)
from compileboard.collectors.push.outbox import outbox_root
from compileboard.collectors.push.outbox_report import describe_delivery
from compileboard.collectors.push.run_bundles import bundle_runs, temporary_database
from compileboard.collectors.push.target import Target
from compileboard.collectors.record.outbox_sink import OutboxSink
from compileboard.collectors.record.spool import replace_file
from compileboard.collectors.repro.loading import trust_own
from compileboard.collectors.repro.preloads import list_preload, relative_name
from compileboard.collectors.repro.repro import NotRunnable, Repro, list_import_events
from compileboard.collectors.store.connection import StoreFull, checkpoint
from compileboard.collectors.store.ingest.repro_writer import repro_id
from compileboard.collectors.store.repros import ReproResult, list_repros, list_results


def export_repro(repro: Repro, output: str, preload: Sequence[str], *, is_forced: bool) -> str:
    """Write a repro atomically as a script or archive; return a summary.

    Raises NotRunnable if the file exists and `is_forced` is not set, its name ends otherwise, or it
    cannot be written.
    """
    path = Path(output)
    listed = list_preload(repro.manifest.preload, [relative_name(name) for name in preload])
    manifest = replace(repro.manifest, preload=tuple(listed))
    parts = (manifest, repro.program, repro.dynamo_program, repro.values)
    note = ""
    if output.endswith((".tar.gz", ".tgz")):
        body = write_archive(*parts)
    elif output.endswith(".py"):
        try:
            text, is_whole = write_script(*parts)
        except ValueError as error:
            raise NotRunnable(
                f"{repro.name} cannot be a script: {error}; export it as .tar.gz"
            ) from None
        body = text.encode("utf-8", "backslashreplace")
        if not is_whole:
            note = (
                "; its input values exceed 1 MB, so the script draws random ones; "
                "export as .tar.gz to keep them"
            )
    else:
        raise NotRunnable(f"{output!a}: expected a name that ends in .py or .tar.gz")
    if path.exists() and not is_forced:
        raise NotRunnable(f"there is a file {output!a} already; --force replaces it")
    try:
        replace_file(path, body)
    except OSError as error:
        raise NotRunnable(f"{output!a} cannot be written: {error.strerror or error}") from None
    if not note and not repro.values:
        note = "; no values of inputs are recorded, they are drawn"
    return f"wrote {output} ({len(body):,} bytes){note}"


def import_repro(repro: Repro, database: str, name: str | None = None) -> tuple[str, bool]:
    """Store a repro in a run named by its content; return its id and whether it is new.

    Raises NotRunnable if that run was deleted, StoreError if the database cannot be written.
    """
    body = json.dumps(dump_manifest(repro.manifest), sort_keys=True)
    text = "\x1e".join((body, repro.program, repro.dynamo_program or "", *sorted(repro.values)))
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    name = name or Path(repro.path or repro.name).name
    device = repro.manifest.device
    gpus = [Gpu(name=device)] if device not in (None, "cpu") else []
    trace = "not recorded (a repro alone)"
    events = list_import_events([repro], digest, name, trace, gpus=gpus)
    with closing(SqliteSink.open(database, events[0].process_id)) as sink:
        result = sink.ingest(EventBatch(events))
        if result.deleted_run:
            raise NotRunnable(
                f"the run of {repro.name} was deleted in {database}; restore it there"
            )
        checkpoint(sink.connection)
    return format_id(repro_id(events[1].process_id, 0)), result.new_count > 0


def queue_repro(
    repro: Repro, root: Path, config: RunConfig, print_line: Callable[[str], None]
) -> tuple[list[str], str]:
    """Queue a repro as a run of its own unless the server has it; return run ids and the repro's
    id.

    Raises StoreError or OSError.
    """
    with temporary_database() as database:
        sent_id, _ = import_repro(repro, database)
        return list(bundle_runs(database, root, config, print_line)), sent_id


def load_served(name: str, config: RunConfig, environment: Mapping[str, str]) -> Repro:
    """Load a repro with its values from a server.

    Raises NotRunnable, ServerUnavailable or TargetError.
    """
    target = Target.of(config)
    with closing(Client(target, environment)) as client:
        described = client.ask_page(f"api/v1/repros/{quote_path(name)}", MAX_ARCHIVE_BYTES)
        repro_id, run_id = (find_value(described, key, str) for key in ("id", "run_id"))
        if described.status != 200 or not repro_id or not run_id:
            raise NotRunnable(_explain_answer(name, target, described))
        archive = client.ask_page(
            f"repros/{quote_path(repro_id)}/archive.tar.gz", MAX_ARCHIVE_BYTES
        )
    if archive.status != 200:
        raise NotRunnable(_explain_answer(name, target, archive))
    try:
        parts = read_archive(io.BytesIO(archive.content))
    except BadArchive as error:
        raise NotRunnable(f"{target.server} sent repro {repro_id} damaged: {error}") from None
    repro = Repro(*parts, name=f"repro {repro_id}", id=repro_id, run_id=run_id, server=config)
    return trust_own(repro, environment)


def _explain_answer(name: str, target: Target, answer: ServerResponse) -> str:
    if answer.status == 404:
        return f"{target.server} has no repro {name[:40]!r}, nor is there a file of that name"
    if answer.status in (401, 403):
        return (
            f"{target.server} does not show its repros: {answer.describe()}; the token needs "
            "the scope `read` too"
        )
    return f"repro {name[:40]!r} of {target.server}: {explain(answer)}"


def send_answer(repro: Repro, result: ReproResult, environment: Mapping[str, str]) -> str:
    """Send an answer to the repro's server; return the outcome in one line.

    Raises StoreError if the outbox is full or cannot be written.
    """
    assert repro.server is not None and repro.id is not None and repro.run_id is not None
    root = outbox_root(environment)
    queue_answers([describe_answer(repro.id, result)], repro.run_id, root, repro.server)
    return describe_delivery(root, repro.run_id, Target.of(repro.server))


def describe_answer(repro_id: str, result: ReproResult) -> ReproAnswered:
    values = {
        name: value
        for name, value in vars(result).items()
        if name not in ("started_us", "ended_us")
    }
    return ReproAnswered(
        f"repro-{repro_id}", result.started_us, result.ended_us, repro=repro_id, **values
    )


def queue_answers(answers: Sequence[Event], run_id: str, root: Path, config: RunConfig) -> None:
    with closing(OutboxSink(root, run_id, Target.of(config), config.outbox_bytes)) as sink:
        result = sink.ingest(EventBatch(list(answers)))
        sink.finish()
    if result.new_count < len(answers):
        why = (
            result.refused[0].reason if result.refused else f"the outbox {os.fspath(root)} is full"
        )
        raise StoreFull(f"an answer cannot be sent: {why}")


def queue_stored_answers(
    connection: sqlite3.Connection, run_id: str, root: Path, config: RunConfig
) -> int:
    answers = [
        describe_answer(repro.id, result)
        for repro in list_repros(connection, run_id)
        for result in list_results(connection, repro.id)
    ]
    if answers:
        queue_answers(answers, run_id, root, config)
    return len(answers)
