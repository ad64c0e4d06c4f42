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
from app.reports.contents import Contents, read_contents
from app.reports.csv import COLUMNS, DEFAULT_TABLE
from app.reports.formats import file_name, write_report
from app.reports.html import policy_of, write_html
from app.reports.page import read_plotly
from app.web.packing import pack_around
from app.web.run_shell import find_run
from collectors.store.connect import open_reader

blueprint = Blueprint("reports", __name__)


@blueprint.get("/runs/<run_id>/report.<format>")
def download(run_id: str, format: str) -> Response:
    """Send a run's report.

    `?table=` picks csv's table, `?source=0` leaves the program's source lines out, `?payloads=yes` puts graphs and code
    into html's.
    """
    if format not in FORMATS:
        abort(404, f"There is no report in the format {format[:20]!r}; known are {', '.join(FORMATS)}.")
    source = _choose("source", ("1", "0")) == "1"
    table = _choose("table", (DEFAULT_TABLE, *(name for name in COLUMNS if name != DEFAULT_TABLE)))
    payloads = _choose("payloads", ("no", "yes")) == "yes"
    if payloads and format != "html":
        raise FilterError(f"payloads: the {format} report has no texts; html's has")
    if payloads and not source:
        raise FilterError("payloads: graphs and code have lines of the program inside; leave out source=0 or payloads")
    detail = find_run(run_id)
    now_us = time.time_ns() // 1000
    if format == "html":
        contents = read_contents(get_reader(), detail, source, now_us)
        if payloads:
            response = Response(_stream_html(get_settings().db, contents), content_type=FORMATS[format])
        else:
            response = _send_packed(b"".join(write_html(get_reader(), contents)))
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


def _send_packed(body: bytes) -> Response:
    """Send an HTML report; most of it is the script that draws, which is the same in each."""
    response = Response(body, content_type=FORMATS["html"])
    response.vary.add("Accept-Encoding")
    if request.accept_encodings["gzip"] > 0:
        response.set_data(pack_around(body, read_plotly()))
        response.headers["Content-Encoding"] = "gzip"
    return response


def _choose(key: str, known: tuple[str, ...]) -> str:
    given = request.args.get(key) or known[0]
    if given not in known:
        raise FilterError(f"{key}: {given[:40]!r} is not one of {', '.join(known)}")
    return given


def _stream_html(database: str, contents: Contents) -> Iterator[bytes]:
    with closing(open_reader(database)) as reader:
        yield from write_html(reader, contents, payloads=True)


def _stream(database: str, detail: RunDetail, format: str, table: str, source: bool, now_us: int) -> Iterator[bytes]:
    # A connection of its own: the request's is closed before the last piece is sent.
    with closing(open_reader(database)) as reader:
        yield from write_report(reader, detail, format, table, source, now_us)
