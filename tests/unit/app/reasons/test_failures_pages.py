"""Failures across runs: their states, filters and pages, on both engines."""

from __future__ import annotations

import sqlite3
from html import unescape
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from compileboard.app.reasons.failure_issues import FAILURES, choose_issues, find_statuses
from compileboard.app.reasons.queries import get_reason, list_reasons
from compileboard.collectors.contract.failures import identify_failure
from compileboard.collectors.contract.fingerprints import content_id, parse_id
from compileboard.collectors.store.runs import publish_run
from tests.unit.app.clickhouse.published import OpenClient, OpenEngine, on_both_engines
from tests.unit.app.repros.captured import RUN, capture_repros
from tests.unit.app.seed import START_US, add_run, insert

pytestmark = on_both_engines
HOUR_US = 3_600_000_000
# Per program, runs in order: + has the failure, - lacks it, ! lacks it and failed, t a trial.
OPEN, REGRESSED, GONE, MIXED, TRIAL = range(5)
PROGRAMS = {
    (OPEN, "train"): "-++!",
    (REGRESSED, "serve"): "+-+",
    (GONE, "bench"): "+-",
    (MIXED, "left"): "+-",
    (MIXED, "kept"): "++",
    (TRIAL, "tried"): "t",
}


@pytest.fixture
def store(store: sqlite3.Connection) -> sqlite3.Connection:
    for (number, name), runs in PROGRAMS.items():
        failure = identify_failure("RuntimeError", f"{'x' * number} at 0x12", "")
        issue_id = content_id("issue", failure.fingerprint)
        if not store.execute("select 1 from failure_issues where id = ?", (issue_id,)).fetchone():
            row = failure._asdict() | {"operation": f"aten.op{number}.default"}
            insert(store, "failure_issues", id=issue_id, fingerprint=failure.fingerprint, **row)
        for position, mark in enumerate(runs):
            run_id = f"01{name.upper()}{position}"
            add_run(
                *(store, run_id),
                name=name,
                started_us=START_US + position * HOUR_US,
                state="failed" if mark == "!" else "finished",
                source="trial" if mark == "t" else "live",
                torch_version=f"2.{10 + position}.0",
                gpu_name="NVIDIA H200" if number == OPEN else None,
                totals={"compile_count": 3, "failure_count": int(mark in "+t")},
            )
            if mark in "+t":
                count = {"failure_count": number + 1, "compile_us": 5}
                insert(store, "run_issues", run_id=run_id, issue_id=issue_id, **count)
    return store


@pytest.fixture
def pages(store: sqlite3.Connection, open_client: OpenClient) -> FlaskClient:
    return open_client(Path(store.execute("pragma database_list").fetchone()["file"]))


def test_the_state_is_that_of_complete_runs(
    store: sqlite3.Connection, open_engine: OpenEngine
) -> None:
    engine = open_engine(store)
    names = {
        row["id"]: row["operation"]
        for row in store.execute("select id, operation from failure_issues")
    }
    assert {names[key]: status for key, status in find_statuses(engine, list(names)).items()} == {
        "aten.op0.default": "open",
        "aten.op1.default": "regressed",
        "aten.op2.default": "gone",
        "aten.op3.default": "open",
    }
    for issue in list_reasons(engine, FAILURES, FAILURES.read_filter({})).rows:
        assert get_reason(engine, FAILURES, parse_id(issue.id)) == issue


def test_a_later_run_changes_the_state(store: sqlite3.Connection, open_engine: OpenEngine) -> None:
    gone = FAILURES.read_filter({"status": "gone"})
    before = choose_issues(open_engine(store), gone).issue_ids
    assert choose_issues(open_engine(store), gone).issue_ids == before and len(before) == 1
    add_run(
        *(store, "01TRAIN9"),
        name="train",
        started_us=START_US + 9 * HOUR_US,
        totals={"compile_count": 3},
    )
    publish_run(store, "01TRAIN9")
    assert len(choose_issues(open_engine(store), gone).issue_ids) == 2


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sort=failures", [(3, 12), (1, 4), (2, 3), (0, 2)]),
        ("status=open&sort=failures", [(3, 12), (0, 2)]),
        ("status=gone", [(2, 3)]),
        ("operation=aten.op1.default", [(1, 4)]),
        ("status=gone&operation=aten.op1.default", []),
        ("torch=2.12.0&sort=first", [(1, 2), (0, 1)]),
        ("q=OP2", [(2, 3)]),
        ("error=ValueError", []),
        ("trials=yes&q=op4", [(4, 5)]),
    ],
)
def test_filters_and_orders(
    pages: FlaskClient, query: str, expected: list[tuple[int, int]]
) -> None:
    listed = pages.get(f"/api/v1/failures?{query}").get_json()["data"]
    found = [(int(row["operation"][7]), row["failure_count"]) for row in listed]
    assert found == expected
    page = unescape(pages.get(f"/failures?{query}").text)
    assert all(f"RuntimeError in aten.op{number}.default" in page for number, _count in expected)


def test_a_failure_has_its_versions_and_gpus(pages: FlaskClient) -> None:
    (issue,) = pages.get("/api/v1/failures?operation=aten.op0.default").get_json()["data"]
    assert (issue["torch_versions"], issue["gpu_names"]) == (["2.11.0", "2.12.0"], ["NVIDIA H200"])
    detail = pages.get(f"/api/v1/failures/{issue['id']}").get_json()["data"]
    assert [point["count"] for point in detail["history"]] == [0, 1, 1, 0]
    runs = pages.get(f"/api/v1/failures/{issue['id']}/runs").get_json()["data"]
    assert [run["id"] for run in runs] == ["01TRAIN2", "01TRAIN1"]
    assert "regressed" not in pages.get(f"/failures/{issue['id']}").text
    assert pages.get("/failures/0123456789abcdef").status_code == 404


def test_a_runs_failure_leads_to_its_repro_and_back(
    store: sqlite3.Connection, open_client: OpenClient
) -> None:
    capture_repros(store)
    pages = open_client(Path(store.execute("pragma database_list").fetchone()["file"]))
    (failure,) = (
        it for it in pages.get(f"/api/v1/runs/{RUN}/failures").get_json()["data"] if it["issue_id"]
    )
    assert f'href="/failures/{failure["issue_id"]}"' in pages.get(f"/runs/{RUN}?tab=failures").text
    page = pages.get(f"/failures/{failure['issue_id']}").text
    assert f"compileboard-collect repro run {failure['repro_id']}" in page
    assert f'href="/repros/{failure["repro_id"]}"' in page
