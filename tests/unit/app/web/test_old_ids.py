"""Addresses that named things by a number of the database lead to those that name them by content."""

from __future__ import annotations

import sqlite3

import pytest
from flask.testing import FlaskClient

from tests.unit.app.benched import BREAK_ID, CAUSE_ID, FUNCTION_ID, RUNS, bench_suite
from tests.unit.app.engines.published import on_both_engines


@pytest.fixture(autouse=True)
def old_numbers(store: sqlite3.Connection) -> None:
    bench_suite(store)
    numbers = (
        ("break", 12, BREAK_ID),
        ("cause", 7, CAUSE_ID),
        ("function", 3, FUNCTION_ID),
        ("break", 13, "0" * 15 + "5"),
    )
    rows = [(kind, number, int(id_, 16)) for kind, number, id_ in numbers]
    store.executemany("insert into old_ids (kind, old_id, id) values (?, ?, ?)", rows)
    store.commit()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/graph_breaks/12", f"/graph_breaks/{BREAK_ID}"),
        ("/graph_breaks/12?limit=5", f"/graph_breaks/{BREAK_ID}?limit=5"),
        ("/recompiles/7", f"/recompiles/{CAUSE_ID}"),
        ("/api/v1/graph_breaks/12", f"/api/v1/graph_breaks/{BREAK_ID}"),
        ("/api/v1/graph_breaks/12/runs?limit=1", f"/api/v1/graph_breaks/{BREAK_ID}/runs?limit=1"),
        ("/api/v1/recompiles/7", f"/api/v1/recompiles/{CAUSE_ID}"),
        (f"/runs/{RUNS[0]}?tab=breaks&distinct=12", f"/runs/{RUNS[0]}?tab=breaks&distinct={BREAK_ID}"),
        (
            f"/api/v1/runs/{RUNS[0]}/graph_breaks?distinct=12",
            f"/api/v1/runs/{RUNS[0]}/graph_breaks?distinct={BREAK_ID}",
        ),
        ("/trends?function=3", f"/trends?function={FUNCTION_ID}"),
        ("/api/v1/trend?break=12", f"/api/v1/trend?break={BREAK_ID}"),
        ("/graph_breaks/12?endpoint=x&_anchor=y", f"/graph_breaks/{BREAK_ID}?endpoint=x&_anchor=y"),
        ("/graph_breaks/12?_external=1&_scheme=ftp", f"/graph_breaks/{BREAK_ID}?_external=1&_scheme=ftp"),
    ],
)
@on_both_engines
def test_an_address_of_before_leads_to_the_new_one(client: FlaskClient, old: str, new: str) -> None:
    answer = client.get(old)
    assert (answer.status_code, answer.headers["Location"]) == (301, new)
    assert client.get(new).status_code == 200


def test_of_several_numbers_each_is_renamed(client: FlaskClient) -> None:
    answer = client.get(f"/trends?break=12&break={BREAK_ID}&metric=speedup")
    assert answer.headers["Location"] == f"/trends?break={BREAK_ID}&break={BREAK_ID}&metric=speedup"


@pytest.mark.parametrize(
    "address",
    [
        "/graph_breaks/99",
        "/recompiles/12",
        "/api/v1/graph_breaks/99",
        "/graph_breaks/13",
        "/graph_breaks/x",
        f"/graph_breaks/{CAUSE_ID}",
        "/graph_breaks/9007199254740993000",
    ],
)
def test_what_nothing_has_is_not_found(client: FlaskClient, address: str) -> None:
    answer = client.get(address, follow_redirects=True)
    assert answer.status_code == 404
    assert "There is no" in answer.text


def test_a_number_that_is_text_to_look_for_stays(client: FlaskClient) -> None:
    assert client.get("/graph_breaks?function=3").status_code == 200
    assert client.get("/api/v1/recompiles?function=3").status_code == 200
