"""Report downloads; their constant part is compressed only once."""

from __future__ import annotations

import re
import struct
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any

from flask import Blueprint, Response, abort, request, send_file

from compileboard.app.benchmarks.suite import build_suite, read_period
from compileboard.app.benchmarks.trend_queries import FILTERS, read_text, read_trend_filter
from compileboard.app.core.db import get_clock, get_reader, get_run_reader, get_settings, get_store
from compileboard.app.core.page import FilterError
from compileboard.app.core.parameters import check_keys
from compileboard.app.core.store import open_store
from compileboard.app.reports import BUNDLE, FORMATS, SUITE_TABLES
from compileboard.app.reports.csv_report import COLUMNS, DEFAULT_TABLE
from compileboard.app.reports.formats import file_name, write_report
from compileboard.app.reports.html import POLICY, read_plotly
from compileboard.app.reports.parquet import check_available
from compileboard.app.reports.suite_report import file_name as suite_file_name
from compileboard.app.reports.suite_report import policy_of as suite_policy
from compileboard.app.reports.suite_report import write_suite
from compileboard.app.runs.rows import RunRow
from compileboard.app.runs.run_queries import RunDetail
from compileboard.app.runs.shell import find_run
from compileboard.collectors.store.bundles import write_bundle
from compileboard.collectors.store.rollups import DEFINITIONS

_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # gzip, deflate, no time, no system
_KEY_BYTES = 256


def _deflate(text: bytes, level: int, mode: int) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(text) + packer.flush(mode)


@lru_cache(maxsize=4)
def _deflate_fixed(text: bytes) -> bytes:
    # A full flush ends at a byte, and nothing after it refers to earlier data.
    return _deflate(text, 9, zlib.Z_FULL_FLUSH)


def pack_around(body: bytes, fixed: bytes) -> bytes:
    """Compress like gzip, reusing the compressed form of `fixed` where the body contains it.

    Source: RFC 1951, 3.2.3: deflate blocks follow each other, the last one is marked.
    """
    at = (
        body.rfind(fixed[:_KEY_BYTES]) if fixed else -1
    )  # finding a whole megabyte takes ten times as long
    parts = []
    if at >= 0 and body.startswith(fixed, at):
        parts = [_deflate(body[:at], 1, zlib.Z_FULL_FLUSH), _deflate_fixed(fixed)]
    rest = body[at + len(fixed) :] if parts else body
    parts.append(_deflate(rest, 1, zlib.Z_FINISH))
    return b"".join([_HEAD, *parts, struct.pack("<II", zlib.crc32(body), len(body) & 0xFFFFFFFF)])


def check_format(format: str) -> None:
    """Abort with 404 for an unknown format. Raises FilterError for parquet without pyarrow."""
    if format not in FORMATS:
        abort(
            404,
            f"There is no report in the format {format[:20]!r}; known are {', '.join(FORMATS)}.",
        )
    if format == "parquet":
        check_available()


def send_report(body: bytes | Iterator[bytes], format: str, name: str, policy: str) -> Response:
    response = (
        pack_html(body)
        if format == "html" and isinstance(body, bytes)
        else Response(body, content_type=FORMATS[format])
    )
    if format == "html":
        response.headers["Content-Security-Policy"] = f"{policy}; frame-ancestors 'none'"
    response.headers.set("Content-Disposition", "attachment", filename=name)
    response.headers["Cache-Control"] = "no-store"
    return response


def pack_html(body: bytes) -> Response:
    response = Response(body, content_type=FORMATS["html"])
    response.vary.add("Accept-Encoding")
    if request.accept_encodings["gzip"] > 0:
        response.set_data(pack_around(body, read_plotly()))
        response.headers["Content-Encoding"] = "gzip"
    return response


blueprint = Blueprint("reports", __name__)
PERIOD = ("since", "until", "last")


@blueprint.get("/runs/<run_id>/report.<format>")
def download(run_id: str, format: str) -> Response:
    """Send a run's report, or the run as a bundle.

    `?table=` selects the CSV or Parquet table, `?source=0` omits source lines,
    `?payloads=yes` adds graphs and code to HTML.
    """
    if format == BUNDLE:
        return _send_bundle(find_run(run_id).run)
    check_format(format)
    source = _choose("source", ("1", "0")) == "1"
    table = _choose("table", (DEFAULT_TABLE, *(name for name in COLUMNS if name != DEFAULT_TABLE)))
    payloads = _choose("payloads", ("no", "yes")) == "yes"
    if payloads and format != "html":
        raise FilterError(f"payloads: the {format} report has no texts; html's has")
    if payloads and not source:
        raise FilterError(
            "payloads: graphs and code have lines of the program inside; leave out source=0 or "
            "payloads"
        )
    detail = find_run(run_id)
    now_us, stale_after_s = time.time_ns() // 1000, get_settings().stale_after_s
    reader = get_run_reader(run_id)  # reports an unreadable file before the response begins
    options = (detail, format, table, source, now_us, stale_after_s, payloads)
    body = (
        _stream(get_settings().db, *options)
        if payloads or format not in ("html", "md")
        else b"".join(write_report(reader, *options))
    )
    return send_report(
        body,
        format,
        file_name(detail, format, table),
        POLICY,
    )


def _send_bundle(run: RunRow) -> Response:
    if request.args:
        raise FilterError(
            "a bundle has all that was recorded of the run, source too; it takes no parameter"
        )
    if get_clock().is_running(run.state, run.heartbeat_us):
        raise FilterError("the run is still running; a bundle has whole runs")
    with tempfile.TemporaryDirectory(prefix="compileboard-bundle-") as folder:
        path = Path(folder, "run.db")
        write_bundle(get_reader(), [run.id], str(path))
        file = path.open("rb")  # stays readable after it is unlinked
    name = f"run-{re.sub('[^0-9A-Za-z]+', '-', run.id)}.bundle.db"
    return send_file(
        file, "application/vnd.sqlite3", as_attachment=True, download_name=name, max_age=0
    )


@blueprint.get("/trends/report.<format>")
def download_suite(format: str) -> Response:
    """Send the report on a suite over a period: `?suite=`, its configuration, and `since=`,
    `until=` or `last=30d`.
    """
    check_format(format)
    args = request.args
    check_keys(args, (*FILTERS, *PERIOD, "definition", "table"))
    clock = get_clock()
    since, until, last = (read_text(args, key) for key in PERIOD)
    period = read_period(since, until, last, clock.now_us)
    definition = _choose("definition", tuple(DEFINITIONS)) if args.get("definition") else None
    table = _choose("table", SUITE_TABLES)
    selection = read_trend_filter(args)
    if not selection.suite:
        raise FilterError("suite: the report is of one suite; give its name")
    suite = build_suite(get_store(), selection, period, clock, definition)
    body = b"".join(write_suite(suite, format, clock.now_us, table))
    return send_report(body, format, suite_file_name(suite, format, table), suite_policy(suite))


def _choose(key: str, known: tuple[str, ...]) -> str:
    given = request.args.get(key) or known[0]
    if given not in known:
        raise FilterError(f"{key}: {given[:40]!r} is not one of {', '.join(known)}")
    return given


def _stream(database: str, detail: RunDetail, *options: Any) -> Iterator[bytes]:
    # A store of its own: the request's is closed before the last piece is sent.
    with closing(open_store(database)) as store:
        yield from write_report(store.open_run(detail.run.id), detail, *options)
