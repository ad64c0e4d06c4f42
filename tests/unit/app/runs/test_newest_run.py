"""The newest run and a silent one: the same on pages, in the API, reports and commands."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from compileboard.app import create_app
from compileboard.app.benchmarks.suite import DAY_US, Period, build_suite
from compileboard.app.benchmarks.trend_queries import TrendFilter
from compileboard.app.cli.main import main
from compileboard.app.core.newest import RecorderClock, RunCandidate, find_newest_run
from compileboard.app.core.settings import Settings
from compileboard.app.core.store import FileStore
from compileboard.app.runs.queries import get_newest_run, get_run, get_run_to_compare
from compileboard.collectors.cli.main import main as collect
from compileboard.collectors.store.connection import checkpoint
from tests.unit.app.benched import ACCURACY, MLP, add_results
from tests.unit.app.clickhouse.published import OpenEngine, on_both_engines
from tests.unit.app.seed import START_US, add_run

CLOCK = RecorderClock(START_US + 20 * DAY_US)
SILENT_US = START_US + 5 * DAY_US


def add_bench_runs(store: sqlite3.Connection) -> str:
    """Add a run that timed models, one that checked accuracy alone, and one that is still running;
    name the first.
    """
    now_us = time.time_ns() // 1000
    add_results(store, "TIMED", MLP, started_us=START_US)
    skipped = replace(MLP, **ACCURACY | {"status": "skipped", "accuracy": None, "values": {}})
    add_results(store, "CHECKED", skipped, started_us=START_US + DAY_US)
    add_results(
        store, "RUNNING", replace(MLP, values={"speedup": 9.0}), started_us=START_US + 2 * DAY_US
    )
    store.execute(
        "update runs set state = 'running', heartbeat_us = ? where id = 'RUNNING'", (now_us,)
    )
    checkpoint(store)
    return "TIMED"


@on_both_engines
def test_numbers_are_of_the_same_newest_run_everywhere(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    newest = add_bench_runs(store)
    page = client.get("/").text
    assert f'Newest run: <a href="/runs/{newest}">' in page and "<b>9×" not in page
    assert client.get("/api/v1/summary").get_json()["data"]["run"]["id"] == newest
    suite = client.get("/api/v1/summary").get_json()["data"]["summaries"][0]["suite"]
    clock = RecorderClock(time.time_ns() // 1000)
    screen = build_suite(
        FileStore(store),
        TrendFilter(suite=suite),
        Period(START_US - DAY_US, START_US + 9 * DAY_US),
        clock,
    )
    assert screen.new.run_id == newest
    report = client.get(f"/trends/report.json?suite={suite}&since=2020-01-01").get_json()
    assert [run["run_id"] for run in report["runs"] if run["side"] == "new"] == [newest]


def test_latest_is_a_run_that_ended(
    store: sqlite3.Connection, database: Path, capsys: pytest.CaptureFixture
) -> None:  # type: ignore[type-arg]
    add_run(store, "ENDED", started_us=START_US)
    add_run(
        store,
        "RUNNING",
        started_us=START_US + 1,
        state="running",
        heartbeat_us=time.time_ns() // 1000,
    )
    checkpoint(store)
    assert (
        main(
            [
                "export",
                "--db",
                str(database),
                "--run",
                "latest",
                "--format",
                "json",
                "--output",
                "-",
            ]
        )
        == 0
    )
    assert '"ENDED"' in capsys.readouterr().out


def test_latest_names_a_run_wherever_a_command_takes_one(
    store: sqlite3.Connection, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_bench_runs(store)
    add_run(store, "TRIAL", source="trial", started_us=START_US + 3 * DAY_US)
    checkpoint(store)
    for words in (["show", "latest"], ["index", "latest"]):
        assert collect([*words, "--db", str(database)]) == 0
    assert collect(["repro", "list", "--run", "latest", "--db", str(database)]) == 0
    assert main(["trash", "delete", "latest", "--db", str(database)]) == 0
    assert "trash restore CHECKED" in capsys.readouterr().out


def test_a_run_that_fell_silent_has_ended(
    open_engine: OpenEngine, store: sqlite3.Connection
) -> None:
    add_run(store, "OLD", started_us=START_US)
    add_run(store, "SILENT", started_us=START_US + 1, state="running", heartbeat_us=SILENT_US)
    newest, before = (
        get_newest_run(open_engine(store), CLOCK),
        get_newest_run(open_engine(store), RecorderClock(SILENT_US)),
    )
    assert newest and newest.id == "SILENT"
    assert before and before.id == "OLD"
    run = get_run(open_engine(store), "OLD")
    other = run and get_run_to_compare(open_engine(store), run, "latest", CLOCK)
    assert other and other.id == "SILENT"


@on_both_engines
def test_a_run_counts_as_running_for_as_long_as_the_setting_says(
    db: str, store: sqlite3.Connection
) -> None:
    add_results(store, "ENDED", MLP, started_us=START_US)
    add_results(store, "SILENT", MLP, started_us=START_US + DAY_US)
    five_minutes_ago_us = time.time_ns() // 1000 - 300_000_000
    store.execute(
        "update runs set state = 'running', heartbeat_us = ? where id = 'SILENT'",
        (five_minutes_ago_us,),
    )
    checkpoint(store)
    for stale_after_s, newest in ((30, "SILENT"), (3600, "ENDED")):
        client = create_app(Settings(db=db, stale_after_s=stale_after_s)).test_client()
        assert client.get("/api/v1/summary").get_json()["data"]["run"]["id"] == newest
        checked = client.get(f"/api/v1/check?run=latest&baseline={newest}").get_json()["data"]
        assert checked["run"] == f"run {newest}"
        compared = client.get("/api/v1/compare?base=ENDED&new=latest").get_json()["data"]
        assert [run["id"] for run in compared["new"]["runs"]] == [newest]


def test_the_order_of_the_newest_run() -> None:
    old, untimed, running = (
        RunCandidate("A", 1, False),
        RunCandidate("B", 2, False, is_timed=False),
        RunCandidate("C", 3, True),
    )
    assert find_newest_run([]) is None
    assert find_newest_run([running]) == "C"
    assert find_newest_run([running, untimed]) == "B"
    assert find_newest_run([untimed, running, old]) == "A"
    assert find_newest_run([old, old._replace(run_id="AA")]) == "AA"


@on_both_engines
def test_a_silent_run_is_interrupted_in_every_rendering(
    client: FlaskClient,
    store: sqlite3.Connection,
    database: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    add_results(store, "SILENT", MLP, started_us=START_US)
    store.execute("update runs set state = 'running', heartbeat_us = ?", (START_US,))
    checkpoint(store)
    overview = client.get("/").text
    assert ">Interrupted?<" in overview and "recording" not in overview
    assert ">interrupted?<" in client.get("/runs").text
    answer = client.get("/api/v1/overview").get_json()["data"]
    assert answer["totals"]["running_count"] == 0
    assert [answer["trend"][0]["state"], answer["newest_runs"][0]["shown_state"]] == [
        "interrupted?"
    ] * 2
    assert client.get("/api/v1/runs").get_json()["data"][0]["shown_state"] == "interrupted?"
    assert client.get("/api/v1/summary").get_json()["data"]["run"]["state"] == "interrupted?"
    trend = client.get("/api/v1/trend").get_json()["data"]
    assert trend["series"][0]["points"][0]["state"] == "interrupted?"
    suite = client.get("/api/v1/summary").get_json()["data"]["summaries"][0]["suite"]
    report = client.get(f"/trends/report.json?suite={suite}&since=2020-01-01").get_json()
    assert report["runs"][0]["state"] == "interrupted?"
    compared = "base=SILENT&new=SILENT"
    page = client.get(f"/compare?{compared}").text
    assert "interrupted?" in page and "still running" not in page
    sides = client.get(f"/api/v1/compare?{compared}").get_json()["data"]
    assert [sides[side]["runs"][0]["shown_state"] for side in ("base", "new")] == [
        "interrupted?"
    ] * 2
    assert (
        client.get("/api/v1/check?run=SILENT&baseline=SILENT").get_json()["data"]["run"]
        == "run SILENT"
    )
    assert "still running" not in client.get("/runs/SILENT/delete").text
    for arguments in (["list"], ["show", "SILENT"]):
        collect([*arguments, "--db", str(database)])
        assert "interrupted?" in capsys.readouterr().out


def test_latest_names_a_run_in_every_address_that_takes_one(
    store: sqlite3.Connection, client: FlaskClient
) -> None:
    add_bench_runs(store)
    add_run(store, "TRIAL", source="trial", started_us=START_US + 3 * DAY_US)
    checkpoint(store)
    page = client.get("/runs/latest/results?sort=model&sort=run")
    assert page.headers["Location"] == "/runs/CHECKED/results?sort=model&sort=run"
    assert client.get("/search?run=latest&q=x").headers["Location"] == "/search?run=CHECKED&q=x"
    assert client.get("/api/v1/runs/latest").json["data"]["id"] == "CHECKED"  # type: ignore[index]
    assert client.get("/api/v1/runs/latest/causes").status_code == 200
    assert client.get("/api/v1/search?run=latest&q=x").status_code == 200
    assert client.get("/compare?new=latest").status_code == 200
    assert client.post("/runs/latest/delete").status_code == 404
