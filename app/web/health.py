"""/healthz: what a load balancer or a person asks first."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify

from compileboard.app.db import get_reader
from compileboard.app.queries.dashboard.health import get_health
from compileboard.app.resources import __version__
from compileboard.app.web.access import open_to_all

blueprint = Blueprint("health", __name__)


@blueprint.get("/healthz")
@open_to_all
def index() -> Response:
    """Answer that the database can be read, with its version and its number of runs."""
    health = get_health(get_reader())
    return jsonify({"ok": True, "version": __version__, "schema": health.schema_version, "runs": health.run_count})
