"""Lead addresses of before, which named things by a number of this database, to those that name them by content."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from flask import Flask, redirect, request, url_for
from werkzeug.wrappers import Response

from compileboard.app.db import get_reader
from compileboard.app.queries.dashboard.activity import find_new_id

# What a part of an address, or a parameter, names.
KINDS = {"distinct_id": "break", "cause_id": "cause", "distinct": "break", "break": "break", "function": "function"}
TRENDS = ("trends.index", "api.trends_get_trend")  # elsewhere `function` is text to look for


def redirect_old_ids() -> Response | None:
    """Answer 301 where the address has a number that was given an id."""
    if request.method not in ("GET", "HEAD") or request.endpoint is None:
        return None
    path, query = request.view_args or {}, request.args.to_dict(flat=False)
    new_path = {name: _rename(name, part) for name, part in path.items()}
    new_query = {name: [_rename(name, text) for text in texts] for name, texts in query.items()}
    if (new_path, new_query) == (path, query):
        return None
    address = url_for(request.endpoint, **new_path)  # the query beside it: a key may be an argument of url_for
    return redirect(f"{address}?{urlencode(new_query, doseq=True)}" if new_query else address, 301)


def _rename(name: str, text: Any) -> Any:
    if not isinstance(text, str):
        return text
    is_number = text.isascii() and text.isdigit() and len(text) < 16
    if not is_number or name not in KINDS or (name == "function" and request.endpoint not in TRENDS):
        return text
    return find_new_id(get_reader(), KINDS[name], int(text)) or text


def init_app(app: Flask) -> None:
    """Redirect the addresses of before, ahead of every view."""
    app.before_request(redirect_old_ids)
