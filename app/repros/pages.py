"""The pages of repros and their downloads, always sent as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from flask import Blueprint, Response, abort, render_template, request, url_for

from compileboard.app.core import fields
from compileboard.app.core.api import PageQuery, operation, refuse
from compileboard.app.core.db import get_reader, get_run_reader, get_settings, get_store
from compileboard.app.core.filters import board_option
from compileboard.app.core.page import Page, check_limit, read_content_id
from compileboard.app.core.parameters import list_names, order_by, read_query
from compileboard.app.repros.model import (
    KINDS,
    ReproScreen,
    build_failure_list,
    build_repro,
    list_steps,
    sum_up_values,
)
from compileboard.app.repros.queries import (
    DEFAULT_ORDER,
    ORDERS,
    DistinctFailure,
    FailureFilter,
    ReproRow,
    list_failures,
    list_repros,
)
from compileboard.app.runs.run_queries import RunDetail
from compileboard.app.runs.shell import find_run, render_run
from compileboard.collectors.contract.repros import dump_manifest
from compileboard.collectors.formats.repro_archive import write_archive
from compileboard.collectors.store.repros import ReproResult, load_storage

blueprint = Blueprint("repros", __name__)

SORTS = (
    ("last", "last seen"),
    ("repros", "most repros"),
    ("runs", "most runs"),
    ("first", "newest failure first"),
    ("first.asc", "oldest first"),
)


@blueprint.get("/repros")
def index() -> str:
    args = request.args
    selected = read_query(FailureFilter, args)
    limit = check_limit(args.get("limit"), get_settings().page_size)
    screen = build_failure_list(get_reader(), selected, args.get("sort"), args.get("cursor"), limit)
    given = {name: args.get(name, "") for name in list_names(FailureFilter)}
    return render_template(
        "repros/index.html",
        screen=screen,
        given=given,
        filtered=any(given.values()) or bool(args.get("cursor")),
        sorts=SORTS,
        kinds=[(kind, word.word) for kind, word in KINDS.items()],
    )


@blueprint.get("/runs/<run_id>/repros")
def show_run(run_id: str) -> str:
    detail = find_run(run_id)
    limit = check_limit(request.args.get("limit"), get_settings().page_size)
    page = list_repros(
        get_run_reader(run_id), run_id=run_id, cursor=request.args.get("cursor"), limit=limit
    )
    return render_run(detail, "repros/run.html", tab="repros", page_of_repros=page)


def find_repro_screen(repro_id: str) -> ReproScreen:
    screen = None
    if read_content_id(repro_id) != -1:
        screen = build_repro(get_store(), repro_id, request.args.get("cursor"))
    if screen is None:
        abort(
            404,
            f"There is no repro {repro_id[:40]}. Its run may have been deleted, or it is damaged.",
        )
    return screen


@blueprint.get("/repros/<repro_id>")
def show(repro_id: str) -> str:
    screen = find_repro_screen(repro_id)
    return render_template(
        "repros/one.html",
        screen=screen,
        steps=list_steps(screen.repro.id, board_option(screen.repro.run_id)),
        values_note=sum_up_values(screen.inputs),
        downloads=list_downloads(screen),
    )


def list_downloads(screen: ReproScreen) -> list[tuple[str, str]]:
    texts = [
        ("program", "Program (.py)"),
        ("dynamo", "Dynamo's program (.py)"),
        ("minimal", "Minimal program (.py)"),
    ]
    there = {"program": True, "dynamo": screen.dynamo_program, "minimal": screen.minimal}
    address = {
        name: url_for("repros.download_program", repro_id=screen.repro.id, name=name)
        for name, _label in texts
    }
    downloads = [(label, address[name]) for name, label in texts if there[name]]
    return [
        *downloads,
        ("Archive (.tar.gz)", url_for("repros.download_archive", repro_id=screen.repro.id)),
    ]


@blueprint.get("/repros/<repro_id>/<name>.py")
def download_program(repro_id: str, name: str) -> Response:
    screen = find_repro_screen(repro_id)
    minimal = screen.minimal.program if screen.minimal else None
    text = {
        "program": screen.repro.program,
        "dynamo": screen.repro.dynamo_program,
        "minimal": minimal,
    }.get(name)
    if text is None:
        abort(404, f"Repro {screen.repro.id} has no {name[:40]}.py.")
    return _attach(
        text.encode("utf-8", "replace"), "text/plain; charset=utf-8", f"{name}-{screen.repro.id}.py"
    )


@blueprint.get("/repros/<repro_id>/archive.tar.gz")
def download_archive(repro_id: str) -> Response:
    repro = find_repro_screen(repro_id).repro
    bodies = {
        digest: load_storage(get_run_reader(repro.run_id), repro.id, digest)
        for digest in repro.storage_bytes
    }
    values = {digest: body for digest, body in bodies.items() if body is not None}
    body = write_archive(repro.manifest, repro.program, repro.dynamo_program, values)
    return _attach(body, "application/gzip", f"repro-{repro.id}.tar.gz")


def _attach(body: bytes, content_type: str, name: str) -> Response:
    response = Response(body, content_type=content_type)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@dataclass(frozen=True)
class FailureSort:
    sort: Annotated[str, order_by(ORDERS), fields.SORT_HELP] = DEFAULT_ORDER


@dataclass(frozen=True)
class ReproDetail(ReproRow):
    """One repro with its programs and results."""

    manifest: Annotated[dict[str, Any], "The captured data, without default values."]
    program: Annotated[str, "The graph as Python's source."]
    dynamo_program: Annotated[str | None, "dynamo's graph, where `program` is AOTAutograd's."]
    storage_bytes: Annotated[
        dict[str, int], "Size of each storage whose bytes are stored, by SHA-256."
    ]
    results: Annotated[list[ReproResult], "Results, newest first."]


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
        refuse(
            f"There is no repro {repro_id[:40]}. Its run may have been deleted, or it is damaged."
        )
    repro = screen.repro
    return ReproDetail(
        **vars(screen.row),
        manifest=dump_manifest(repro.manifest),
        program=repro.program,
        dynamo_program=repro.dynamo_program,
        storage_bytes=repro.storage_bytes,
        results=[*screen.results],
    )


@operation("/runs/<run_id>/repros")
def list_run_repros(detail: RunDetail, page: PageQuery) -> Page[ReproRow]:
    """List the repros of a run, the newest first."""
    return list_repros(
        get_run_reader(detail.run.id), run_id=detail.run.id, cursor=page.cursor, limit=page.limit
    )
