"""The rule on CUDA graphs recorded again, and Compare's count, over runs recorded on an H200."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from compileboard.app.cli.main import main
from compileboard.collectors.store.ingest.ingestor import Ingestor
from tests.tools.make_db import DATA, record_events
from tests.unit.app.recorded import RUN, record_run

RULE = ("--rule", "new-rerecordings")


@pytest.fixture
def steady(store: sqlite3.Connection) -> str:
    return record(store, "branches")


@pytest.fixture
def moving(store: sqlite3.Connection) -> str:
    return record(store, "another_output")


def record(store: sqlite3.Connection, name: str) -> str:
    path = DATA / "events" / f"torch2.11-cuda-graphs-{name}.jsonl.xz"
    return record_events(Ingestor(store), path)


def check(database: Path, run: str, baseline: str, *more: str) -> int:
    return main(["check", "--db", str(database), "--run", run, "--baseline", baseline, *more])


def test_a_new_reason_fails_and_one_that_is_gone_is_resolved(
    database: Path, steady: str, moving: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(database, moving, steady, *RULE) == 1
    out = capsys.readouterr().out
    assert "NEW_RERECORDING" in out and "another_output.<locals>.<lambda>, 4 times" in out
    assert check(database, steady, moving, *RULE) == 0
    assert "1 RESOLVED" in capsys.readouterr().out
    assert check(database, moving, moving, *RULE) == 0


def test_a_stored_baseline_keeps_the_reasons(database: Path, steady: str, moving: str) -> None:
    for name, run in (("steady", steady), ("moving", moving)):
        save = ["baseline", "save", name, "--run", run, "--db", str(database)]
        assert main(save) == 0
    assert check(database, moving, "moving", *RULE) == 0
    assert check(database, moving, "steady", *RULE) == 1


def test_runs_without_cuda_graphs_are_not_told_of_it(
    database: Path, store: sqlite3.Connection, steady: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record_run(store)
    store.execute("update run_totals set cudagraph_recording_count = 0 where run_id = ?", (RUN,))
    assert check(database, RUN, RUN) == 0
    assert "new-rerecordings" not in capsys.readouterr().out
    assert check(database, RUN, steady, *RULE) == 2
    assert f"run {RUN} has no recorded CUDA graphs" in capsys.readouterr().err


def test_compare_counts_them(client: FlaskClient, steady: str, moving: str) -> None:
    answer = client.get(f"/api/v1/compare?base={steady}&new={moving}").get_json()
    total = answer["data"]["totals"]["cudagraph_rerecording_count"]
    assert (total["base"], total["new"], total["verdict"]) == (0, 4, "worse")


@pytest.mark.parametrize(
    ("turned", "words"), [(False, ["new"]), (True, ["resolved"]), (None, ["unchanged"])]
)
def test_compare_lists_reasons(
    client: FlaskClient, steady: str, moving: str, turned: bool | None, words: list[str]
) -> None:
    sides = (moving, moving) if turned is None else (moving, steady) if turned else (steady, moving)
    query = "base={}&new={}".format(*sides)
    reasons = client.get(f"/api/v1/compare?{query}").get_json()["data"]["rerecording_reasons"]
    assert [change["word"] for change in reasons["changes"]] == words
    (reason,) = client.get("/api/v1/cuda_graphs").get_json()["data"]
    assert f'href="/cuda_graphs/{reason["id"]}"' in client.get(f"/compare?{query}").text
    for form in ("html", "md"):
        report = client.get(f"/compare/report.{form}?{query}").text
        assert "CUDA graphs recorded again" in report
        assert ("another_output.&lt;locals&gt;" in report) == (form == "html")
    sentence = client.get(f"/api/v1/compare?{query}").get_json()["data"]["summary"]["sentence"]
    assert ("1 new reason to record CUDA graphs again" in sentence) == (words == ["new"])


def test_compare_says_where_none_were_recorded(
    client: FlaskClient, store: sqlite3.Connection, moving: str
) -> None:
    record_run(store)
    store.execute("update run_totals set cudagraph_recording_count = 0 where run_id = ?", (RUN,))
    assert (
        "No CUDA graph was recorded on base" in client.get(f"/compare?base={RUN}&new={moving}").text
    )
    assert "CUDA graphs recorded again" not in client.get(f"/compare?base={RUN}&new={RUN}").text
