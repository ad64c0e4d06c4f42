"""The timeline as a page draws it and as trace viewers read it: phases of names, compact windows, Chrome's events."""

from __future__ import annotations

import heapq
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from compileboard.app.analysis.labels import PHASES, Phase
from compileboard.app.format import format_duration
from compileboard.app.queries.run.timeline import Lane, LaneWindow, Span

# The first that fits. Names are torch's: dynamo_timed, CompileEventLogger and the passes of inductor.
_RULES = tuple(
    (re.compile(pattern, re.IGNORECASE), phase)
    for pattern, phase in (
        (r"compile_attempt_(?!0$)|restart", "restart"),
        (r"^pass\.", "inductor"),
        (r"cudagraph", "cudagraph"),
        (r"triton|async_compile|autotun|precompile", "triton"),
        (r"codegen$|codegen\.|code_gen|codecache\.|compile_file|compile_to_fn|cutlass|cpp_builder", "codegen"),
        (
            r"inductor_|fx_codegen|fx_graph|compile_fx|graphlowering|scheduler|_passes$|fake_tensor_prop",
            "inductor",
        ),
        (r"aot|autograd|backward|min_cut|joint|backend_compile", "aot"),
        (
            r"dynamo|frame_compile|bytecode|build_guards|guard|compile_attempt_0|automatic_dynamic|pgo|runtime_asserts",
            "dynamo",
        ),
    )
)
OTHER = Phase("other", "other", "phase-other", "anything else that torch timed, garbage collection among it")
LEGEND = (*(phase for phase in PHASES if phase.name != "first_calls"), OTHER)
_PLACES = {phase.name: place for place, phase in enumerate(LEGEND)}


@lru_cache(maxsize=4096)
def find_phase(name: str) -> Phase:
    """Say which phase of a compile a span's name belongs to."""
    found = next((phase for pattern, phase in _RULES if pattern.search(name)), OTHER.name)
    return LEGEND[_PLACES[found]]


def label_lane(lane: Lane, threads: int) -> str:
    """Name a lane as people do: rank and pid, and the thread where a process has several."""
    parts = [f"rank {lane.rank}"] if lane.rank is not None else []
    parts += [f"pid {lane.pid}"] if lane.pid is not None else []
    parts = parts or [f"process {lane.process_id[:8]}"]
    return " · ".join([*parts, f"thread {lane.thread}"] if threads > 1 else parts)


def build_lane_headers(lanes: Sequence[Lane]) -> list[dict[str, Any]]:
    """Say what is drawn of each lane's frame: its label and how many rows it has."""
    processes = [lane.process_id for lane in lanes]
    return [
        {"label": label_lane(lane, processes.count(lane.process_id)), "rows": lane.deepest + 1, "last": lane.last_us}
        for lane in lanes
    ]


def write_window(
    lanes: Sequence[Lane],
    windows: Sequence[LaneWindow],
    compiles: Mapping[int, tuple[str, str | None]],
    from_us: int,
    to_us: int,
) -> dict[str, Any]:
    """Write a window as flat lists, so that thousands of spans are a few lists of numbers.

    Times in lists are since `first_us`, the run's first moment.
    """
    first_us = min(lane.first_us for lane in lanes)
    names: dict[str, int] = {}
    drawn = []
    for lane, window in zip(build_lane_headers(lanes), windows):
        spans: list[int] = []
        for span in window.spans:
            end = -1 if span.duration_us is None else span.duration_us
            place = names.setdefault(span.name, len(names))
            spans += (place, span.begin_us - first_us, end, span.depth, span.compile_key or 0)
        short = [
            value
            for short_spans in window.short
            for value in (short_spans.depth, short_spans.bucket, short_spans.span_count, short_spans.busy_us)
        ]
        marks: list[int] = []
        for mark in window.marks:
            marks += (names.setdefault(mark.name, len(names)), mark.first_us - first_us, mark.mark_count)
        drawn.append(lane | {"last": lane["last"] - first_us, "spans": spans, "short": short, "marks": marks})
    return {
        "first_us": first_us,
        "last_us": max(lane.last_us for lane in lanes),
        "from_us": from_us,
        "to_us": to_us,
        "names": [[name, _PLACES[find_phase(name).name]] for name in names],
        "compiles": {str(key): list(said) for key, said in compiles.items()},
        "lanes": drawn,
        "is_coarse": any(window.is_coarse for window in windows),
    }


