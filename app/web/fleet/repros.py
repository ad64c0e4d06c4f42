"""The pages of repros and their downloads, always sent as text."""

from __future__ import annotations

from flask import Blueprint, Response, abort, render_template, request, url_for

from compileboard.app.analysis.repros import KINDS, list_steps, sum_up_values
from compileboard.app.db import get_reader, get_run_reader, get_settings, get_store
from compileboard.app.queries.page import check_limit, read_content_id
from compileboard.app.queries.parameters import list_names, read_query
from compileboard.app.queries.repros import FailureFilter, list_repros
from compileboard.app.screens.repros import ReproScreen, build_failure_list, build_repro
from compileboard.app.web.filters import board_option
from compileboard.app.web.run.shell import find_run, render_run
from compileboard.collectors.formats.repro_archive import write_archive
from compileboard.collectors.store.repros import load_storage

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
        abort(404, f"There is no repro {repro_id[:40]}. Its run may have been deleted.")
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
