"""Give back torch's own trace log of a run recorded with --level full."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from flask import Blueprint, Response, abort

from compileboard.app.db import get_reader, get_settings
from compileboard.app.queries.trace_files import get_trace_file, read_trace_file
from compileboard.collectors.store.connect import open_reader

blueprint = Blueprint("traces", __name__)


@blueprint.get("/runs/<run_id>/traces/<name>")
def download(run_id: str, name: str) -> Response:
    """Send one trace log as torch wrote it, piece by piece."""
    file = get_trace_file(get_reader(), run_id, name)
    if file is None:
        abort(404, f"Run {run_id[:80]} keeps no trace log of that name; --level full records them.")
    response = Response(_pieces(get_settings().db, run_id, file.name), content_type="text/plain; charset=utf-8")
    response.headers["Content-Length"] = str(file.size_bytes)
    response.headers.set("Content-Disposition", "attachment", filename=file.name)
    return response


def _pieces(database: str, run_id: str, name: str) -> Iterator[bytes]:
    # A connection of its own: the request's is closed before the last piece is sent.
    with closing(open_reader(database)) as reader:
        yield from read_trace_file(reader, run_id, name)
