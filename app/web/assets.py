"""Static files: a hash of the content in the address, so that a browser may keep them for a year."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from flask import Flask, Response, request, url_for

_YEAR = "public, max-age=31536000, immutable"


@lru_cache(maxsize=256)
def _content_hash(path: Path, _changed_ns: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def init_app(app: Flask) -> None:
    """Add asset('css/app.css') to the templates and the caching headers to static answers."""
    folder = Path(app.static_folder or "")

    def asset(name: str) -> str:
        path = folder / name
        return url_for("static", filename=name, v=_content_hash(path, path.stat().st_mtime_ns))

    def cache(response: Response) -> Response:
        if request.endpoint == "static" and response.status_code in (200, 304):
            response.headers["Cache-Control"] = _YEAR if request.args.get("v") else "no-cache"
        return response

    app.jinja_env.globals["asset"] = asset
    app.after_request(cache)
