"""Incidents over the API: text for programs, and what a program may do."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.series_changes import keep_one_of_each

pytestmark = on_both_engines

ONE = f"/api/v1/incidents/{'f' * 16}"


@pytest.fixture(autouse=True)
def stored(store: sqlite3.Connection) -> None:
    keep_one_of_each(store)


def post(client: FlaskClient, action: str, body: Any) -> tuple[int, Any]:
    answer = client.post(
        f"{ONE}/{action}", data=body if isinstance(body, (str, bytes)) else json.dumps(body)
    )
    return answer.status_code, answer.json


@pytest.mark.parametrize(
    ("incident_id", "title", "sentences"),
    [
        (
            "f" * 16,
            "Breaky: speedup down 11%, graph break",
            [
                "Breaky: speedup 0.65× → 0.578× (−11%)",
                "Suite bench_models: geomean speedup 0.65× → 0.578× (−11%)",
                "Breaky: graphs 0 → 0.578 (+0.578)",
            ],
        ),
        ("gone", "Sleeper: no longer measured", ["Sleeper: no longer measured"]),
        ("fails", "Resnet18: fails", ["Resnet18: fails"]),
        (
            "drift",
            "Mlp: compile time up gradually 10%",
            ["Mlp: compile time 2 s → 0.578 s (+10%), gradually"],
        ),
        ("runs", "train: recompiles 0.65 → 0.578", ["train: recompiles 0.65 → 0.578 (−11%)"]),
    ],
)
def test_an_incident_has_a_title_and_its_changes(
    client: FlaskClient, incident_id: str, title: str, sentences: list[str]
) -> None:
    data = client.get(f"/api/v1/incidents/{incident_id}").json["data"]  # type: ignore[index]
    assert data["title"].startswith(title)
    assert [change["sentence"] for change in data["changes"]] == sentences
    assert (data["comments"], len(data["headlines"]) >= 1) == ([], True)


def test_the_id_of_a_change_answers_with_its_incident(client: FlaskClient) -> None:
    assert client.get("/api/v1/incidents/suite").json["data"]["id"] == "f" * 16  # type: ignore[index]


@pytest.mark.parametrize(
    ("action", "status", "owner"),
    [
        ("acknowledge", "acknowledged", "ci"),
        ("ignore", "ignored", "ci"),
        ("comment", "open", None),
        ("reopen", "open", None),
    ],
)
def test_an_action_answers_with_the_incident(
    client: FlaskClient, action: str, status: str, owner: str | None
) -> None:
    code, body = post(client, action, {"author": "ci", "text": "expected"})
    assert (code, body["ok"], body["data"]["status"], body["data"]["owner"]) == (
        200,
        True,
        status,
        owner,
    )
    (row,) = body["data"]["comments"]
    assert (row["action"], row["author"], row["text"], row["time_us"] > 0) == (
        action,
        "ci",
        "expected",
        True,
    )
    listed = client.get("/api/v1/incidents?status=any").json["data"]  # type: ignore[index]
    assert {incident["id"]: incident["status"] for incident in listed}["f" * 16] == status


@pytest.mark.parametrize(
    ("action", "body", "message"),
    [
        ("ignore", {"author": "ci"}, "text: a reason is required"),
        ("acknowledge", {}, "author: name is required"),
        ("acknowledge", {"author": 3}, "author: expected a string, got int"),
        ("comment", {"author": "ci", "text": None}, "text: a comment needs text"),
        (
            "comment",
            {"author": "ci", "words": "x"},
            "words: there is no such field; known are author, text",
        ),
        ("comment", "{", "body: expected a JSON object"),
        ("comment", "[]", "body: expected a JSON object"),
        ("comment", b"\xff", "body: expected a JSON object"),
        ("comment", '{"author": "ci", "text": "\\ud800"}', "body: expected a JSON object"),
    ],
)
def test_a_body_that_cannot_be_used_saves_nothing(
    client: FlaskClient, action: str, body: Any, message: str
) -> None:
    status, answer = post(client, action, body)
    assert (status, answer["ok"], answer["error"][: len(message)]) == (400, False, message)
    assert client.get(ONE).json["data"]["comments"] == []  # type: ignore[index]


def test_what_is_not_there_is_404(client: FlaskClient) -> None:
    for method, address in ((client.get, "odd"), (client.post, "odd/comment")):
        answer = method(f"/api/v1/incidents/{address}", data='{"author": "ci", "text": "x"}')
        assert (answer.status_code, answer.json["error"][:29]) == (
            404,
            "There is no incident odd; unc",
        )
    assert client.post(f"{ONE}/odd", data="{}").status_code == 404
    assert client.get(f"{ONE}/comment").status_code == 405
