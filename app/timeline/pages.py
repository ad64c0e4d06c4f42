"""The Timeline page of a run, and its API."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any

import orjson
from flask import Blueprint, Response, request

from compileboard.app.core.api import operation
from compileboard.app.core.db import get_run_reader, get_settings
from compileboard.app.core.fields import Count, DurationUs, TimeUs
from compileboard.app.core.page import FilterError, check_whole
from compileboard.app.core.parameters import Parameter
from compileboard.app.core.schema import OPTIONAL, Keywords, Unit, one_of
from compileboard.app.core.store import open_store
from compileboard.app.runs.run_queries import RunDetail
from compileboard.app.runs.shell import find_run, render_run
from compileboard.app.timeline import run_queries as timeline
from compileboard.app.timeline.model import (
    DEFAULT_COLUMNS,
    build_timeline,
    choose_window,
    find_opening,
    iterate_events,
    read_opening,
    read_window,
)
from compileboard.app.timeline.run_queries import Lane

blueprint = Blueprint("timeline", __name__)

ROW_PX, HEAD_PX, RULER_PX = 18, 30, 22  # as in static/js/timeline-layout.mjs
MAX_PIXELS = 620  # height; further lanes are scrolled to


@blueprint.get("/runs/<run_id>/timeline")
def show(run_id: str) -> str:
    detail, reader, args = find_run(run_id), get_run_reader(run_id), request.args
    if args.get("idle", "") not in ("", "1", "shown"):  # 1 is the current default
        raise FilterError(
            f"idle: {args['idle'][:40]!r} is not shown; leave it out to fold idle time"
        )
    screen = build_timeline(reader, run_id)
    if not screen.lanes:
        return render_run(detail, "timeline/index.html", tab="timeline", data=None)
    if args.get("from") or args.get("to"):
        from_us, to_us = (
            check_whole(name, args[name], 0) if args.get(name) else None for name in ("from", "to")
        )
        window = choose_window(screen.lanes, from_us, to_us, names=("from", "to"))
        data = read_window(reader, run_id, screen.lanes, window, with_busy=True)
        view = window.from_us, window.to_us
    else:
        data, view = read_opening(reader, run_id, screen.lanes)
    lane_count, row_count = screen.height_rows
    return render_run(
        detail,
        "timeline/index.html",
        tab="timeline",
        screen=screen,
        data=data,
        view=view,
        opening=find_opening(reader, run_id),
        height=min(MAX_PIXELS, RULER_PX + HEAD_PX * lane_count + ROW_PX * row_count),
    )


_WIDTH = Keywords(minimum=1, maximum=100_000)
_MOMENT = Keywords(minimum=0, maximum=1 << 60)
_CHUNK = 2000  # events
NameAndPhase = Annotated[
    tuple[Any, ...],
    Keywords(items={"type": ["string", "integer"]}),
    "Name, and place of its phase in the legend.",
]
CompileAndLabel = Annotated[tuple[str, ...], "Its compile ID and its label."]


@dataclass(frozen=True)
class TraceEvent:
    """One event of Chrome's trace format."""

    name: Annotated[
        str,
        "torch's name of the phase; of `M`, what it names: `process_name`, `thread_name`.",
    ]
    ph: Annotated[
        str,
        one_of(("X", "i", "B", "M")),
        "`X` a phase, `i` an instant, `B` a phase without a recorded end, `M` a name.",
    ]
    ts: Annotated[TimeUs, "When it began; 0 of `M`."]
    pid: Annotated[int, "The process: its rank, else its pid."]
    tid: Annotated[int, "torch's number of the thread."]
    args: Annotated[Any, "`compile_id` and torch's details of the phase."]
    dur: Annotated[Count, Unit("Microseconds."), "How long it took."] = field(metadata=OPTIONAL)
    s: Annotated[str, one_of(("t",)), "The scope of an instant."] = field(metadata=OPTIONAL)
    cat: Annotated[str, "The phase of a compile."] = field(metadata=OPTIONAL)


@dataclass(frozen=True)
class TraceOrigin:
    """The run of a trace."""

    run: Annotated[str, "Id of the run."]
    name: Annotated[str, "Name of the run."]
    torch: Annotated[str | None, "Version of torch in the run."]
    writer: Annotated[str, "Program that wrote the file."]


@dataclass(frozen=True)
class Trace:
    """A run in Chrome's trace format, for Perfetto and chrome://tracing."""

    displayTimeUnit: Annotated[str, "Unit in which viewers show times: `ms`."]
    otherData: Annotated[TraceOrigin, "The run that the trace is of."]
    traceEvents: Annotated[list[TraceEvent], "Every phase, parents before their children."]


@dataclass(frozen=True)
class TraceQuery:
    download: Annotated[
        bool,
        Parameter(choices=("1",), expected="1; leave it out for the API's envelope"),
        "`1`: the bare trace file.",
    ] = False


