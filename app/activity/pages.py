"""The Activity page: deleted runs that can be restored, and the audit log."""

from __future__ import annotations

from flask import Blueprint, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from compileboard.app.activity.model import build_activity, label_action
from compileboard.app.activity.queries import AuditFilter
from compileboard.app.core.access import may, needs
from compileboard.app.core.db import get_reader, get_settings, restore_deleted_run, revoke_by_id
from compileboard.app.core.filters import run_url
from compileboard.app.core.page import check_limit

blueprint = Blueprint("activity", __name__)


@blueprint.get("/activity")
def index() -> str:
    reader = get_reader()
    limit = check_limit(request.args.get("limit"), get_settings().page_size)
    selection = AuditFilter(
        *(request.args.get(name) or None for name in ("subject", "actor", "action"))
    )
    screen = build_activity(
        reader, selection, request.args.get("cursor"), limit, has_tokens=may("admin")
    )
    return render_template("activity/index.html", screen=screen, label_action=label_action)


@blueprint.post("/tokens/<token_id>/revoke")
@needs("admin")
def revoke(token_id: str) -> Response:
    revoke_by_id(token_id)
    return redirect(url_for("activity.index", _anchor="tokens"), 303)


@blueprint.post("/runs/<run_id>/restore")
def restore(run_id: str) -> Response:
    restore_deleted_run(run_id)
    return redirect(run_url(run_id), 303)
