"""Static files. They are compressed, and a content hash in their address allows caching for a year.

`serve` compresses each file once before its workers are forked; otherwise the first request does.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import lru_cache
from pathlib import Path

from flask import Flask, Response, request, url_for
from werkzeug.security import safe_join

_YEAR = "public, max-age=31536000, immutable"
_COMPRESSED_SUFFIXES = (".js", ".mjs", ".css", ".svg")
_WORTH_COMPRESSING_BYTES = 1400  # smaller files fit into one packet anyway


@lru_cache(maxsize=256)
def _content_hash(path: Path, _changed_ns: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


@lru_cache(maxsize=256)
def _compress(path: Path, _changed_ns: int) -> bytes | None:
    body = path.read_bytes()
    is_worth_it = path.suffix in _COMPRESSED_SUFFIXES and len(body) >= _WORTH_COMPRESSING_BYTES
    return gzip.compress(body, 9, mtime=0) if is_worth_it else None


def compress_assets(app: Flask) -> None:
    for path in Path(app.static_folder or "").rglob("*"):
        if path.suffix in _COMPRESSED_SUFFIXES:
            _compress(path, path.stat().st_mtime_ns)


def _send_compressed(response: Response, folder: Path) -> None:
    path = Path(safe_join(str(folder), (request.view_args or {})["filename"]) or folder)
    if path.suffix not in _COMPRESSED_SUFFIXES:
        return
    response.vary.add("Accept-Encoding")
    is_lease_held = request.accept_encodings["gzip"] > 0 and "Range" not in request.headers
    body = (
        _compress(path, path.stat().st_mtime_ns)
        if response.status_code == 200 and is_lease_held
        else None
    )
    if body is None:
        return
    etag, _ = response.get_etag()
    response.close()  # the file
    response.direct_passthrough = False
    response.response = [] if request.method == "HEAD" else [body]
    response.content_length = len(body)
    response.headers["Content-Encoding"] = "gzip"
    response.headers.pop("Accept-Ranges", None)
    response.set_etag(f"{etag}-gzip")
    response.make_conditional(request)


def init_app(app: Flask) -> None:
    folder = Path(app.static_folder or "")

    def asset(name: str) -> str:
        path = folder / name
        return url_for("static", filename=name, v=_content_hash(path, path.stat().st_mtime_ns))

    def finish(response: Response) -> Response:
        if request.endpoint == "static" and response.status_code in (200, 206, 304):
            response.headers["Cache-Control"] = _YEAR if request.args.get("v") else "no-cache"
            _send_compressed(response, folder)
        return response

    app.jinja_env.globals["asset"] = asset
    app.after_request(finish)
