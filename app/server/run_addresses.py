"""Read the run in a URL: its id in any case, or `latest`."""

from __future__ import annotations

from typing import Any

from flask import Flask, redirect, request
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response

from compileboard.app.core.db import get_clock, get_engine
from compileboard.app.core.filters import url_with
from compileboard.app.core.newest import LATEST, get_newest_run_id
from compileboard.collectors.contract.fingerprints import normalize_run_id


def normalize(_endpoint: str | None, values: dict[str, Any] | None) -> None:
    if values and "run_id" in values:
        values["run_id"] = normalize_run_id(values["run_id"])


def name_newest_run() -> Response | None:
    """Replace `latest` in a GET request by the newest run's id.

    A page redirects, so that its links and polling stay on the same run; the API answers directly.
    """
    path, query = request.view_args or {}, request.args
    if request.method not in ("GET", "HEAD") or LATEST not in (
        path.get("run_id"),
        query.get("run"),
    ):
        return None
    newest = get_newest_run_id(get_engine(), get_clock())
    if newest is None or request.endpoint is None:
        return None
    if path.get("run_id") == LATEST:
        request.view_args = path | {"run_id": newest}
    if query.get("run") == LATEST:
        request.args = MultiDict(query)
        request.args["run"] = newest
    is_page = request.blueprint != "api"
    return redirect(url_with(cursor=query.get("cursor"))) if is_page else None


def init_app(app: Flask) -> None:
    app.url_value_preprocessor(normalize)
    app.before_request(name_newest_run)
