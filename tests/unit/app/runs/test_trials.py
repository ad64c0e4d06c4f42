"""Runs that `try` made: told apart in lists, said on their pages, and left out of what compares
runs over time.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

import pytest
from flask.testing import FlaskClient

from compileboard.app.benchmarks.series_queries import list_point_runs, list_series_names
from compileboard.app.comparison.sides import near_sql
from compileboard.app.core.newest import RecorderClock, get_newest_run_id
from compileboard.app.runs.overview_queries import list_series, list_trend
from compileboard.app.runs.run_queries import get_run_state
from compileboard.collectors.cli.listing import list_text
from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.store.dashboard import Trial, list_trials, save_trial
from compileboard.collectors.terminal.run_summary import summarize
from tests.unit.app.clickhouse.published import OpenEngine, on_both_engines
from tests.unit.app.seed import START_US, add_run, insert

HOUR_US = 3_600_000_000


@pytest.fixture(autouse=True)
def runs(store: sqlite3.Connection) -> None:
    """Add two runs, and both sides of a trial of the newer one."""
    counted = {"compile_count": 3, "process_count": 1}
    for number, run_id in enumerate(("R1", "R2")):
        add_run(store, run_id, started_us=START_US + number * HOUR_US, totals=counted)
    for number, run_id in enumerate(("T1", "T2"), 2):
        add_run(
            store, run_id, started_us=START_US + number * HOUR_US, source="trial", totals=counted
        )
    words = {
        "title": "Take <print> out",
        "patch": "",
        "outcome": "improved",
        "summary": "7 breaks → 0, output equal",
    }
    ends = {
        "fix_id": None,
        "cause_fingerprint": None,
        "settings": (),
        "started_us": START_US,
        "ended_us": START_US,
    }
    save_trial(
        store, Trial(id="X", run_id="R2", base_run_id="T1", new_run_id="T2", **words, **ends)
    )


def test_the_newest_run_is_no_trial(open_engine: OpenEngine, store):
    assert get_newest_run_id(open_engine(store), RecorderClock(START_US)) == "R2"


def test_no_trial_is_compared_with_by_itself(open_engine: OpenEngine, store):
    values = {"run_id": "T2", "alive_since_us": START_US}
    assert [
        row["id"]
        for row in open_engine(store).rows(near_sql(is_before=True, is_alike=False), values)
    ] == [
        "R2",
        "R1",
    ]


def test_trends_and_incidents_have_no_trials(open_engine: OpenEngine, store):
    engine = open_engine(store)
    assert {run.id for run in list_point_runs(engine)} == {"R1", "R2"}
    assert [point.run_id for point in list_trend(engine)] == ["R1", "R2"]
    assert [series.run_count for series in list_series(engine)] == [2]
    assert [name.model for name in list_series_names(engine)] == ["train"]


def test_causes_are_read_again_after_a_trial(store):
    before = get_run_state(store, "R1")
    assert get_run_state(store, "R1") == before
    (trial,) = list_trials(store, "R2")
    save_trial(store, replace(trial, ended_us=trial.ended_us + 1))
    assert get_run_state(store, "R1") != before


@on_both_engines
def test_the_overview_has_no_trials(client: FlaskClient):
    page = client.get("/").text
    assert 'href="/runs/R2"' in page and "/runs/T" not in page


def test_a_side_of_a_trial_says_whose_it_is(client: FlaskClient):
    page = client.get("/runs/T2").text
    words = " ".join(page.split())
    assert (
        'Trial of <a href="/runs/R2">train</a> with the fix “Take &lt;print&gt; out”: 7 breaks '
        "→ 0, output equal"
    ) in words
    assert "</a> without the fix “" in " ".join(client.get("/runs/T1").text.split())
    assert "Trial of" not in client.get("/runs/R2").text


@on_both_engines
def test_numbers_of_a_break_are_without_trials_unless_nothing_else_has_it(
    client: FlaskClient, store: sqlite3.Connection
):
    for number, runs in ((1, ("R2", "T1")), (2, ("T1",))):
        insert(store, "distinct_breaks", id=number, fingerprint=str(number), reason="a", hints="[]")
        for run_id in runs:
            insert(
                store,
                "run_breaks",
                run_id=run_id,
                distinct_id=number,
                break_count=1,
                compile_us=1000,
            )

    def ask(address: str) -> dict[str, Any]:
        answer = client.get(f"/api/v1/{address}").get_json()
        assert "data" in answer, answer
        return answer

    listed = {row["id"]: row["break_count"] for row in ask("graph_breaks")["data"]}
    assert listed == {format_id(1): 1}
    asked_for = {row["id"]: row["break_count"] for row in ask("graph_breaks?trials=yes")["data"]}
    assert asked_for == {format_id(1): 2, format_id(2): 1}
    runs = {number: ask(f"graph_breaks/{format_id(number)}/runs")["data"] for number in (1, 2)}
    assert [[run["id"] for run in runs[number]] for number in (1, 2)] == [["R2"], ["T1"]]
    assert "/runs/T1" not in client.get(f"/graph_breaks/{format_id(1)}").text
    assert ">trial</span>" in client.get(f"/graph_breaks/{format_id(2)}").text


@on_both_engines
def test_the_list_has_trials_where_asked_for(client: FlaskClient, store):
    assert "/runs/T1" not in client.get("/runs").text
    assert client.get("/runs?trials=yes").text.count('not in trends and incidents">trial') == 2
    database = store.execute("pragma database_list").fetchone()["file"]
    assert list_text(database, 9).count("(trial)") == 2


def test_a_patch_that_was_tried_stands_with_its_run_on_its_page_and_in_show(
    client: FlaskClient, store: sqlite3.Connection
):
    words = " ".join(client.get("/runs/R2").text.split())
    assert "Tried on this program" in words
    assert "Take &lt;print&gt; out: 7 breaks → 0, output equal" in words
    database = store.execute("pragma database_list").fetchone()["file"]
    shown = {run_id: summarize(database, run_id) for run_id in ("R1", "R2")}
    words = " ".join(shown["R2"].text().split())
    assert "Tried on this program: 1. Take <print> out verified on 20" in words
    assert ": 7 breaks → 0, output equal" in words and not shown["R1"].trials


def test_a_trial_of_advice_that_is_no_longer_given_stands_on_the_page_of_its_run(
    client: FlaskClient, store
):
    (trial,) = list_trials(store, "R2")
    save_trial(store, replace(trial, id="Y", fix_id="print_in_caller", cause_fingerprint="f" * 32))
    words = " ".join(client.get("/runs/R2").text.split())
    assert words.count("Take &lt;print&gt; out: 7 breaks → 0, output equal") == 2
    assert words.count("(this advice is no longer given)") == 1
    assert "Take" not in client.get("/runs/R1").text


def test_an_interrupted_trial_of_a_fix_says_nothing_of_its_advice(client: FlaskClient, store):
    (trial,) = list_trials(store, "R2")
    trial = replace(trial, id="Y", fix_id="print_in_caller", cause_fingerprint="f" * 32)
    save_trial(store, replace(trial, outcome="interrupted", summary="interrupted"))
    assert "no longer given" not in client.get("/runs/R2").text
    database = store.execute("pragma database_list").fetchone()["file"]
    assert "no longer given" not in summarize(database, "R2").text()
