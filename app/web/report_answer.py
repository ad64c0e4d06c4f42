"""Answer with a report: its format, its name, its policy."""

from __future__ import annotations

from flask import Response, abort, request

from compileboard.app.reports import FORMATS
from compileboard.app.reports.page import read_plotly
from compileboard.app.reports.parquet import check_available
from compileboard.app.web.packing import pack_around


def check_format(format: str) -> None:
    """Refuse a format that there is none of, or that cannot be written here.

    Raises: FilterError if it is parquet and pyarrow is not installed.
    """
    if format not in FORMATS:
        abort(404, f"There is no report in the format {format[:20]!r}; known are {', '.join(FORMATS)}.")
    if format == "parquet":
        check_available()


def send_report(body: bytes, format: str, name: str, policy: str) -> Response:
    """Send a report as a file to save; `policy` is html's."""
    response = pack_html(body) if format == "html" else Response(body, content_type=FORMATS[format])
    if format == "html":
        response.headers["Content-Security-Policy"] = f"{policy}; frame-ancestors 'none'"
    response.headers.set("Content-Disposition", "attachment", filename=name)
    response.headers["Cache-Control"] = "no-store"
    return response


def pack_html(body: bytes) -> Response:
    """Send an HTML report; most of it is the script that draws, which is the same in each."""
    response = Response(body, content_type=FORMATS["html"])
    response.vary.add("Accept-Encoding")
    if request.accept_encodings["gzip"] > 0:
        response.set_data(pack_around(body, read_plotly()))
        response.headers["Content-Encoding"] = "gzip"
    return response
