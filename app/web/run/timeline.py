"""The timeline of a run: every phase that torch timed, by rank and thread, and sums by name."""

from __future__ import annotations

import sqlite3

from flask import Blueprint, request

from compileboard.app.analysis.run_cache import cached_for_run
from compileboard.app.analysis.timeline import LEGEND, build_lane_headers, find_phase, write_window
from compileboard.app.db import get_reader
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.run import timeline
from compileboard.app.queries.run.timeline import Lane
from compileboard.app.web.run.shell import find_run, render_run

blueprint = Blueprint("timeline", __name__)

WIDTH = 1200  # columns of the window that comes with the page
ROW_PX, HEAD_PX, RULER_PX = 18, 30, 22  # as in static/js/timeline-layout.mjs
MOST_PX = 620  # of the box; more lanes are moved to


@blueprint.get("/runs/<run_id>/timeline")
def show(run_id: str) -> str:
    """Show a run's timeline, at the window that the address names, and what each phase took."""
    detail, reader = find_run(run_id), get_reader()
    lanes = timeline.list_lanes(reader, run_id)
    idle = read_idle()
    data = read_lanes(run_id, lanes, *read_window(lanes, "from", "to"), WIDTH, idle=idle) if lanes else None
    height = RULER_PX + sum(HEAD_PX + ROW_PX * (lane.deepest + 1) for lane in lanes)
    return render_run(
        detail,
        "timeline/index.html",
        tab="timeline",
        lanes=build_lane_headers(lanes),
        totals=timeline.list_totals(reader, run_id),
        find_phase=find_phase,
        legend=LEGEND,
        data=data,
        height=min(MOST_PX, height),
    )


def read_window(lanes: list[Lane], start: str = "from_us", end: str = "to_us") -> tuple[int, int]:
    """Read from when to when; the whole run where the address does not say.

    Raises: FilterError if it is no window.
    """
    first_us, last_us = _whole(lanes)
    from_us, to_us = read_whole(start, first_us, 0, 1 << 60), read_whole(end, last_us, 0, 1 << 60)
    if to_us <= from_us:
        raise FilterError(f"{end}: {to_us} is not behind {start}, {from_us}")
    return from_us, to_us


def read_lanes(
    run_id: str, lanes: list[Lane], from_us: int, to_us: int, width: int, *, idle: bool = False
) -> dict[str, object]:
    """Read a window of every lane, written as the page draws it; with `idle` also when the run was busy."""
    reader = get_reader()
    first_us, last_us = _whole(lanes)
    if (from_us, to_us, width) == (first_us, last_us, WIDTH):
        found = cached_for_run(reader, run_id, _write_whole)  # what everyone sees first, and of a large run the slowest
    else:
        found = _write(reader, lanes, from_us, to_us, width)
    busy = cached_for_run(reader, run_id, _list_busy) if idle else []
    return found | {"busy": [at - first_us for stretch in busy for at in stretch]}


def _write_whole(reader: sqlite3.Connection, run_id: str) -> dict[str, object]:
    lanes = timeline.list_lanes(reader, run_id)
    return _write(reader, lanes, *_whole(lanes), WIDTH)


def _list_busy(reader: sqlite3.Connection, run_id: str) -> list[tuple[int, int]]:
    lanes = timeline.list_lanes(reader, run_id)
    first_us, last_us = _whole(lanes)
    return timeline.list_busy(reader, lanes, (last_us - first_us) // 200)


def _whole(lanes: list[Lane]) -> tuple[int, int]:
    first_us = min(lane.first_us for lane in lanes)
    return first_us, max(first_us + 1, *(lane.last_us for lane in lanes))


def _write(reader: sqlite3.Connection, lanes: list[Lane], from_us: int, to_us: int, width: int) -> dict[str, object]:
    windows = [timeline.get_window(reader, lane, from_us, to_us, width, lane_count=len(lanes)) for lane in lanes]
    keys = sorted({it.compile_key for window in windows for it in window.spans if it.compile_key is not None})
    return write_window(lanes, windows, timeline.list_functions(reader, keys), from_us, to_us)


def read_idle() -> bool:
    """Read whether idle time is hidden.

    Raises: FilterError if it is said in another way.
    """
    wanted = request.args.get("idle", "")
    if wanted not in ("", "1"):
        raise FilterError(f"idle: {wanted[:40]!r} is not 1; leave it out to keep idle time")
    return wanted == "1"


def read_whole(name: str, default: int, least: int, most: int) -> int:
    """Read a whole number of the address.

    Raises: FilterError if it is none, or not within its limits.
    """
    text = request.args.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 18 or not least <= int(text) <= most:
        raise FilterError(f"{name}: {text[:40]!r} is not a whole number from {least} to {most}")
    return int(text)
