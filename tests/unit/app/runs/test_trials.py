"""Runs that `try` made: told apart in lists, said on their pages, and left out of what compares
runs over time.
"""

from __future__ import annotations

import sqlite3

import pytest
from flask.testing import FlaskClient

from compileboard.app.benchmarks.series_queries import list_point_runs, list_series_names
from compileboard.app.comparison.sides import near_sql
from compileboard.app.core.newest import RecorderClock, get_newest_run_id
from compileboard.app.runs.overview_queries import list_series, list_trend
from compileboard.collectors.cli.listing import list_text
from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.store.dashboard import Trial, save_trial
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
def test_runs_affected_by_a_break_mark_trials(client: FlaskClient, store: sqlite3.Connection):
    insert(store, "distinct_breaks", id=1, fingerprint="f", reason="a break", hints="[]")
    for run_id in ("R2", "T1"):
        insert(store, "run_breaks", run_id=run_id, distinct_id=1, break_count=1, compile_us=1000)
    address = f"graph_breaks/{format_id(1)}"
    rows = (
        client.get(f"/{address}")
        .text.partition('id="runs"')[2]
        .partition("</table>")[0]
        .split("<tr>")[2:]
    )
    assert [("/runs/T1" in row, ">trial</span>" in row) for row in rows] == [
        (True, True),
        (False, False),
    ]
    answer = client.get(f"/api/v1/{address}/runs").get_json()["data"]
    assert [run["source"] for run in answer] == ["trial", "live"]


@on_both_engines
def test_lists_tell_a_trial_from_a_run(client: FlaskClient, store):
    assert client.get("/runs").text.count('not in trends and incidents">trial') == 2
    database = store.execute("pragma database_list").fetchone()["file"]
    assert list_text(database, 9).count("(trial)") == 2
