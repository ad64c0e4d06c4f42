"""What is compressed in parts is unpacked whole, by any gzip."""

from __future__ import annotations

import gzip
import sqlite3

from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.reports.pages import pack_around
from tests.unit.app.recorded import RUN, record_run

_TEXTS = st.binary(max_size=200)


@given(_TEXTS, _TEXTS, _TEXTS)
def test_pack_around_loses_nothing(before: bytes, fixed: bytes, after: bytes) -> None:
    for body in (before + fixed + after, before + after):
        assert gzip.decompress(pack_around(body, fixed)) == body


def test_a_report_comes_packed_and_plain_the_same(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    record_run(store)
    address = f"/runs/{RUN}/report.html"
    packed = client.get(address, headers={"Accept-Encoding": "gzip"})
    assert (packed.headers["Content-Encoding"], packed.headers["Vary"]) == (
        "gzip",
        "Accept-Encoding",
    )
    page = gzip.decompress(packed.data)
    assert b"</html>" in page and len(packed.data) < len(page) / 2
    assert page[:200] == client.get(address).data[:200]
