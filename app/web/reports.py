"""Save a run's report: one address a format."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

from flask import Blueprint, Response, abort, request

from app.db import get_reader, get_settings
from app.queries.page import FilterError
from app.queries.run_detail import RunDetail
from app.reports import FORMATS
from app.reports.contents import read_contents
from app.reports.csv import COLUMNS, DEFAULT_TABLE
from app.reports.formats import file_name, write_report
from app.reports.html import policy_of, render_html
from app.web.run_shell import find_run
from collectors.store.connect import open_reader

blueprint = Blueprint("reports", __name__)


@blueprint.get("/runs/<run_id>/report.<format>")
def download(run_id: str, format: str) -> Response:
    """Send a run's report; `?table=` picks csv's table, `?source=0` leaves the program's source lines out."""
    if format not in FORMATS:
        abort(404, f"There is no report in the format {format[:20]!r}; known are {', '.join(FORMATS)}.")
    source = _choose("source", ("1", "0")) == "1"
    table = _choose("table", (DEFAULT_TABLE, *(name for name in COLUMNS if name != DEFAULT_TABLE)))
    detail = find_run(run_id)
    now_us = time.time_ns() // 1000
    if format == "html":
        contents = read_contents(get_reader(), detail, source, now_us)
        response = Response(render_html(contents).encode("utf-8", "replace"), content_type=FORMATS[format])
        response.headers["Content-Security-Policy"] = f"{policy_of(contents)}; frame-ancestors 'none'"
    elif format == "md":
        body = b"".join(write_report(get_reader(), detail, format, table, source, now_us))
        response = Response(body, content_type=FORMATS[format])
    else:
        pieces = _stream(get_settings().db, detail, format, table, source, now_us)
        response = Response(pieces, content_type=FORMATS[format])
    response.headers.set("Content-Disposition", "attachment", filename=file_name(detail, format, table))
    response.headers["Cache-Control"] = "no-store"
    return response


def _choose(key: str, known: tuple[str, ...]) -> str:
    given = request.args.get(key) or known[0]
    if given not in known:
        raise FilterError(f"{key}: {given[:40]!r} is not one of {', '.join(known)}")
    return given


def _stream(database: str, detail: RunDetail, format: str, table: str, source: bool, now_us: int) -> Iterator[bytes]:
    # A connection of its own: the request's is closed before the last piece is sent.
    with closing(open_reader(database)) as reader:
        yield from write_report(reader, detail, format, table, source, now_us)
