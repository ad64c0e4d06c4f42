"""Give back torch's own trace log of a run recorded with --level full."""

from __future__ import annotations

from flask import Blueprint, Response, abort, stream_with_context

from app.db import get_reader
from app.queries.trace_files import get_trace_file, read_trace_file

blueprint = Blueprint("traces", __name__)


@blueprint.get("/runs/<run_id>/traces/<name>")
def download(run_id: str, name: str) -> Response:
    """Send one trace log as torch wrote it, piece by piece."""
    reader = get_reader()
    file = get_trace_file(reader, run_id, name)
    if file is None:
        abort(404, f"Run {run_id[:80]} keeps no trace log of that name; --level full records them.")
    response = Response(
        stream_with_context(read_trace_file(reader, run_id, file.name)), content_type="text/plain; charset=utf-8"
    )
    response.headers["Content-Length"] = str(file.size_bytes)
    response.headers.set("Content-Disposition", "attachment", filename=file.name)
    return response
