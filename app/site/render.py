"""The real pages of the dashboard, asked for without a server, all in one transaction."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass, replace
from typing import Any

from flask import Flask, before_render_template, g
from flask.testing import FlaskClient
from jinja2 import Template
from werkzeug.routing import MapAdapter

from compileboard.app import create_app
from compileboard.app.reports.source import clean_row
from compileboard.app.settings import Settings

# What Flask puts into every page; templates look at addresses there.
_FLASKS = frozenset(("g", "request", "session", "config"))


@dataclass(frozen=True)
class SiteCopy:
    """Hold what a copied page says of itself, as `site_copy` in the templates.

    Units: written_us is since the epoch.
    """

    database: str
    written_us: int


def make_copying_app(reader: sqlite3.Connection, settings: Settings, written_us: int, *, source: bool = True) -> Flask:
    """Make the dashboard over one open transaction; its pages know that they are a copy, with or without source."""
    name = os.path.basename(settings.db)
    # The folder that a database lies in is the exporting machine's alone.
    app = create_app(replace(settings, db=name, uploads="no", allow_host="", host="127.0.0.1"))
    app.jinja_env.globals["site_copy"] = SiteCopy(name, written_us)

    def lend() -> None:
        g.reader = reader

    app.before_request(lend)
    # Called before app.db's own, which would close it.
    app.teardown_appcontext(lambda _error: g.pop("reader", None))
    if not source:
        before_render_template.connect(_withhold, app)
    return app


def _withhold(_app: Flask, template: Template, context: dict[str, Any]) -> None:
    """Take source lines out of all that a page is made of, as the reports' option does."""
    context.update(clean_row({name: value for name, value in context.items() if name not in _FLASKS}))


def bind(app: Flask) -> MapAdapter:
    """Return what finds the page of an address."""
    return app.url_map.bind("localhost")


def fetch(client: FlaskClient, address: str) -> tuple[int, bytes]:
    """Ask for an address; return the status and the body."""
    answer = client.get(address, headers={"Host": "localhost"})
    return answer.status_code, answer.get_data()