@dataclass(frozen=True)
class WindowQuery:
    from_us: Annotated[
        int | None, _MOMENT, "Start of the window. Default: the run's first time."
    ] = None
    to_us: Annotated[int | None, _MOMENT, "End of the window. Default: the run's last time."] = None
    width: Annotated[int, _WIDTH, "How many columns the window is drawn with."] = DEFAULT_COLUMNS
    idle: Annotated[
        bool,
        Parameter(choices=("1",), expected="1; leave it out to keep idle time"),
        "`1`: return also when any lane was busy, in `busy`.",
    ] = False


@dataclass(frozen=True)
class TimelineLane:
    """A thread of a process. Its lists are flat, with a fixed number of values per entry."""

    label: Annotated[str, "Its process, and the thread where that has several."]
    process: Annotated[str, "Distinguishes its process from the others: model, rank, pid."]
    rows: Annotated[Count, "How many phases ran inside one another at most."]
    last: Annotated[DurationUs, "When it ended, since `first_us`."]
    spans: Annotated[
        list[int],
        "Phases, five numbers each: place in `names`, begin since `first_us`, duration (−1: its "
        "end was not recorded), depth, key of its compile (0: none). Times are microseconds. "
        "Parents stand before their children.",
    ]
    short: Annotated[
        list[int],
        "What is too short to be seen, four numbers each: depth, bucket (a 240th of the window), "
        "how many began in it, their time together in microseconds.",
    ]
    marks: Annotated[
        list[int],
        (
            "Instants, three numbers each: index in `names`, microseconds since `first_us`, count "
            "in its bucket."
        ),
    ]


@dataclass(frozen=True)
class TimelineWindowJson:
    """A window of a timeline. Lanes and instants are empty if no phase was recorded."""

    first_us: Annotated[TimeUs | None, "When the run's first phase began."]
    last_us: Annotated[TimeUs | None, "When its last phase ended."]
    from_us: Annotated[TimeUs | None, "Where the window begins."]
    to_us: Annotated[TimeUs | None, "Where the window ends."]
    names: Annotated[list[NameAndPhase], "Names of phases."]
    compiles: Annotated[dict[str, CompileAndLabel], "Compiles by their key."]
    lanes: Annotated[list[TimelineLane], "The process that compiled longest first, each by thread."]
    is_coarse: Annotated[
        bool,
        "Whether the shortest phases are in no sum: more began in the window than are looked at.",
    ]
    busy: Annotated[
        list[int],
        "With `idle`: when any lane was busy, two numbers each, begin and end, in microseconds "
        "since `first_us`.",
    ]


@operation("/runs/<run_id>/timeline")
def get_timeline(detail: RunDetail, query: TraceQuery) -> Annotated[Response, Trace]:
    """Return a run's phases in Chrome's trace format, streamed and without an ETag.

    With `download=1` the response is the bare trace file, not wrapped in `ok`, `data` and `next`,
    so that Perfetto and chrome://tracing can open it.
    """
    lanes = timeline.list_lanes(get_run_reader(detail.run.id), detail.run.id, 1000)
    pieces = _write_document(get_settings().db, detail, lanes)
    if not query.download:
        pieces = _wrap_in_envelope(pieces)
    packed = request.accept_encodings["gzip"] > 0
    response = Response(_compress(pieces) if packed else pieces, content_type="application/json")
    response.vary.add("Accept-Encoding")
    if packed:
        response.headers["Content-Encoding"] = "gzip"
    if query.download:
        response.headers.set(
            "Content-Disposition", "attachment", filename=f"timeline-{detail.run.id}.json"
        )
    return response


@operation("/runs/<run_id>/timeline/window")
def get_window(detail: RunDetail, query: WindowQuery) -> TimelineWindowJson:
    """Return the spans of a timeline window that are wide enough to be seen, as flat lists, and
    sums of the others.
    """
    reader = get_run_reader(detail.run.id)
    lanes = timeline.list_lanes(reader, detail.run.id)
    if not lanes:
        return TimelineWindowJson(None, None, None, None, [], {}, [], is_coarse=False, busy=[])
    window = choose_window(lanes, query.from_us, query.to_us, query.width)
    return TimelineWindowJson(
        **read_window(reader, detail.run.id, lanes, window, with_busy=query.idle)
    )


def _write_document(database: str, detail: RunDetail, lanes: list[Lane]) -> Iterator[bytes]:
    run = detail.run
    origin = TraceOrigin(run.id, run.shown_name, run.torch_version, "CompileBoard")
    yield b'{"displayTimeUnit":"ms","otherData":' + orjson.dumps(origin) + b',"traceEvents":['
    # A store of its own: the request's is closed before the last piece is sent.
    with closing(open_store(database)) as store:
        events = iterate_events(store.open_run(run.id), lanes)
        separator = b""
        while chunk := b",".join(map(orjson.dumps, islice(events, _CHUNK))):
            yield separator + chunk
            separator = b","
    yield b"]}"


def _wrap_in_envelope(pieces: Iterable[bytes]) -> Iterator[bytes]:
    yield b'{"ok":true,"data":'
    yield from pieces
    yield b',"next":null}'


def _compress(pieces: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(1, wbits=31)
    for piece in pieces:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()
