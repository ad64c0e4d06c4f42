"""Repros: failures across runs, the repros of a run, and one with its programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.api.answers import PageQuery, operation, refuse
from compileboard.app.db import get_reader, get_run_reader, get_store
from compileboard.app.queries import fields
from compileboard.app.queries.page import Page, read_content_id
from compileboard.app.queries.parameters import order_by
from compileboard.app.queries.repros import (
    DEFAULT_ORDER,
    ORDERS,
    DistinctFailure,
    FailureFilter,
    ReproRow,
    list_failures,
    list_repros,
)
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.screens.repros import build_repro
from compileboard.collectors.contract.repros import dump_manifest
from compileboard.collectors.store.repros import ReproResult


@dataclass(frozen=True)
class FailureSort:
    sort: Annotated[str, order_by(ORDERS), fields.SORT_HELP] = DEFAULT_ORDER


@dataclass(frozen=True)
class ReproResultJson:
    """The result of a `collectors repro` command."""

    command: Annotated[str, "run, minify, analyze, check or bisect."]
    status: Annotated[str, "Its answer in a word."]
    operation: Annotated[str | None, "The operation that fails or is wrong."]
    node_count: Annotated[fields.Count | None, "Call nodes of the minimal graph."]
    seconds: Annotated[float, "How long it took."]
    torch_version: Annotated[str | None, "Version of torch it ran with."]
    device: Annotated[str | None, "The GPU's name, or `cpu`."]
    detail: Annotated[dict[str, Any], "The answer; its fields depend on the command."]
    program: Annotated[str | None, "The minimal graph as Python's source."]
    started_us: fields.StartTime
    ended_us: Annotated[fields.TimeUs, "End."]


@dataclass(frozen=True)
class ReproDetail(ReproRow):
    """One repro with its programs and results."""

    manifest: Annotated[dict[str, Any], "All that was captured, without what is at its default."]
    program: Annotated[str, "The graph as Python's source."]
    dynamo_program: Annotated[str | None, "dynamo's graph, where `program` is AOTAutograd's."]
    storage_bytes: Annotated[
        dict[str, int], "Size of each storage whose bytes are stored, by SHA-256."
    ]
    results: Annotated[list[ReproResultJson], "What was found out, newest first."]


@operation("/repros")
def list_repro_failures(
    selection: FailureFilter, order: FailureSort, page: PageQuery
) -> Page[DistinctFailure]:
    """List failures that have repros, across runs, the last captured first."""
    return list_failures(
        get_reader(), selection, sort=order.sort, cursor=page.cursor, limit=page.limit
    )


@operation("/repros/<repro_id>")
def get_repro(repro_id: str) -> ReproDetail:
    """Return one repro with its programs and results."""
    screen = build_repro(get_store(), repro_id) if read_content_id(repro_id) != -1 else None
    if screen is None:
        refuse(f"There is no repro {repro_id[:40]}. Its run may have been deleted.")
    repro = screen.repro
    return ReproDetail(
        **vars(screen.row),
        manifest=dump_manifest(repro.manifest),
        program=repro.program,
        dynamo_program=repro.dynamo_program,
        storage_bytes=repro.storage_bytes,
        results=[_make_result(result) for result in screen.results],
    )


def _make_result(result: ReproResult) -> ReproResultJson:
    return ReproResultJson(**vars(result))


@operation("/runs/<run_id>/repros")
def list_run_repros(detail: RunDetail, page: PageQuery) -> Page[ReproRow]:
    """List the repros of a run, the newest first."""
    return list_repros(
        get_run_reader(detail.run.id), run_id=detail.run.id, cursor=page.cursor, limit=page.limit
    )
