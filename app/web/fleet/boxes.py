"""The page of the hosts that push runs to this server."""

from __future__ import annotations

from flask import Blueprint, render_template, request

from compileboard.app.analysis.runs.states import describe_stream
from compileboard.app.db import get_clock, get_reader, get_settings
from compileboard.app.queries.dashboard.streams import list_streams
from compileboard.app.queries.page import check_limit

blueprint = Blueprint("boxes", __name__)


@blueprint.get("/boxes")
def index() -> str:
    limit = check_limit(request.args.get("limit"), get_settings().page_size)
    page = list_streams(get_reader(), request.args.get("cursor"), limit)
    clock = get_clock()
    states = [describe_stream(stream, clock) for stream in page.rows]
    return render_template("boxes/index.html", page=page, states=states)
