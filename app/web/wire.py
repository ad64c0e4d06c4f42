"""What every answer has in common: orjson, ETags and 304, gzip."""

from __future__ import annotations

import gzip
from typing import Any

import orjson
from flask import Flask, Response, request
from flask.json.provider import JSONProvider

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
_COMPRESSED_TYPES = ("text/", "application/json", "application/atom+xml", "application/javascript", "image/svg+xml")
_WORTH_COMPRESSING_BYTES = 1400  # below this an answer is one packet anyway


class OrjsonProvider(JSONProvider):
    """Serialise dataclasses, numpy and the rest with orjson, for jsonify and for |tojson alike."""

    def dumps(self, obj: Any, **kwargs: Any) -> str:
        """Write JSON text."""
        option = _OPTIONS | (orjson.OPT_INDENT_2 if kwargs.get("indent") else 0)
        return orjson.dumps(obj, option=option).decode()

    def loads(self, s: str | bytes, **kwargs: Any) -> Any:
        """Read JSON text."""
        return orjson.loads(s)


def finish(response: Response) -> Response:
    """Give a page its ETag, answer 304 where the reader has it already, and compress what is worth it."""
    if request.endpoint == "static":
        return response
    if request.method in ("GET", "HEAD") and response.status_code == 200 and not response.is_streamed:
        response.headers.setdefault("Cache-Control", "private, no-cache")
        response.add_etag(weak=True)
        response.make_conditional(request)
    elif "Cache-Control" not in response.headers:
        response.headers["Cache-Control"] = "no-store"
    return _compress(response)


def _compress(response: Response) -> Response:
    if (
        response.status_code == 304
        or response.is_streamed
        or response.direct_passthrough
        or "Content-Encoding" in response.headers
        or not response.content_type.startswith(_COMPRESSED_TYPES)
    ):
        return response
    response.vary.add("Accept-Encoding")
    body = response.get_data()
    if len(body) >= _WORTH_COMPRESSING_BYTES and request.accept_encodings["gzip"] > 0:
        response.set_data(gzip.compress(body, 1, mtime=0))
        response.headers["Content-Encoding"] = "gzip"
    return response


def init_app(app: Flask) -> None:
    """Set the JSON provider and finish every response."""
    app.json = OrjsonProvider(app)
    app.jinja_env.policies["json.dumps_function"] = app.json.dumps
    app.jinja_env.policies["json.dumps_kwargs"] = {}
    app.after_request(finish)
