"""The timeline of a run: its phases, windows as compact lists, and Chrome trace events."""

from __future__ import annotations

import heapq
import re
import sqlite3
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from compileboard.app.core.format import format_duration
from compileboard.app.core.labels import PHASES, Phase
from compileboard.app.core.page import FilterError
from compileboard.app.core.run_cache import cached_for_run
from compileboard.app.timeline import run_queries as timeline
from compileboard.app.timeline.run_queries import CompileLabel, Lane, LaneWindow, NameTotal, Span
from compileboard.collectors.contract.compile_labels import SEPARATOR, build_label
from compileboard.collectors.store.reading import read_json

# The first match wins. Names are torch's: dynamo_timed, CompileEventLogger and inductor's passes.
_RULES = tuple(
    (re.compile(pattern, re.IGNORECASE), phase)
    for pattern, phase in (
        (r"restart", "restart"),
        (r"^pass\.", "inductor"),
        (r"cudagraph", "cudagraph"),
        (r"triton|async_compile|autotun|precompile", "triton"),
        (
            r"codegen$|codegen\.|code_gen|codecache\.|compile_file|compile_to_fn|cutlass|cpp_builder",
            "codegen",
        ),
        (
            r"inductor_|fx_codegen|fx_graph|compile_fx|graphlowering|scheduler|_passes$|fake_tensor_prop",
            "inductor",
        ),
        (r"aot|autograd|backward|min_cut|joint|backend_compile", "aot"),
        (
            r"dynamo|frame_compile|bytecode|build_guards|guard|compile_attempt|automatic_dynamic|pgo|runtime_asserts",
            "dynamo",
        ),
    )
)
OTHER = Phase(
    "other", "other", "phase-other", "anything else that torch timed, garbage collection among it"
)
LEGEND = (*(phase for phase in PHASES if phase.name != "first_calls"), OTHER)
_POSITIONS = {phase.name: position for position, phase in enumerate(LEGEND)}


_ATTEMPT = re.compile(r"compile_attempt_(\d{1,6})")


@lru_cache(maxsize=4096)
def find_phase(name: str, attempt_count: int = 1) -> Phase:
    """Return a span's phase. All attempts to compile a frame except the last are discarded."""
    attempt = _ATTEMPT.fullmatch(name)
    if attempt and int(attempt[1]) < attempt_count - 1:
        return LEGEND[_POSITIONS["restart"]]
    phase_name = next((phase for pattern, phase in _RULES if pattern.search(name)), OTHER.name)
    return LEGEND[_POSITIONS[phase_name]]


def name_instant(name: str) -> str:
    match = re.search(r"_(hit\b|miss$|bypass$)", name)
    return match[1] if match else ""


def label_process(lane: Lane) -> str:
    parts = [f"rank {lane.rank}"] if lane.rank is not None else []
    parts += [f"pid {lane.pid}"] if lane.pid is not None else []
    return lane.name or SEPARATOR.join(parts or [f"process {lane.process_id[:8]}"])


def build_lane_headers(lanes: Sequence[Lane]) -> list[dict[str, Any]]:
    threads = Counter(lane.process_id for lane in lanes)
    headers = []
    for lane in lanes:
        process = label_process(lane)
        label = build_label(
            process, f"thread {lane.thread}" if threads[lane.process_id] > 1 else "", ""
        )
        headers.append(
            {"label": label, "process": process, "rows": lane.deepest + 1, "last": lane.last_us}
        )
    return headers


