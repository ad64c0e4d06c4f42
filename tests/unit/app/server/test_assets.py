"""Static files go out compressed to who takes that, under an ETag of their own."""

from __future__ import annotations

import gzip

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.tools.observed import ROOT

PLOTLY = "vendor/plotly/plotly-basic.min.js"
TAKEN = {"Accept-Encoding": "gzip, br"}


def test_a_static_file_is_sent_compressed(client: FlaskClient) -> None:
    def ask(method: str = "GET", **headers: str) -> TestResponse:
        with client.open(f"/static/{PLOTLY}?v=1", method=method, headers=headers) as answer:
            answer.get_data()
            return answer

    content = (ROOT / "static" / PLOTLY).read_bytes()
    plain, packed = ask(), ask(**TAKEN)
    assert ("Content-Encoding" in plain.headers, plain.data) == (False, content)
    assert (packed.headers["Content-Encoding"], gzip.decompress(packed.data)) == ("gzip", content)
    assert packed.content_length == len(packed.data) < 400_000
    assert plain.headers["Vary"] == packed.headers["Vary"] == "Accept-Encoding"
    assert (
        plain.headers["ETag"] != packed.headers["ETag"]
        and "immutable" in packed.headers["Cache-Control"]
    )
    for answer, headers in ((plain, {}), (packed, TAKEN)):
        again = ask(**headers, **{"If-None-Match": answer.headers["ETag"]})
        assert (again.status_code, again.data, again.headers["Vary"]) == (
            304,
            b"",
            "Accept-Encoding",
        )
    head = ask("HEAD", **TAKEN)
    assert (head.headers["Content-Encoding"], head.content_length) == (
        "gzip",
        packed.content_length,
    )
    part = ask(**TAKEN, Range="bytes=0-9")
    assert (part.status_code, part.data) == (206, content[:10])
    assert ask(**{"Accept-Encoding": "gzip;q=0"}).data == content
