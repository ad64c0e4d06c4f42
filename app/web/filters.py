"""What templates know: filters, words for states, links that keep the filters."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from flask import Flask, request, url_for
from jinja2 import StrictUndefined

from compileboard.app.db import get_settings
from compileboard.app.resources import __version__
from compileboard.app.screens.template_names import TEMPLATE_FILTERS, TEMPLATE_NAMES


def url_with(**changes: object) -> str:
    """Make this page's address with some of its query changed; None or "" takes a key out, and so does any cursor.

    The cursor goes because a changed filter or order starts at the first page; give cursor= to keep one.
    """
    query: dict[str, Any] = {k: v for k, v in request.args.to_dict(flat=False).items() if k != "cursor"}
    query.update(changes)
    remaining = {key: value for key, value in query.items() if value not in (None, "", [], [""])}
    here = url_for(request.endpoint or "overview.index", **(request.view_args or {}))
    # Never through url_for: a key may be one of its arguments ("_scheme") or a part of the path ("run_id").
    return f"{here}?{urlencode(remaining, doseq=True)}" if remaining else here


def run_url(run_id: str) -> str:
    """Make the address of a run's page."""
    return f"{url_for('runs.index')}/{quote(run_id, safe='')}"


def init_app(app: Flask) -> None:
    """Register the templates' filters and globals."""
    app.jinja_env.filters.update(TEMPLATE_FILTERS)
    app.jinja_env.undefined = StrictUndefined  # a misspelt name is a failing test, not a hole in a page
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.jinja_env.globals.update(TEMPLATE_NAMES, has_charts=False, live=False)  # what a page does not set
    app.jinja_env.globals["site_copy"] = None  # app.site says which copy the pages are of
    app.jinja_env.globals.update(url_with=url_with, run_url=run_url, version=__version__, settings=get_settings)
