"""A run's timeline: all of it as a trace file, and what of a window can be seen."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice

import orjson
from flask import Response, request

from compileboard.app.analysis.timeline import make_events, name_processes, number_processes
from compileboard.app.api.answer import Answer, find_run
from compileboard.app.api.operation import Operation
from compileboard.app.db import get_reader, get_settings
from compileboard.app.queries import timeline
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.run_detail import RunDetail
from compileboard.app.queries.timeline import Lane
from compileboard.app.web.timeline import read_idle, read_lanes, read_whole, read_window
from compileboard.collectors.store.connect import open_reader

MOST_COLUMNS = 100_000
_CHUNK = 2000  # events


def get_timeline(run_id: str) -> Response:
    """Stream a whole run as a Chrome trace: in the API's envelope, or with `download` the bare file."""
    detail = find_run(run_id)
    lanes = timeline.list_lanes(get_reader(), run_id, 1000)
    wanted = request.args.get("download", "")
    if wanted not in ("", "1"):
        raise FilterError(f"download: {wanted[:40]!r} is not 1; leave it out for the API's envelope")
    pieces = _write_document(get_settings().db, detail, lanes)
    if not wanted:
        pieces = _wrap(pieces)
    packed = request.accept_encodings["gzip"] > 0
    response = Response(_pack(pieces) if packed else pieces, content_type="application/json")
    response.vary.add("Accept-Encoding")
    if packed:
        response.headers["Content-Encoding"] = "gzip"
    if wanted:
        response.headers.set("Content-Disposition", "attachment", filename=f"timeline-{detail.run.id}.json")
    return response


def get_window(run_id: str) -> Answer:
    """Return what of a window is wide enough to be seen."""
    find_run(run_id)
    lanes = timeline.list_lanes(get_reader(), run_id)
    width, idle = read_whole("width", 1200, 1, MOST_COLUMNS), read_idle()
    if not lanes:
        nothing = dict.fromkeys(("first_us", "last_us", "from_us", "to_us"))
        return Answer({**nothing, "names": [], "compiles": {}, "lanes": [], "is_coarse": False, "busy": []})
    from_us, to_us = read_window(lanes)
    return Answer(read_lanes(run_id, lanes, from_us, to_us, width, idle=idle))


def _write_document(database: str, detail: RunDetail, lanes: list[Lane]) -> Iterator[bytes]:
    run = detail.run
    about = {"run": run.id, "name": run.shown_name, "torch": run.torch_version, "writer": "CompileBoard"}
    yield b'{"displayTimeUnit":"ms","otherData":' + orjson.dumps(about) + b',"traceEvents":['
    names = list(name_processes(lanes))
    numbers = number_processes(lanes)
    if names:
        yield b",".join(map(orjson.dumps, names))
    # A connection of its own: the request's is closed before the last piece is sent.
    with closing(open_reader(database)) as reader:
        for lane in lanes:
            rows = timeline.iterate_spans(reader, lane.id)
            events = make_events(rows, numbers[lane.process_id], lane.thread)
            while chunk := b",".join(map(orjson.dumps, islice(events, _CHUNK))):
                yield b"," + chunk
    yield b"]}"


def _wrap(pieces: Iterable[bytes]) -> Iterator[bytes]:
    yield b'{"ok":true,"data":'
    yield from pieces
    yield b',"next":null}'


def _pack(pieces: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(1, wbits=31)
    for piece in pieces:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()


OPERATIONS = (
    Operation(
        "/runs/<run_id>/timeline",
        get_timeline,
        "Trace",
        False,
        "A run's phases in Chrome's trace format, streamed and without an ETag. With `download=1` the answer is the "
        "bare trace file, not wrapped in `ok`, `data` and `next`: Perfetto and chrome://tracing open it as it is.",
        ("download",),
    ),
    Operation(
        "/runs/<run_id>/timeline/window",
        get_window,
        "TimelineWindow",
        False,
        "What of a window of a run's timeline is wide enough to be seen, as flat lists, and sums of what is not.",
        ("from_us", "to_us", "width", "idle"),
    ),
)
