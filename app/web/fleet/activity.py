"""Deleted runs that can be put back, and who changed what."""

from __future__ import annotations

from flask import Blueprint, redirect, render_template, request
from werkzeug.wrappers import Response

from compileboard.app.db import get_reader, get_settings, restore_deleted_run
from compileboard.app.queries.page import check_limit
from compileboard.app.screens.dashboard.activity import build_activity, label_action
from compileboard.app.web.filters import run_url

blueprint = Blueprint("activity", __name__)


@blueprint.get("/activity")
def index() -> str:
    """Show deleted runs and changes."""
    reader = get_reader()
    limit = check_limit(request.args.get("limit"), get_settings().page_size)
    subject = request.args.get("subject") or None
    screen = build_activity(reader, subject, request.args.get("cursor"), limit)
    return render_template("activity/index.html", screen=screen, label_action=label_action)


@blueprint.post("/runs/<run_id>/restore")
def restore(run_id: str) -> Response:
    """Restore a deleted run."""
    restore_deleted_run(run_id)
    return redirect(run_url(run_id), 303)
