"""The page of the hosts that push runs to this server."""

from __future__ import annotations

from flask import Blueprint, render_template, request

from compileboard.app.core.db import get_clock, get_reader, get_settings
from compileboard.app.core.page import check_limit
from compileboard.app.push.queries import list_streams
from compileboard.app.runs.rows import describe_stream

blueprint = Blueprint("boxes", __name__)


@blueprint.get("/boxes")
def index() -> str:
    limit = check_limit(request.args.get("limit"), get_settings().page_size)
    page = list_streams(get_reader(), request.args.get("cursor"), limit)
    clock = get_clock()
    states = [describe_stream(stream, clock) for stream in page.rows]
    return render_template("boxes/index.html", page=page, states=states)
