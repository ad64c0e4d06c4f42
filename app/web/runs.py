"""The list of runs."""

from __future__ import annotations

from flask import Blueprint, render_template

from app.db import get_reader, get_settings
from app.queries import runs

blueprint = Blueprint("runs", __name__)


@blueprint.get("/runs")
def index() -> str:
    """List runs."""
    page = runs.list_runs(get_reader(), limit=get_settings().page_size)
    return render_template("runs.html", runs=page)