def find_busy_window(stretches: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the window that holds 95% of the intervals' time; no interval is cut.

    Units: microseconds since 1970, like the intervals.
    """
    spare_us = sum(end - begin for begin, end in stretches) // 40
    return _skip_time(stretches, spare_us)[0], _skip_time(stretches[::-1], spare_us)[1]


def _skip_time(stretches: Sequence[tuple[int, int]], spare_us: int) -> tuple[int, int]:
    for begin, end in stretches:
        spare_us -= end - begin
        if spare_us < 0:
            return begin, end
    return stretches[-1]


def write_window(
    lanes: Sequence[Lane],
    windows: Sequence[LaneWindow],
    compiles: Mapping[int, CompileLabel],
    from_us: int,
    to_us: int,
) -> dict[str, Any]:
    """Return a window as flat lists of numbers, with times relative to `first_us`, the run's first
    event.
    """
    first_us = min(lane.first_us for lane in lanes)
    names: dict[tuple[str, int], int] = {}
    lane_rows = []
    for lane, window in zip(build_lane_headers(lanes), windows):
        spans: list[int] = []
        for span in window.spans:
            end = -1 if span.duration_us is None else span.duration_us
            phase = _find_phase_of(span, compiles)
            name_index = names.setdefault((span.name, _POSITIONS[phase.name]), len(names))
            spans += (name_index, span.begin_us - first_us, end, span.depth, span.compile_key or 0)
        short = [
            value
            for short_spans in window.short
            for value in (
                short_spans.depth,
                short_spans.bucket,
                short_spans.span_count,
                short_spans.busy_us,
            )
        ]
        marks: list[int] = []
        for mark in window.marks:
            marks += (
                names.setdefault((mark.name, _POSITIONS[find_phase(mark.name).name]), len(names)),
                mark.first_us - first_us,
                mark.mark_count,
            )
        lane_rows.append(
            lane | {"last": lane["last"] - first_us, "spans": spans, "short": short, "marks": marks}
        )
    return {
        "first_us": first_us,
        "last_us": max(lane.last_us for lane in lanes),
        "from_us": from_us,
        "to_us": to_us,
        "names": [list(name) for name in names],
        "compiles": {str(key): [label.compile_id, label.text] for key, label in compiles.items()},
        "lanes": lane_rows,
        "is_coarse": any(window.is_coarse for window in windows),
    }


def _find_phase_of(span: Span, compiles: Mapping[int, CompileLabel]) -> Phase:
    label = compiles.get(span.compile_key or 0)
    return find_phase(span.name, label.attempt_count if label else 1)


def number_processes(lanes: Sequence[Lane]) -> dict[str, int]:
    ids = list(dict.fromkeys(lane.process_id for lane in lanes))
    by_id = {lane.process_id: lane for lane in lanes}
    for numbers in ([by_id[id_].rank for id_ in ids], [by_id[id_].pid for id_ in ids]):
        known = [number for number in numbers if number is not None]
        if len(set(known)) == len(ids):
            return dict(zip(ids, known))
    return {id_: number for number, id_ in enumerate(ids)}


def name_processes(lanes: Sequence[Lane]) -> Iterator[dict[str, Any]]:
    numbers = number_processes(lanes)
    for lane in lanes:
        lane_event = {"ph": "M", "ts": 0, "pid": numbers[lane.process_id], "tid": lane.thread}
        yield lane_event | {"name": "process_name", "args": {"name": label_process(lane)}}
        yield lane_event | {
            "name": "process_sort_index",
            "args": {"sort_index": numbers[lane.process_id]},
        }
        yield lane_event | {"name": "thread_name", "args": {"name": f"thread {lane.thread}"}}


def make_events(rows: Iterable[Mapping[str, Any]], pid: int, tid: int) -> Iterator[dict[str, Any]]:
    """Yield the trace events of a lane's spans: X is a phase, i an instant, B a phase without a
    recorded end.
    """
    for row in rows:
        event: dict[str, Any] = {"name": row["name"], "ts": row["begin_us"], "pid": pid, "tid": tid}
        if row["instant"]:
            event |= {"ph": "i", "s": "t"}
        elif row["duration_us"] is None:
            event["ph"] = "B"
        else:
            event |= {"ph": "X", "dur": row["duration_us"]}
        event["cat"] = find_phase(row["name"], row["attempt_count"]).name
        args = (read_json(dict[str, Any], row["args"]) if row["args"] else None) or {}
        event["args"] = ({"compile_id": row["compile_id"]} if row["compile_id"] else {}) | args
        yield event


DRAWN = 400  # spans of all lanes together
_GAP = 0.3  # percent of the width, for idle time
_LABELLED = 6.0  # minimum percent of the width for a labelled span


@dataclass(frozen=True)
class StripSpan:
    row: int
    start: float
    width: float
    color: str
    name: str
    about: str

    @property
    def labelled(self) -> bool:
        return self.width >= _LABELLED


@dataclass(frozen=True)
class StripLane:
    label: str
    rows: int
    spans: tuple[StripSpan, ...]
    span_count: int


def build_strips(
    lanes: Sequence[Lane],
    windows: Sequence[LaneWindow],
    busy: Sequence[tuple[int, int]],
    labels: Mapping[int, CompileLabel],
) -> list[StripLane]:
    scale = _make_scale(busy)
    strips = []
    for lane, header, window in zip(lanes, build_lane_headers(lanes), windows):
        longest = heapq.nlargest(
            DRAWN // len(lanes), window.spans, key=lambda span: span.duration_us or 0
        )
        spans = tuple(
            _build_span(span, scale, labels)
            for span in sorted(longest, key=lambda span: (span.begin_us, span.depth))
        )
        rows = 1 + max((span.row for span in spans), default=0)
        strips.append(StripLane(header["label"], rows, spans, lane.span_count))
    return strips


def _build_span(
    span: Span, scale: Callable[[int], float], labels: Mapping[int, CompileLabel]
) -> StripSpan:
    start = scale(span.begin_us)
    width = max(scale(span.begin_us + (span.duration_us or 0)) - start, 0.05)
    known = labels.get(span.compile_key or 0)
    compile_id, label = (known.compile_id, known.text) if known else (span.compile_id, "")
    texts = [
        span.name,
        format_duration(span.duration_us),
        " ".join(word for word in (label, compile_id) if word),
    ]
    return StripSpan(
        span.depth,
        round(start, 2),
        round(width, 2),
        _find_phase_of(span, labels).color,
        span.name,
        ", ".join(filter(None, texts)),
    )


def _make_scale(busy: Sequence[tuple[int, int]]) -> Callable[[int], float]:
    begins = [begin for begin, _end in busy]
    befores = [0]
    for begin, end in busy:
        befores.append(befores[-1] + end - begin)
    gap = _GAP if len(busy) * _GAP < 30 else 0
    percent_per_us = (100 - gap * (len(busy) - 1)) / max(befores[-1], 1)

    def scale(at_us: int) -> float:
        number = max(bisect_right(begins, at_us) - 1, 0)
        begin, end = busy[number]
        return (
            befores[number] + min(max(at_us - begin, 0), end - begin)
        ) * percent_per_us + number * gap

    return scale


DEFAULT_COLUMNS = 1200  # The width of the window sent with the page.
MAX_STRIPS = 16
# So fine that the longest phases are chosen only by length; of 10 lanes are read 400
_FINE_COLUMNS = 100_000


@dataclass(frozen=True)
class TimelineScreen:
    lanes: Sequence[Lane]
    totals: Sequence[NameTotal]
    labels: Mapping[int, CompileLabel]

    @property
    def headers(self) -> list[dict[str, Any]]:
        return build_lane_headers(self.lanes)

    @cached_property
    def height_rows(self) -> tuple[int, int]:
        """Return the initial number of threads and rows: one thread per process, the busiest with
        all its rows.
        """
        processes = list(dict.fromkeys(lane.process_id for lane in self.lanes))
        opened = [lane.deepest + 1 for lane in self.lanes if lane.process_id == processes[0]]
        return len(opened) + len(processes) - 1, sum(opened) + len(processes) - 1

    @cached_property
    def legend(self) -> list[Phase]:
        present = {find_phase(total.name).name for total in self.phase_totals}
        if any(total.name == "compile_attempt_1" for total in self.phase_totals):
            present.add("restart")
        return [phase for phase in LEGEND if phase.name in present]

    @cached_property
    def instant_kinds(self) -> set[str]:
        return {name_instant(total.name) for total in self.totals if total.instant_count}

    @cached_property
    def phase_totals(self) -> list[NameTotal]:
        return [total for total in self.totals if not total.is_moment]


def build_timeline(reader: sqlite3.Connection, run_id: str) -> TimelineScreen:
    totals = timeline.list_totals(reader, run_id)
    keys = {total.longest_compile_key for total in totals if total.longest_compile_key is not None}
    labels = timeline.load_compile_labels(reader, sorted(keys), with_process=True)
    return TimelineScreen(timeline.list_lanes(reader, run_id), totals, labels)


@dataclass(frozen=True)
class TimelineWindow:
    """A window of a run's time, divided into columns. Microseconds since the epoch."""

    from_us: int
    to_us: int
    columns: int = DEFAULT_COLUMNS


def choose_window(
    lanes: Sequence[Lane],
    from_us: int | None = None,
    to_us: int | None = None,
    columns: int = DEFAULT_COLUMNS,
    names: tuple[str, str] = ("from_us", "to_us"),
) -> TimelineWindow:
    """Return a window of a run. A missing end is that of the run.

    Raises FilterError with the parameters' `names` if the window ends before it begins.
    """
    first_us, last_us = _run_window(lanes)
    from_us, to_us = first_us if from_us is None else from_us, last_us if to_us is None else to_us
    if to_us <= from_us:
        raise FilterError(f"{names[1]}: {to_us} is not after {names[0]}, {from_us}")
    return TimelineWindow(from_us, to_us, columns)


def read_window(
    reader: sqlite3.Connection,
    run_id: str,
    lanes: Sequence[Lane],
    window: TimelineWindow,
    *,
    with_busy: bool = False,
) -> dict[str, Any]:
    first_us, last_us = _run_window(lanes)
    if window == TimelineWindow(first_us, last_us):
        row = cached_for_run(
            reader, run_id, _write_whole
        )  # shown first, and the slowest of a large run
    else:
        row = _build_window(reader, lanes, window)
    return row | {"busy": read_busy(reader, run_id, lanes) if with_busy else []}


def _write_whole(reader: sqlite3.Connection, run_id: str) -> dict[str, Any]:
    lanes = timeline.list_lanes(reader, run_id)
    return _build_window(reader, lanes, TimelineWindow(*_run_window(lanes)))


def find_opening(reader: sqlite3.Connection, run_id: str) -> tuple[int, int]:
    """Return the initial window: the work of the process that compiled longest."""
    return cached_for_run(reader, run_id, _find_opening)


def _find_opening(reader: sqlite3.Connection, run_id: str) -> tuple[int, int]:
    lanes = timeline.list_lanes(reader, run_id)
    own = [lane for lane in lanes if lane.process_id == lanes[0].process_id]
    stretches = timeline.list_busy(reader, own, 0)
    return find_busy_window(stretches) if stretches else _run_window(lanes)


def read_opening(
    reader: sqlite3.Connection, run_id: str, lanes: Sequence[Lane]
) -> tuple[dict[str, Any], tuple[int, int]]:
    row = cached_for_run(reader, run_id, _write_opening)
    return row | {"busy": read_busy(reader, run_id, lanes)}, find_opening(reader, run_id)


def _write_opening(reader: sqlite3.Connection, run_id: str) -> dict[str, Any]:
    lanes = timeline.list_lanes(reader, run_id)
    from_us, to_us = _find_opening(reader, run_id)
    first_us, last_us = _run_window(lanes)
    columns = min(_FINE_COLUMNS, DEFAULT_COLUMNS * (last_us - first_us) // max(to_us - from_us, 1))
    return _build_window(
        reader, lanes, TimelineWindow(first_us, last_us, max(columns, DEFAULT_COLUMNS))
    )


def read_busy(reader: sqlite3.Connection, run_id: str, lanes: Sequence[Lane]) -> list[int]:
    """Return the intervals in which any thread was busy, as a flat list of begin and end relative
    to the first phase.
    """
    first_us, _last_us = _run_window(lanes)
    return [
        at - first_us for stretch in cached_for_run(reader, run_id, _list_busy) for at in stretch
    ]


def _list_busy(reader: sqlite3.Connection, run_id: str) -> list[tuple[int, int]]:
    lanes = timeline.list_lanes(reader, run_id)
    first_us, last_us = _run_window(lanes)
    return timeline.list_busy(reader, lanes, (last_us - first_us) // 200)


def _run_window(lanes: Sequence[Lane]) -> tuple[int, int]:
    first_us = min(lane.first_us for lane in lanes)
    return first_us, max(first_us + 1, *(lane.last_us for lane in lanes))


def _build_window(
    reader: sqlite3.Connection, lanes: Sequence[Lane], window: TimelineWindow
) -> dict[str, Any]:
    windows = _read_lanes(reader, lanes, window)
    return write_window(lanes, windows, _list_labels(reader, windows), window.from_us, window.to_us)


def _read_lanes(
    reader: sqlite3.Connection, lanes: Sequence[Lane], window: TimelineWindow
) -> list[timeline.LaneWindow]:
    return [
        timeline.get_window(
            reader, lane, window.from_us, window.to_us, window.columns, lane_count=len(lanes)
        )
        for lane in lanes
    ]


def _list_labels(
    reader: sqlite3.Connection, windows: Sequence[timeline.LaneWindow]
) -> Mapping[int, CompileLabel]:
    keys = {
        span.compile_key
        for window in windows
        for span in window.spans
        if span.compile_key is not None
    }
    return timeline.load_compile_labels(reader, sorted(keys))


def read_strips(reader: sqlite3.Connection, screen: TimelineScreen) -> list[StripLane]:
    """Return the longest phases of the first threads, with idle time cut out."""
    lanes = screen.lanes[:MAX_STRIPS]
    if not lanes:
        return []
    first_us, last_us = _run_window(screen.lanes)
    windows = _read_lanes(reader, lanes, TimelineWindow(first_us, last_us + 1, _FINE_COLUMNS))
    busy = timeline.list_busy(reader, lanes, (last_us - first_us) // 200) or [(first_us, last_us)]
    return build_strips(lanes, windows, busy, _list_labels(reader, windows))


def iterate_events(reader: sqlite3.Connection, lanes: Sequence[Lane]) -> Iterator[dict[str, Any]]:
    """Yield a run as Chrome trace events, process and thread names first."""
    yield from name_processes(lanes)
    numbers = number_processes(lanes)
    for lane in lanes:
        yield from make_events(
            timeline.iterate_spans(reader, lane.id), numbers[lane.process_id], lane.thread
        )
