"""Load repros from a server and send answers to their run."""

from __future__ import annotations

import io
import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from compileboard.collectors.contract.events import Event, ReproAnswered
from compileboard.collectors.contract.repros import dump_manifest
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.formats.repro_archive import (
    MOST_ARCHIVE_BYTES,
    BadArchive,
    read_archive,
)
from compileboard.collectors.pipeline.outbox_sink import OutboxSink
from compileboard.collectors.pipeline.source import EventBatch
from compileboard.collectors.push.client import Client, ServerAnswer, quote_path
from compileboard.collectors.push.outbox import outbox_root
from compileboard.collectors.push.refusals import explain, find_value
from compileboard.collectors.push.report import describe_delivery
from compileboard.collectors.push.target import Target
from compileboard.collectors.repro.repro import NotRunnable, Repro
from compileboard.collectors.spool.folders import home
from compileboard.collectors.spool.own_repros import is_own_repro
from compileboard.collectors.store.errors import StoreFull
from compileboard.collectors.store.repros import ReproResult, list_repros, list_results


def load_served(name: str, config: RunConfig, environment: Mapping[str, str]) -> Repro:
    """Load a repro with its values from a server. Raises NotRunnable, ServerAway or TargetError."""
    target = Target.of(config)
    with closing(Client(target, environment)) as client:
        described = client.ask_page(f"api/v1/repros/{quote_path(name)}", MOST_ARCHIVE_BYTES)
        repro_id, run_id = (find_value(described, key, str) for key in ("id", "run_id"))
        if described.status != 200 or not repro_id or not run_id:
            raise NotRunnable(_explain(name, target, described))
        archive = client.ask_page(
            f"repros/{quote_path(repro_id)}/archive.tar.gz", MOST_ARCHIVE_BYTES
        )
    if archive.status != 200:
        raise NotRunnable(_explain(name, target, archive))
    try:
        parts = read_archive(io.BytesIO(archive.content))
    except BadArchive as error:
        raise NotRunnable(f"{target.server} sent repro {repro_id} damaged: {error}") from None
    repro = Repro(*parts, name=f"repro {repro_id}", id=repro_id, run_id=run_id, server=config)
    programs = (repro.program, repro.dynamo_program)
    if is_own_repro(home(environment), run_id, dump_manifest(repro.manifest), programs):
        return repro
    return replace(repro, distrust=f"repro {repro_id} was not recorded by you on this machine")


def _explain(name: str, target: Target, answer: ServerAnswer) -> str:
    if answer.status == 404:
        return f"{target.server} has no repro {name[:40]!r}, nor is there a file of that name"
    if answer.status in (401, 403):
        return (
            f"{target.server} does not show its repros: {answer.describe()}; the token needs "
            "the scope `read` too"
        )
    return f"repro {name[:40]!r} of {target.server}: {explain(answer)}"


def send_answer(repro: Repro, result: ReproResult, environment: Mapping[str, str]) -> str:
    """Send an answer to the repro's server; return the outcome in one line. Raises StoreError."""
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
    with closing(OutboxSink.open(root, run_id, Target.of(config), config.outbox_bytes)) as sink:
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
