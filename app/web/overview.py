"""The overview: what is in this database."""

from __future__ import annotations

from flask import Blueprint, render_template

from app.db import get_reader
from app.queries.overview import get_health

blueprint = Blueprint("overview", __name__)


@blueprint.get("/")
def index() -> str:
    """Show what is in this database."""
    return render_template("overview.html", health=get_health(get_reader()))
