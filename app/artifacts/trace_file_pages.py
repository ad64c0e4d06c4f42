"""A run's directory of compiles, and torch's logs as downloads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from flask import Blueprint, Response, abort, current_app, request

from compileboard.app.artifacts.model import build_directory
from compileboard.app.compiles.run_queries import CompileFilter
from compileboard.app.core.db import get_run_reader, get_settings
from compileboard.app.core.labels import describe_outcome
from compileboard.app.core.store import open_store
from compileboard.app.runs.shell import find_run, render_run
from compileboard.app.runs.trace_files import get_trace_file, read_trace_file

blueprint = Blueprint("directory", __name__)

PAGE_SIZE = 20  # compiles, each with all that it wrote


@blueprint.get("/runs/<run_id>/directory")
def show(run_id: str) -> str:
    detail = find_run(run_id)
    given = {
        name: request.args.get(name, "").strip()[:200] for name in ("outcome", "q", "artifact")
    }
    selection = CompileFilter(text=given["q"], outcome=given["outcome"], artifact=given["artifact"])
    screen = build_directory(
        get_run_reader(run_id), detail.run, selection, request.args.get("cursor"), PAGE_SIZE
    )
    return render_run(
        detail,
        "trace_files/index.html",
        tab="directory",
        screen=screen,
        given=given,
        filtered=any(given.values()),
        names=[(name, f"{name} ({count:,})") for name, count in screen.artifact_counts.items()],
        outcomes=[
            (key, describe_outcome(key, detail.run.state == "running").word)
            for key in screen.outcomes
        ],
        has_shapes="shapes.show" in current_app.view_functions,
    )


download_blueprint = Blueprint("traces", __name__)


@download_blueprint.get("/runs/<run_id>/traces/<name>")
def download(run_id: str, name: str) -> Response:
    file = get_trace_file(get_run_reader(run_id), run_id, name)
    if file is None:
        abort(404, f"Run {run_id[:80]} keeps no trace log of that name; --level full records them.")
    response = Response(
        _pieces(get_settings().db, run_id, file.name), content_type="text/plain; charset=utf-8"
    )
    response.headers["Content-Length"] = str(file.size_bytes)
    response.headers.set("Content-Disposition", "attachment", filename=file.name)
    return response


def _pieces(database: str, run_id: str, name: str) -> Iterator[bytes]:
    # A store of its own: the request's is closed before the last piece is sent.
    with closing(open_store(database)) as store:
        yield from read_trace_file(store.open_run(run_id), run_id, name)
