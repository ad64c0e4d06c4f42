"""What the API says of a run's timeline."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice

import orjson
from flask import Response, request

from compileboard.app.api.answers import Answer, Operation, find_run
from compileboard.app.api.schema import (
    Schema,
    anything,
    array_of,
    count,
    flag,
    mapping,
    maybe,
    record,
    text,
    time_us,
    whole,
)
from compileboard.app.db import get_reader, get_settings
from compileboard.app.queries.page import FilterError, check_whole
from compileboard.app.queries.run import timeline
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.queries.run.timeline import Lane
from compileboard.app.screens.run.timeline import DEFAULT_COLUMNS, choose_window, iterate_events, read_window
from compileboard.collectors.store.connection import open_reader

_NUMBERS = {"type": "integer"}
_EVENT: Schema = {
    "type": "object",
    "description": "One event of Chrome's trace format. `ph` X is a phase, i a moment, B a phase whose end was not "
    "recorded, M a name of a process or thread.",
    "properties": {
        "name": text("torch's name of the phase."),
        "ph": text("The kind of event.", enum=["X", "i", "B", "M"]),
        "ts": whole("When it began. Microseconds since 1970, UTC."),
        "dur": whole("How long it took. Microseconds.", minimum=0),
        "pid": whole("The process: its rank, else its pid."),
        "tid": whole("torch's number of the thread."),
        "s": text("The scope of a moment.", enum=["t"]),
        "cat": text("The phase of a compile."),
        "args": anything("`compile_id` and what torch said of the phase."),
    },
    "required": ["name", "ph", "ts", "pid", "tid", "args"],
    "additionalProperties": False,
}
_LANE = record(
    "A thread of a process. Its lists are flat: so many numbers an entry.",
    label=text("Its rank, pid and thread."),
    rows=count("How many phases ran inside one another at most."),
    last=whole("When it ended, since `first_us`. Microseconds."),
    spans=array_of(
        _NUMBERS,
        "Phases, five numbers each: place in `names`, begin since `first_us`, duration (−1: its end was not recorded), "
        "depth, key of its compile (0: none). Parents stand before their children.",
    ),
    short=array_of(
        _NUMBERS,
        "What is too short to be seen, four numbers each: depth, bucket (a 240th of the window), how many began in it, "
        "their time together.",
    ),
    marks=array_of(
        _NUMBERS, "Moments, three numbers each: place in `names`, time since `first_us`, how many in its bucket."
    ),
)
SCHEMAS: dict[str, Schema] = {
    "Trace": record(
        "A trace file.",
        displayTimeUnit=text("How viewers show times."),
        otherData=record(
            "Which run it is.",
            run=text("Its id."),
            name=text("Its name."),
            torch=maybe(text("Its version of torch.")),
            writer=text("Who wrote the file."),
        ),
        traceEvents=array_of(_EVENT, "Every phase, parents before their children."),
    ),
    "TimelineWindow": record(
        "A window of a timeline; without lanes and moments where no phase was recorded.",
        first_us=maybe(time_us("When the run's first phase began.")),
        last_us=maybe(time_us("When its last phase ended.")),
        from_us=maybe(time_us("Where the window begins.")),
        to_us=maybe(time_us("Where it ends.")),
        names=array_of(
            array_of({"type": ["string", "integer"]}, "Name, and place of its phase in the legend."),
            "What phases are called.",
        ),
        compiles=mapping(
            array_of(maybe(text("A text.")), "Its compile id and its function."), "Compiles by their key."
        ),
        lanes=array_of(_LANE, "By rank, process and thread."),
        is_coarse=flag("Whether the shortest phases are in no sum: more began in the window than are looked at."),
        busy=array_of(
            _NUMBERS, "With `idle`: when any lane was busy, two numbers each, begin and end since `first_us`."
        ),
    ),
}


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
    reader, args = get_reader(), request.args
    lanes = timeline.list_lanes(reader, run_id)
    width = check_whole("width", args.get("width"), DEFAULT_COLUMNS, 1, MOST_COLUMNS)
    if args.get("idle", "") not in ("", "1"):
        raise FilterError(f"idle: {args['idle'][:40]!r} is not 1; leave it out to keep idle time")
    if not lanes:
        nothing = dict.fromkeys(("first_us", "last_us", "from_us", "to_us"))
        return Answer({**nothing, "names": [], "compiles": {}, "lanes": [], "is_coarse": False, "busy": []})
    from_us, to_us = (check_whole(name, args[name], 0) if args.get(name) else None for name in ("from_us", "to_us"))
    window = choose_window(lanes, from_us, to_us, width)
    return Answer(read_window(reader, run_id, lanes, window, with_busy=bool(args.get("idle"))))


def _write_document(database: str, detail: RunDetail, lanes: list[Lane]) -> Iterator[bytes]:
    run = detail.run
    about = {"run": run.id, "name": run.shown_name, "torch": run.torch_version, "writer": "CompileBoard"}
    yield b'{"displayTimeUnit":"ms","otherData":' + orjson.dumps(about) + b',"traceEvents":['
    # A connection of its own: the request's is closed before the last piece is sent.
    with closing(open_reader(database)) as reader:
        events = iterate_events(reader, lanes)
        separator = b""
        while chunk := b",".join(map(orjson.dumps, islice(events, _CHUNK))):
            yield separator + chunk
            separator = b","
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