def number_processes(lanes: Sequence[Lane]) -> dict[str, int]:
    """Give each process the number that tells it apart: its rank, else its pid, else its place."""
    ids = list(dict.fromkeys(lane.process_id for lane in lanes))
    by_id = {lane.process_id: lane for lane in lanes}
    for numbers in ([by_id[id_].rank for id_ in ids], [by_id[id_].pid for id_ in ids]):
        told = [number for number in numbers if number is not None]
        if len(set(told)) == len(ids):
            return dict(zip(ids, told))
    return {id_: place for place, id_ in enumerate(ids)}


def name_processes(lanes: Sequence[Lane]) -> Iterator[dict[str, Any]]:
    """Make the events that name processes and threads in a trace viewer."""
    numbers = number_processes(lanes)
    for lane in lanes:
        place = {"ph": "M", "ts": 0, "pid": numbers[lane.process_id], "tid": lane.thread}
        yield place | {"name": "process_name", "args": {"name": label_lane(lane, 1)}}
        yield place | {"name": "process_sort_index", "args": {"sort_index": numbers[lane.process_id]}}
        yield place | {"name": "thread_name", "args": {"name": f"thread {lane.thread}"}}


def make_events(rows: Iterable[Mapping[str, Any]], pid: int, tid: int) -> Iterator[dict[str, Any]]:
    """Make the trace events of a lane's spans: X is a phase, i a moment, B a phase whose end was not recorded."""
    for row in rows:
        event: dict[str, Any] = {"name": row["name"], "ts": row["begin_us"], "pid": pid, "tid": tid}
        if row["instant"]:
            event |= {"ph": "i", "s": "t"}
        elif row["duration_us"] is None:
            event["ph"] = "B"
        else:
            event |= {"ph": "X", "dur": row["duration_us"]}
        event["cat"] = find_phase(row["name"]).name
        args = json.loads(row["args"]) if row["args"] else {}
        event["args"] = ({"compile_id": row["compile_id"]} if row["compile_id"] else {}) | args
        yield event


DRAWN = 400  # spans of all lanes together
_GAP = 0.3  # percent of the width that stands for idle time
_LABELLED = 6.0  # percent that a span needs for its name to be written into it


@dataclass(frozen=True)
class StripSpan:
    """Hold one phase as it is drawn.

    Units: start and width are percent of the strip's width.
    """

    row: int
    start: float
    width: float
    color: str
    name: str
    about: str

    @property
    def labelled(self) -> bool:
        """Say whether there is room for its name."""
        return self.width >= _LABELLED


@dataclass(frozen=True)
class StripLane:
    """Hold one lane's strip; `span_count` is how many phases the lane has in all."""

    label: str
    rows: int
    spans: tuple[StripSpan, ...]
    span_count: int


def build_strips(
    lanes: Sequence[Lane],
    windows: Sequence[LaneWindow],
    busy: Sequence[tuple[int, int]],
    functions: Mapping[int, tuple[str, str | None]],
) -> list[StripLane]:
    """Draw the longest phases of each lane; `busy` are the times in which any lane is."""
    place = _make_scale(busy)
    drawn = []
    for lane, said, window in zip(lanes, build_lane_headers(lanes), windows):
        longest = heapq.nlargest(DRAWN // len(lanes), window.spans, key=lambda span: span.duration_us or 0)
        spans = tuple(
            _build_span(span, place, functions)
            for span in sorted(longest, key=lambda span: (span.begin_us, span.depth))
        )
        rows = 1 + max((span.row for span in spans), default=0)
        drawn.append(StripLane(said["label"], rows, spans, lane.span_count))
    return drawn


def _build_span(
    span: Span, place: Callable[[int], float], functions: Mapping[int, tuple[str, str | None]]
) -> StripSpan:
    start = place(span.begin_us)
    width = max(place(span.begin_us + (span.duration_us or 0)) - start, 0.05)
    compile_id, function = functions.get(span.compile_key or 0, (span.compile_id, None))
    said = [span.name, format_duration(span.duration_us), " ".join(word for word in (compile_id, function) if word)]
    return StripSpan(
        span.depth,
        round(start, 2),
        round(width, 2),
        find_phase(span.name).color,
        span.name,
        ", ".join(filter(None, said)),
    )


def _make_scale(busy: Sequence[tuple[int, int]]) -> Callable[[int], float]:
    """Return what places a time; between two busy stretches there is a gap of one width, however long it was."""
    begins = [begin for begin, _end in busy]
    befores = [0]
    for begin, end in busy:
        befores.append(befores[-1] + end - begin)
    gap = _GAP if len(busy) * _GAP < 30 else 0
    scale = (100 - gap * (len(busy) - 1)) / max(befores[-1], 1)

    def place(at_us: int) -> float:
        number = max(bisect_right(begins, at_us) - 1, 0)
        begin, end = busy[number]
        return (befores[number] + min(max(at_us - begin, 0), end - begin)) * scale + number * gap

    return place
