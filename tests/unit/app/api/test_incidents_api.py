"""Findings over the API: words for programs, and what a program may say."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.unit.app.series_changes import keep, keep_one_of_each, make_finding

ONE = f"/api/v1/findings/{'f' * 16}"


@pytest.fixture(autouse=True)
def stored_changes(store: sqlite3.Connection) -> None:
    keep_one_of_each(store)


def say(client: FlaskClient, action: str, body: Any) -> tuple[int, Any]:
    answer = client.post(f"{ONE}/{action}", data=body if isinstance(body, (str, bytes)) else json.dumps(body))
    return answer.status_code, answer.json


@pytest.mark.parametrize(
    ("finding_id", "sentence"),
    [
        ("f" * 16, "Breaky: speedup fell by 11.0 %, from 0.650× to 0.578×"),
        ("gone", "Sleeper: no longer measured"),
        ("fails", "Resnet18: fails since then"),
        ("drift", "Breaky: compile time crept down by 10.0 %, from 2 s to 0.578 s"),
        ("suite", "suite bench_models: geomean speedup fell by 11.0 %, from 0.650× to 0.578×"),
        ("runs", "runs of train: recompiles fell by 11.0 %, from 1 to 1"),
    ],
)
def test_a_finding_says_what_it_is_in_a_sentence(client: FlaskClient, finding_id: str, sentence: str) -> None:
    data = client.get(f"/api/v1/findings/{finding_id}").json["data"]  # type: ignore[index]
    assert (data["sentence"], data["words"]) == (sentence, [])
    assert isinstance(data["environment"], list) and isinstance(data["causes"], list)
    assert data["recovered"] is (finding_id == "suite")


@pytest.mark.parametrize(
    ("action", "handling"),
    [("acknowledge", "acknowledged"), ("ignore", "ignored"), ("note", "open"), ("reopen", "open")],
)
def test_an_action_answers_with_the_finding(client: FlaskClient, action: str, handling: str) -> None:
    status, body = say(client, action, {"who": "ci", "text": "expected"})
    assert (status, body["ok"], body["data"]["handling"]) == (200, True, handling)
    (word,) = body["data"]["words"]
    assert (word["action"], word["who"], word["text"], word["time_us"] > 0) == (action, "ci", "expected", True)
    listed = client.get("/api/v1/findings?handling=any").json["data"]  # type: ignore[index]
    assert {finding["id"]: finding["handling"] for finding in listed}["f" * 16] == handling


@pytest.mark.parametrize(
    ("action", "body", "message"),
    [
        ("ignore", {"who": "ci"}, "text: to ignore a finding, say why"),
        ("acknowledge", {}, "who: nobody is named"),
        ("acknowledge", {"who": 3}, "who: expected a text, this is int"),
        ("note", {"who": "ci", "text": None}, "text: a note needs some words"),
        ("note", {"who": "ci", "words": "x"}, "words: there is no such field; known are who, text"),
        ("note", "{", "body: expected a JSON object"),
        ("note", "[]", "body: expected a JSON object"),
        ("note", b"\xff", "body: expected a JSON object"),
        ("note", '{"who": "ci", "text": "\\ud800"}', "body: expected a JSON object"),
    ],
)
def test_a_body_that_cannot_be_used_keeps_nothing(client: FlaskClient, action: str, body: Any, message: str) -> None:
    status, answer = say(client, action, body)
    assert (status, answer["ok"], answer["error"][: len(message)]) == (400, False, message)
    assert client.get(ONE).json["data"]["words"] == []  # type: ignore[index]


def test_what_is_not_there_and_what_is_not_possible_says_so(client: FlaskClient) -> None:
    for method, address in ((client.get, "odd"), (client.post, "odd/note")):
        answer = method(f"/api/v1/findings/{address}", data='{"who": "ci", "text": "x"}')
        assert (answer.status_code, answer.json["error"][:25]) == (404, "There is no finding odd; ")  # type: ignore[index]
    assert client.get(f"{ONE}/note").status_code == 405
    assert client.post(f"{ONE}/note?who=ci", data='{"who": "ci", "text": "x"}').status_code == 400
    assert client.post(f"{ONE}/odd", data="{}").status_code == 404


def test_the_order_is_that_of_the_runs_and_then_of_ids(client: FlaskClient, store: sqlite3.Connection) -> None:
    times = {"a": 3, "b": 1, "c": 2, "d": 2}
    keep(store, *[make_finding(id=key, suite="order", first_us=at * 10**14) for key, at in times.items()])
    rows = client.get("/api/v1/findings?suite=order").json["data"]  # type: ignore[index]
    assert [row["id"] for row in rows] == ["a", "d", "c", "b"]
