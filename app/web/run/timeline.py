"""The Timeline page of a run."""

from __future__ import annotations

from flask import Blueprint, request

from compileboard.app.db import get_run_reader
from compileboard.app.queries.page import FilterError, check_whole
from compileboard.app.screens.run.timeline import (
    build_timeline,
    choose_window,
    find_opening,
    read_opening,
    read_window,
)
from compileboard.app.web.run.shell import find_run, render_run

blueprint = Blueprint("timeline", __name__)

ROW_PX, HEAD_PX, RULER_PX = 18, 30, 22  # as in static/js/timeline-layout.mjs
MOST_PX = 620  # of the box; more lanes are moved to


@blueprint.get("/runs/<run_id>/timeline")
def show(run_id: str) -> str:
    detail, reader, args = find_run(run_id), get_run_reader(run_id), request.args
    if args.get("idle", "") not in ("", "1", "shown"):  # 1 is the default of today
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
        height=min(MOST_PX, RULER_PX + HEAD_PX * lane_count + ROW_PX * row_count),
    )
