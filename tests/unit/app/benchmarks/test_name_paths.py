"""A name as a part of an address comes back as it was, and nothing on the way changes it."""

from __future__ import annotations

import sqlite3
from urllib.parse import urljoin

import pytest
from flask import url_for
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.benchmarks.series import read_name, write_name
from tests.unit.app.benched import MLP, add_results, measure
from tests.unit.app.clickhouse.published import on_both_engines

NAMES = (
    "/lead",
    "two\nlines",
    "a//b",
    "a/../b",
    "..",
    "tail/",
    "~2F",
    "~",
    "timm/resnet.a1",
    "a b%20?c#d",
)


@given(
    st.text(alphabet=st.sampled_from("./~a2F\n\t%é") | st.characters(exclude_categories=("Cs",)))
)
def test_every_name_comes_back_and_survives_a_browser(name: str) -> None:
    written = write_name(name)
    assert read_name(written) == name
    assert written and not written.startswith("/") and "//" not in written
    assert not {".", ".."} & set(written.split("/"))
    assert "\n" not in urljoin("http://localhost/models/", written)


def test_ordinary_names_are_written_as_they_are() -> None:
    assert [write_name(name) for name in ("ResNet-18", "timm/resnet.a1_in1k")] == [
        "ResNet-18",
        "timm/resnet.a1_in1k",
    ]


@on_both_engines
@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_any_name_opens(
    client: FlaskClient, store: sqlite3.Connection, name: str
) -> None:
    add_results(store, "RUN", MLP, measure(model=name))
    with client.application.test_request_context():
        address = url_for("models.show", model=name)
    answer = client.get(address)
    assert answer.status_code == 200
    assert (
        client.get(address.replace("/models/", "/api/v1/models/")).get_json()["data"]["model"]
        == name
    )
