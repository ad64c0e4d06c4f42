"""Response handling: orjson, ETags and 304, gzip, and text that UTF-8 cannot encode."""

from __future__ import annotations

import gzip
from typing import Any

import orjson
from flask import Flask, Response, request
from flask.json.provider import JSONProvider

from compileboard.app.core.json_text import OPTIONS, dump_json
from compileboard.app.push.receive import BODY_READ

_COMPRESSED_TYPES = (
    "text/",
    "application/json",
    "application/atom+xml",
    "application/javascript",
    "image/svg+xml",
)
_WORTH_COMPRESSING_BYTES = 1400  # smaller responses fit into one packet anyway


class OrjsonProvider(JSONProvider):
    def dumps(self, obj: Any, **kwargs: Any) -> str:
        return dump_json(
            obj, OPTIONS | (orjson.OPT_INDENT_2 if kwargs.get("indent") else 0)
        ).decode()

    def loads(self, s: str | bytes, **kwargs: Any) -> Any:
        return orjson.loads(s)


class TextResponse(Response):
    """A response that replaces lone surrogates, which recorded JSON may contain."""

    def set_data(self, value: bytes | str) -> None:
        super().set_data(value.encode("utf-8", "replace") if isinstance(value, str) else value)


def finish(response: Response) -> Response:
    if request.endpoint == "static":
        return response
    if request.method in ("PATCH", "PUT") and BODY_READ not in request.environ:
        response.headers["Connection"] = "close"  # do not read the rest of a refused upload
    if (
        request.method in ("GET", "HEAD")
        and response.status_code == 200
        and not response.is_streamed
    ):
        response.headers.setdefault("Cache-Control", "private, no-cache")
        response.add_etag(weak=True)
        response.make_conditional(request)
    elif "Cache-Control" not in response.headers:
        response.headers["Cache-Control"] = "no-store"
    return _compress_response(response)


def _compress_response(response: Response) -> Response:
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
    app.response_class = TextResponse
    app.json = OrjsonProvider(app)
    app.jinja_env.policies["json.dumps_function"] = app.json.dumps
    app.jinja_env.policies["json.dumps_kwargs"] = {}
    app.after_request(finish)
