"""Summaries and trends over the API: HUD's numbers to the digit, gaps as gaps."""

from __future__ import annotations

import sqlite3

import pytest
from flask.testing import FlaskClient

from compileboard.app.benchmarks.run_queries import list_results
from compileboard.collectors.store.rollups import HUD, summarize
from tests.unit.app.benched import (
    BREAK_ID,
    FUNCTION_ID,
    HOSTILE,
    RUNS,
    add_results,
    bench_suite,
    measure,
)
from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.seed import START_US

pytestmark = on_both_engines


@pytest.fixture
def suite(store: sqlite3.Connection) -> None:
    bench_suite(store)


@pytest.mark.usefixtures("suite")
def test_a_summary_is_that_of_the_rows_before_rounding(
    client: FlaskClient, reader: sqlite3.Connection
) -> None:
    data = client.get(f"/api/v1/summary?run={RUNS[0]}").json["data"]  # type: ignore[index]
    expected = summarize(list_results(reader, RUNS[0]), HUD)
    (summary,) = data["summaries"]
    for name in (
        "geomean_speedup",
        "compilation_latency_s",
        "compression_ratio",
        "dynamo_peak_mem_gb",
        "pass_ratio",
    ):
        assert summary[name] == pytest.approx(getattr(expected, name), abs=1e-9), name
    assert (summary["graph_breaks_per_model"], summary["failed_count"]) == (0.8, 3)
    assert (data["run"]["id"], data["definition"]["label"]) == (RUNS[0], "PyTorch HUD")


@pytest.mark.usefixtures("suite")
def test_without_a_run_it_is_the_newest_that_fits(client: FlaskClient) -> None:
    newest = client.get("/api/v1/summary?branch=main&torch=2.11.0&definition=runner").json["data"]  # type: ignore[index]
    assert (newest["run"]["id"], newest["definition"]["name"]) == (RUNS[2], "runner")
    commit = newest["run"]["git_commit"]
    assert client.get(f"/api/v1/summary?commit={commit[:9]}").json["data"]["run"]["id"] == RUNS[2]  # type: ignore[index]
    wrong = ("branch=odd", "suite=odd", "run=odd", "definition=odd", "dynamic=odd", "odd=1")
    assert [client.get(f"/api/v1/summary?{query}").status_code for query in wrong] == [
        404,
        404,
        404,
        400,
        400,
        400,
    ]


@pytest.mark.usefixtures("suite")
def test_a_trend_has_a_point_a_run_and_a_failure_is_no_number(client: FlaskClient) -> None:
    (hungry,) = client.get("/api/v1/trend?metric=speedup&model=Hungry").json["data"]["series"]  # type: ignore[index]
    points = [(point["value"], point["status"], point["reason"]) for point in hungry["points"]]
    assert points == [(None, "failed", "failed: out of memory")] * 3
    breaky = client.get("/api/v1/trend?metric=speedup&model=Breaky&last=2").json["data"]["series"][
        0
    ]  # type: ignore[index]
    assert [point["value"] for point in breaky["points"]] == [0.569, 0.587]
    assert breaky["points"][0]["low"] == pytest.approx(0.569 * 0.985)


@pytest.mark.usefixtures("suite")
def test_a_suites_trend_is_of_each_set_by_its_definition(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_results(store, "OTHER", measure(suite="bench_models", backend="eager"), started_us=START_US)
    data = client.get(
        "/api/v1/trend?metric=speedup&suite=bench_models&definition=summarize_perf"
    ).json["data"]  # type: ignore[index]
    assert [(series["backend"], len(series["points"])) for series in data["series"]] == [
        ("inductor", 3),
        ("eager", 1),
    ]
    assert data["metric"]["name"] == "geomean_speedup"
    refused = client.get("/api/v1/trend?metric=eager_latency_ms")
    assert (refused.status_code, refused.json["error"]) == (
        400,
        "metric: a suite has no eager_latency_ms",
    )  # type: ignore[index]


@pytest.mark.usefixtures("suite")
def test_environment_changes_stand_at_their_point(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    store.execute(
        "update runs set torch_version = '2.12.0', gpu_name = 'NVIDIA B200' where id = ?",
        (RUNS[2],),
    )
    (series,) = client.get("/api/v1/trend?model=GPT2x4&axis=torch").json["data"]["series"]  # type: ignore[index]
    assert [point["environment_changes"] for point in series["points"]] == [
        [],
        [],
        ["GPU", "torch"],
    ]


@pytest.mark.usefixtures("suite")
def test_breaks_functions_and_guards_have_trends(client: FlaskClient) -> None:
    for query, values in (
        (f"break={BREAK_ID}", [2, 2, 2]),
        (f"function={FUNCTION_ID}", [1, 1, 1]),
        ("category=tensor_size&suite=bench_models", [1, 1, 1]),
        ("category=tensor_dtype", [0, 0, 0]),
    ):
        (series,) = client.get(f"/api/v1/trend?{query}").json["data"]["series"]  # type: ignore[index]
        assert [point["value"] for point in series["points"]] == values, query
    assert client.get("/api/v1/trend?break=99").status_code == 404
    assert client.get(f"/api/v1/trend?break={BREAK_ID}&function={FUNCTION_ID}").status_code == 400


@pytest.mark.usefixtures("suite")
def test_a_hostile_model_is_found_by_its_name(client: FlaskClient) -> None:
    answer = client.get("/api/v1/trend", query_string={"model": HOSTILE})
    assert answer.json["data"]["series"][0]["label"] == HOSTILE  # type: ignore[index]
