"""States of runs and models in lists and pages: failed or slower is never plain green."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from compileboard.app.benchmarks.labels import describe_status
from compileboard.app.runs.advice import judge_run
from compileboard.app.runs.queries import get_run
from compileboard.app.runs.rows import describe_state
from compileboard.collectors.contract.events import SnapshotTaken, dump_event
from compileboard.collectors.fixes.causes import Cause
from compileboard.collectors.store.codec import pack
from compileboard.collectors.store.results import ExperimentResult, fill
from compileboard.collectors.terminal.run_summary import summarize
from tests.unit.app.clickhouse.published import OpenEngine, on_both_engines
from tests.unit.app.seed import add_run, insert


@pytest.mark.parametrize(
    ("state", "totals", "word", "kind", "problems"),
    [
        ("finished", {}, "finished", "good", ()),
        ("finished", {"failure_count": 1}, "finished", "warn", ("1 failure",)),
        ("finished", {"failure_count": 3}, "finished", "warn", ("3 failures",)),
        ("finished", {"skipped_frame_count": 3}, "finished", "good", ()),
        ("finished", {"failed_result_count": 2}, "finished", "warn", ("2 results failed",)),
        ("killed", {"failure_count": 2}, "killed", "bad", ("2 failures",)),
        ("imported", {"failure_count": 1}, "imported", "quiet", ("1 failure",)),
    ],
)
def test_state_names_what_failed_in_a_run(
    open_engine: OpenEngine,
    client: FlaskClient,
    store: sqlite3.Connection,
    state: str,
    totals: Any,
    word: str,
    kind: str,
    problems: Any,
) -> None:
    add_run(store, "R1", state=state, totals=totals)
    run = get_run(open_engine(store), "R1")
    assert run is not None
    described = describe_state(run, run.heartbeat_us, 30)
    assert described == (word, kind, described.explanation, problems)
    for page in ("/runs", "/runs/R1"):
        text = client.get(page).text
        assert all(
            f'<span class="badge badge--bad">{problem}</span>' in text for problem in problems
        ), page
    status = f"badge--{'bad' if kind == 'bad' else 'warn'}" if problems else "badge--good"
    ended = [state] if state == "killed" or not problems else []
    assert re.search(
        rf'(?i){status}"[^>]*>{", ".join([*ended, *problems])}</span>', client.get("/").text
    )


@pytest.mark.parametrize(
    ("values", "totals", "tone", "note"),
    [
        ({"state": "finished", "exit_code": 0}, {}, "good", "No failures. "),
        ({"state": "failed", "exit_code": 3}, {}, "warn", "The program ended with exit code 3. "),
        (
            {"state": "killed", "signal": "SIGKILL"},
            {},
            "warn",
            "The program was ended by SIGKILL. ",
        ),
        ({"state": "finished"}, {"failed_result_count": 1}, "warn", "1 result failed. "),
    ],
)
def test_verdict_claims_no_failures_only_of_a_run_without_any(
    open_engine: OpenEngine,
    store: sqlite3.Connection,
    values: dict[str, Any],
    totals: dict[str, int],
    tone: str,
    note: str,
) -> None:
    add_run(store, "R1", totals={"compile_count": 2, **totals}, **values)
    run = get_run(open_engine(store), "R1")
    assert run is not None
    verdict = judge_run(run, [], [])
    assert (verdict.tone, verdict.note) == (tone, f"{note}Nothing runs eagerly.")


def test_what_runs_eagerly_is_the_headline_where_no_fix_saves_time(
    open_engine: OpenEngine, store: sqlite3.Connection
) -> None:
    add_run(store, "R1", totals={"compile_count": 2})
    run = get_run(open_engine(store), "R1")
    assert run is not None
    place = ("forward", "model.py", 1, None, "", "")
    cause = Cause(1, "graph_break", "Break", "f", 0, True, 1, *place)
    verdict = judge_run(run, [cause], [])
    assert verdict.sentence == "forward runs eagerly"
    assert verdict.note == "1 cause of graph breaks or recompiles, no fix is known"
    verdict = judge_run(run, [replace(cause, saved_us=5)], [])
    assert verdict.sentence.startswith("1 cause costs an estimated 5 µs")
    assert verdict.note == "forward runs eagerly"


@pytest.mark.parametrize(
    ("speedup", "high", "kind"),
    [
        (0.577, 0.6, "warn"),
        (0.9, 1.1, "good"),
        (0.9, None, "warn"),
        (0.97, None, "good"),
        (1.4, 1.5, "good"),
        (None, None, "good"),
    ],
)
def test_measured_model_that_is_slower_is_not_green(
    speedup: float | None, high: float | None, kind: str
) -> None:
    values = {
        "status": "measured",
        "reason": None,
        "speedup": speedup,
        "speedup_low": None,
        "speedup_high": high,
    }
    assert describe_status(fill(ExperimentResult, values)).kind == kind


@on_both_engines
def test_a_run_of_results_alone_counts_nothing(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_run(
        store,
        "R1",
        torch_version=None,
        totals={"result_count": 3, "graph_break_count": 2, "process_count": 1},
    )
    data = client.get("/api/v1/runs/R1").json["data"]  # type: ignore[index]
    assert {
        name: data[name]
        for name in ("graph_break_count", "compile_count", "recompile_count", "compile_us")
    } == {
        "graph_break_count": 2,
        "compile_count": None,
        "recompile_count": None,
        "compile_us": None,
    }
    row = client.get("/runs").text.partition("<tbody>")[2]
    assert row.count("not recorded") >= 3 and "0 µs" not in row


def test_pages_of_a_run_of_results_alone_claim_nothing_of_its_compiles(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    totals = {"result_count": 3, "failed_result_count": 2, "process_count": 2}
    add_run(
        store, "R1", torch_version=None, source="import", gpu_name=None, gpu_count=0, totals=totals
    )
    times = {"started_us": 1, "last_seen_us": 1, "last_sequence": -1}
    insert(
        store, "processes", id="a" * 32, run_id="R1", **times, capabilities="{}", environment="{}"
    )
    for tab in ("compiles", "breaks", "recompiles", "failures", "caches", "processes"):
        text = client.get(f"/runs/R1?tab={tab}").text
        assert "<h2>Not recorded</h2>" in text and "Result files do not record" in text, tab
        assert "tabs__count" not in text, tab
    assert "2 results failed</a>" in client.get("/runs/R1?tab=failures").text
    assert "No GPU was visible" not in client.get("/runs/R1?tab=environment").text
    assert client.get("/api/v1/runs/R1").json["data"]["process_count"] is None  # type: ignore[index]
    report = client.get("/runs/R1/report.html").text
    for claim in (
        "Nothing was compiled",
        "No processes observed",
        "compiled whole",
        "No cache was",
        "None: no call",
        "#processes",
    ):
        assert claim not in report, claim
    assert "Nothing was compiled" not in client.get("/runs/R1/report.md").text


@pytest.mark.parametrize(
    ("torch_version", "disabling", "reason"),
    [
        (None, [], "a generator"),
        ("2.13.0", [], "turned off while it ran"),
        ("2.13.0", ["TORCHDYNAMO_DISABLE=1"], "ompiling is turned off by TORCHDYNAMO_DISABLE=1"),
    ],
)
def test_a_run_that_compiled_nothing_says_why_wherever_it_is_shown(
    client: FlaskClient,
    store: sqlite3.Connection,
    torch_version: str | None,
    disabling: list[str],
    reason: str,
) -> None:
    add_run(store, "R1", torch_version=torch_version, source="live", totals={"compile_count": 0})
    for number in range(120):  # a long run's earlier snapshots do not have the field
        earlier = SnapshotTaken("p", 10 + number, 1)
        told = {"run_id": "R1", "process_id": "p", "sequence": 10 + number, "time_us": 1}
        insert(store, "events", kind=earlier.KIND, body=pack(dump_event(earlier)), **told)
    end = SnapshotTaken("p", 200, 3, final=True, disabling=disabling)
    told = {"run_id": "R1", "process_id": "p", "sequence": 200, "time_us": 3}
    insert(store, "events", kind=end.KIND, body=pack(dump_event(end)), **told)
    (database,) = [row["file"] for row in store.execute("pragma database_list")]
    summary = summarize(database, "R1")
    assert summary is not None
    assert reason in summary.savings and reason in client.get("/runs/R1").text


def test_failures_and_skipped_frames_are_one_number_each_wherever_shown(
    recorded: Path, recorded_client: FlaskClient, recorded_reader: sqlite3.Connection
) -> None:
    runs = recorded_reader.execute(
        "select r.name, t.* from run_totals as t join runs as r on r.id = run_id"
    ).fetchall()
    counts = {
        run["name"].rpartition("-")[2]: (run["failure_count"], run["skipped_frame_count"])
        for run in runs
    }
    assert counts["hf_T5"] == (0, 2)
    for run in runs:
        api = recorded_client.get(f"/api/v1/runs/{run['run_id']}").json["data"]  # type: ignore[index]
        summary = summarize(str(recorded), run["run_id"])
        assert summary is not None
        for shown in (
            (api["failure_count"], api["skipped_frame_count"]),
            (
                summary.failure_count,
                summary.skipped_frame_count,
            ),
        ):
            assert shown == (run["failure_count"], run["skipped_frame_count"]), run["name"]
        page = recorded_client.get(f"/runs/{run['run_id']}?tab=failures").text
        listed = recorded_client.get(f"/api/v1/runs/{run['run_id']}/failures").json["data"]  # type: ignore[index]
        badge = re.search(r'Failures <span class="tabs__count">(\d+)</span>', page)
        assert badge is not None
        assert {int(badge[1]), page.count('id="failure-'), len(listed)} == {run["failure_count"]}, (
            run["name"]
        )
        assert sum(item.count for item in summary.failures) == run["failure_count"], run["name"]
