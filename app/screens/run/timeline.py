"""A run's timeline: every timed phase by rank and thread, and totals by name."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from compileboard.app.analysis.labels import Phase
from compileboard.app.analysis.timeline import (
    LEGEND,
    StripLane,
    build_lane_headers,
    build_strips,
    find_phase,
    find_work,
    make_events,
    name_instant,
    name_processes,
    number_processes,
    write_window,
)
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.run import timeline
from compileboard.app.queries.run.timeline import Lane, NameTotal
from compileboard.app.queries.run_cache import cached_for_run

DEFAULT_COLUMNS = 1200  # of the window that comes with the page
MOST_STRIPS = 16
# So fine that the longest phases are chosen by their length alone; of 10 lanes are read 400
_FINE_COLUMNS = 100_000


@dataclass(frozen=True)
class TimelineScreen:
    lanes: Sequence[Lane]
    totals: Sequence[NameTotal]
    labels: Mapping[int, tuple[str, str]]

    @property
    def headers(self) -> list[dict[str, Any]]:
        return build_lane_headers(self.lanes)

    @cached_property
    def height_rows(self) -> tuple[int, int]:
        """The initial number of threads and rows: one thread per process, the busiest in full."""
        processes = list(dict.fromkeys(lane.process_id for lane in self.lanes))
        opened = [lane.deepest + 1 for lane in self.lanes if lane.process_id == processes[0]]
        return len(opened) + len(processes) - 1, sum(opened) + len(processes) - 1

    @cached_property
    def legend(self) -> list[Phase]:
        present = {find_phase(total.name).name for total in self.phase_totals}
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
    labels = timeline.list_labels(reader, sorted(keys), with_process=True)
    return TimelineScreen(timeline.list_lanes(reader, run_id), totals, labels)


@dataclass(frozen=True)
class TimelineWindow:
    """A window of a run's time, divided into columns. Microseconds since 1970."""

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
    """Return a window of a run; a missing end is that of the run.

    Raises FilterError with the parameters' `names` if the window ends before it begins.
    """
    first_us, last_us = _span(lanes)
    from_us, to_us = first_us if from_us is None else from_us, last_us if to_us is None else to_us
    if to_us <= from_us:
        raise FilterError(f"{names[1]}: {to_us} is not behind {names[0]}, {from_us}")
    return TimelineWindow(from_us, to_us, columns)


def read_window(
    reader: sqlite3.Connection,
    run_id: str,
    lanes: Sequence[Lane],
    window: TimelineWindow,
    *,
    with_busy: bool = False,
) -> dict[str, Any]:
    first_us, last_us = _span(lanes)
    if window == TimelineWindow(first_us, last_us):
        row = cached_for_run(
            reader, run_id, _write_whole
        )  # what everyone sees first, the slowest of a large run
    else:
        row = _write(reader, lanes, window)
    return row | {"busy": read_busy(reader, run_id, lanes) if with_busy else []}


def _write_whole(reader: sqlite3.Connection, run_id: str) -> dict[str, Any]:
    lanes = timeline.list_lanes(reader, run_id)
    return _write(reader, lanes, TimelineWindow(*_span(lanes)))


def find_opening(reader: sqlite3.Connection, run_id: str) -> tuple[int, int]:
    """Return the initial window: the work of the process that compiled longest."""
    return cached_for_run(reader, run_id, _find_opening)


def _find_opening(reader: sqlite3.Connection, run_id: str) -> tuple[int, int]:
    lanes = timeline.list_lanes(reader, run_id)
    own = [lane for lane in lanes if lane.process_id == lanes[0].process_id]
    stretches = timeline.list_busy(reader, own, 0)
    return find_work(stretches) if stretches else _span(lanes)


def read_opening(
    reader: sqlite3.Connection, run_id: str, lanes: Sequence[Lane]
) -> tuple[dict[str, Any], tuple[int, int]]:
    row = cached_for_run(reader, run_id, _write_opening)
    return row | {"busy": read_busy(reader, run_id, lanes)}, find_opening(reader, run_id)


def _write_opening(reader: sqlite3.Connection, run_id: str) -> dict[str, Any]:
    lanes = timeline.list_lanes(reader, run_id)
    from_us, to_us = _find_opening(reader, run_id)
    first_us, last_us = _span(lanes)
    columns = min(_FINE_COLUMNS, DEFAULT_COLUMNS * (last_us - first_us) // max(to_us - from_us, 1))
    return _write(reader, lanes, TimelineWindow(first_us, last_us, max(columns, DEFAULT_COLUMNS)))


def read_busy(reader: sqlite3.Connection, run_id: str, lanes: Sequence[Lane]) -> list[int]:
    """Return the intervals in which any thread was busy as a flat list of begin and end, relative
    to the first phase.
    """
    first_us, _last_us = _span(lanes)
    return [
        at - first_us for stretch in cached_for_run(reader, run_id, _list_busy) for at in stretch
    ]


def _list_busy(reader: sqlite3.Connection, run_id: str) -> list[tuple[int, int]]:
    lanes = timeline.list_lanes(reader, run_id)
    first_us, last_us = _span(lanes)
    return timeline.list_busy(reader, lanes, (last_us - first_us) // 200)


def _span(lanes: Sequence[Lane]) -> tuple[int, int]:
    first_us = min(lane.first_us for lane in lanes)
    return first_us, max(first_us + 1, *(lane.last_us for lane in lanes))


def _write(
    reader: sqlite3.Connection, lanes: Sequence[Lane], window: TimelineWindow
) -> dict[str, Any]:
    windows = _read(reader, lanes, window)
    return write_window(lanes, windows, _list_labels(reader, windows), window.from_us, window.to_us)


def _read(
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
) -> Mapping[int, tuple[str, str]]:
    keys = {
        span.compile_key
        for window in windows
        for span in window.spans
        if span.compile_key is not None
    }
    return timeline.list_labels(reader, sorted(keys))


def read_strips(reader: sqlite3.Connection, screen: TimelineScreen) -> list[StripLane]:
    """Return the longest phases of the first threads, with idle time cut out."""
    lanes = screen.lanes[:MOST_STRIPS]
    first_us, last_us = (
        min(lane.first_us for lane in screen.lanes),
        max(lane.last_us for lane in screen.lanes) + 1,
    )
    windows = _read(reader, lanes, TimelineWindow(first_us, last_us, _FINE_COLUMNS))
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
