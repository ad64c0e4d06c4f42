"""Which runs and configurations the headline and the trends show and compare."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import replace

from flask.testing import FlaskClient

from tests.unit.app.benched import ACCURACY, DAY_US, MLP, add_results, measure
from tests.unit.app.benchmarks.test_trends_pages import text_of
from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.seed import START_US


def add_days(store: sqlite3.Connection, *days: dict[str, object]) -> None:
    for day, changes in enumerate(days):
        add_results(store, f"RUN{day}", replace(MLP, **changes), started_us=START_US + day * DAY_US)  # type: ignore[arg-type]


def test_the_previous_run_is_the_one_before_that_timed_anything(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_days(store, {}, ACCURACY | {"status": "skipped", "accuracy": None, "values": {}}, {})
    store.execute("update runs set torch_version = '2.0.0' where id = 'RUN0'")
    assert "Environment changed: torch 2.0.0 → " in text_of(client, "/")


def test_a_run_that_still_runs_is_named_and_not_summed_up(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_days(store, {}, {"values": {"speedup": 3.0}})
    values = {"now_us": time.time_ns() // 1000}
    store.execute(
        "update runs set state = 'running', heartbeat_us = :now_us where id = 'RUN1'", values
    )
    page = text_of(client, "/")
    assert "Geomean speedup 1.25×" in page and "Geomean speedup 3×" not in page
    assert "A run is recording." in page


@on_both_engines
def test_a_branch_alone_shows_what_it_measured_last(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_days(store, {"dtype": "float16"}, {})
    store.execute("update runs set git_branch = 'fast' where id = 'RUN0'")
    for address in ("/?branch=fast", "/trends?branch=fast"):
        assert "inference · float16" in text_of(client, address)
    assert "No runs match" in text_of(client, "/?branch=fast&dtype=float32")


def test_a_model_alone_shows_the_suite_that_has_it(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_days(store, {"suite": "mine", "model": "own"}, {})
    page = text_of(client, "/trends?model=own&metric=speedup")
    assert "no result in these runs" not in page
    assert "own" in page and "mine" in page


@on_both_engines
def test_what_was_not_said_can_be_asked_for(client: FlaskClient, store: sqlite3.Connection) -> None:
    add_results(store, "RUN0", MLP, measure(mode="", values={"speedup": 9.0}, task="odd"))
    page = client.get("/trends").text
    assert "mode=unknown" in page
    assert "Geomean speedup 9×" in text_of(client, "/?mode=unknown")
    assert "Geomean speedup 9×" not in text_of(client, "/?mode=inference")
    assert '<option value="unknown" selected>' in client.get("/trends?mode=unknown").text


def test_what_newly_fails_is_named_on_the_overview_and_in_a_comparison(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    failed = {"status": "failed", "reason": "OOM", "values": {}}
    add_days(store, {}, failed, {})
    assert "mlp no longer fails." in text_of(client, "/")
    assert "Newly failing 1 mlp" in text_of(client, "/compare?base=RUN0&new=RUN1")
    assert "Newly failing 0 1 no longer" in text_of(client, "/compare?base=RUN1&new=RUN2")
    store.execute("delete from runs where id = 'RUN2'")
    assert "mlp fails" in text_of(client, "/")
