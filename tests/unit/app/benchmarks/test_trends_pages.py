"""Headline and trend page: every number with its change, its trend and its definition."""

from __future__ import annotations

import gzip
import html
import json
import re
import sqlite3

import orjson
import plotly.graph_objects as go
import pytest
from flask.testing import FlaskClient

from compileboard.app.benchmarks.metrics import BY_NAME, SUMMARY_BY_NAME
from compileboard.app.benchmarks.trend_charts import (
    MAX_TABLE_ROWS,
    chart_metric,
    list_table_rows,
    share_runs,
)
from compileboard.app.benchmarks.trend_lines import (
    TrendLine,
    TrendPoint,
    build_axis,
    build_suite_line,
)
from compileboard.app.benchmarks.trend_queries import TrendFilter, list_summaries, list_trend_runs
from compileboard.app.core.charts import MAX_CHART_BYTES
from compileboard.collectors.store.ingest.commit_history import StoredCommit, save_commits
from tests.unit.app.benched import (
    BREAK_ID,
    FUNCTION_ID,
    HOSTILE,
    MLP,
    RUNS,
    add_results,
    bench_suite,
    measure,
)
from tests.unit.app.benchmarks.test_trend_lines import make_runs
from tests.unit.app.clickhouse.published import OpenEngine, on_both_engines
from tests.unit.app.runs.test_overview import _figures
from tests.unit.app.seed import START_US, add_run
from tests.unit.app.server.test_hostile_text import _Seen

pytestmark = on_both_engines

DAY_US = 86_400_000_000


@pytest.fixture
def suite(store: sqlite3.Connection) -> None:
    bench_suite(store)


def text_of(client: FlaskClient, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer.text[:2000]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())


@pytest.mark.usefixtures("suite")
def test_the_overview_answers_at_a_glance(client: FlaskClient) -> None:
    page = text_of(client, "/")
    phrases = (
        "45.5%",
        "1.12×",
        "Graph breaks per model 0.8",
        "PyTorch HUD",
        "GPU NVIDIA H200",
        "Backend inductor",
    )
    assert [text for text in phrases if text not in page] == []


def test_another_environment_is_said_before_anyone_blames_a_commit(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    for number, torch in enumerate(("2.11.0", "2.12.0")):
        add_results(store, f"RUN{number}", MLP, started_us=START_US + number * DAY_US)
        store.execute("update runs set torch_version = ? where id = ?", (torch, f"RUN{number}"))
    page = text_of(client, "/")
    assert "Environment changed: torch 2.11.0 → 2.12.0." in page


def test_without_results_the_overview_says_how_to_get_some(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_run(store, "R1")
    assert "compileboard-collect bench --db" in text_of(client, "/")
    assert "No model was benchmarked" in text_of(client, "/trends") or "No trends yet" in text_of(
        client, "/trends"
    )


@pytest.mark.usefixtures("suite")
def test_filters_are_in_the_address_and_wrong_ones_are_refused(client: FlaskClient) -> None:
    assert "No runs match" in text_of(client, "/?dtype=amp")
    assert "No results match" in text_of(client, "/trends?backend=odd")
    wrong = (
        "/?last=0",
        "/trends?odd=1",
        "/trends?metric=odd",
        "/trends?category=odd",
    )
    assert [client.get(query).status_code for query in wrong] == [400] * 4
    assert client.get("/trends?break=99").status_code == 404
    assert client.get("/trends?" + "&".join(f"model=m{n}" for n in range(9))).status_code == 400


@pytest.mark.usefixtures("suite")
def test_a_failure_is_a_gap_with_a_mark_and_never_a_0(client: FlaskClient) -> None:
    figure = _figures(client.get("/trends?model=Hungry&model=Breaky&metric=speedup").text)[
        "trend-0"
    ]
    breaky, hungry, mark = figure["data"]
    assert (breaky["name"], breaky["y"]) == ("Breaky", [0.572, 0.569, 0.587])
    assert (hungry["y"], hungry["connectgaps"]) == ([None] * 3, False)
    assert (mark["yaxis"], mark["hovertext"]) == ("y2", ["failed: out of memory"] * 3)


@pytest.mark.usefixtures("suite")
def test_a_run_without_the_model_is_a_gap(client: FlaskClient, store: sqlite3.Connection) -> None:
    later = measure(
        suite="bench_models",
        model="Breaky",
        device="cuda",
        hardware="NVIDIA H200",
        values={"speedup": 2.0},
    )
    add_results(
        store,
        "BETWEEN",
        measure(**vars(later) | {"model": "Other"}),
        started_us=START_US + 3 * DAY_US,
    )
    add_results(store, "LAST", later, started_us=START_US + 4 * DAY_US)
    (line,) = _figures(client.get("/trends?model=Breaky&metric=speedup").text)["trend-0"]["data"]
    assert line["y"] == [0.572, 0.569, 0.587, None, 2.0]


@pytest.mark.usefixtures("suite")
def test_functions_breaks_and_guards_share_the_axis(client: FlaskClient) -> None:
    query = (
        f"function={FUNCTION_ID}&break={BREAK_ID}&category=tensor_size&model=Breaky&metric=speedup"
    )
    page = client.get(f"/trends?{query}").text
    figures = _figures(page)
    assert [figures[f"trend-{n}"]["data"][0]["y"] for n in range(1, 4)] == [
        [1, 1, 1],
        [2, 2, 2],
        [1, 1, 1],
    ]
    assert (
        len(
            {
                json.dumps(figure["layout"]["xaxis"]["range"])
                for figure in figures.values()
                if "yaxis2" in figure["layout"]
            }
        )
        == 1
    )


@pytest.mark.usefixtures("suite")
def test_hover_says_commit_subject_torch_and_environment(client: FlaskClient) -> None:
    shared = json.loads(
        re.findall(r'id="points">(.*?)</script>', client.get("/trends").text, re.DOTALL)[0]
    )
    assert shared["runs"] == list(RUNS)
    assert all(
        text in shared["text"][0] for text in ("Fuse the two norms", "torch 2.11.0", "NVIDIA H200")
    )


@pytest.mark.usefixtures("suite")
def test_a_hostile_name_stays_text(client: FlaskClient) -> None:
    page = client.get("/trends", query_string={"model": HOSTILE, "metric": "speedup"}).text
    assert [tag for tag, attributes in _Seen(page).tags if "onclick" in attributes] == []
    assert "<" not in _figures(page)["trend-0"]["data"][0]["name"]


@pytest.mark.parametrize("axis", ["date", "commit", "torch"])
def test_charts_are_what_plotly_takes_and_two_years_of_days_are_small(axis: str) -> None:
    laid = build_axis(make_runs(730), axis)
    points = [TrendPoint(run.id, 1 + n / 977, 1.0, 2.0) for n, run in enumerate(laid.runs)]
    lines = [TrendLine(f"model {n}", points) for n in range(2)]
    charts = [
        chart_metric(BY_NAME[name], lines, laid, chart_id=name)
        for name in ("speedup", "graph_breaks")
    ]
    for chart in charts:
        assert len(go.Figure(chart.figure).data) == 2
    bodies = b"".join(
        orjson.dumps(figure) for figure in (share_runs(laid), *(chart.figure for chart in charts))
    )
    assert len(gzip.compress(bodies, 6)) < MAX_CHART_BYTES
    columns, rows = list_table_rows([(BY_NAME["speedup"], lines)], laid)
    assert (len(columns), len(rows), rows[0][4]) == (6, MAX_TABLE_ROWS, "1.746×")


def test_a_point_between_two_gaps_is_seen_on_a_dense_chart_too() -> None:
    laid = build_axis(make_runs(200), "date")
    points = [TrendPoint(run.id, None if n in (50, 52) else 1.0) for n, run in enumerate(laid.runs)]
    line, lone = chart_metric(
        BY_NAME["speedup"], [TrendLine("m", points)], laid, chart_id="c"
    ).figure["data"]
    assert (line["mode"], lone["mode"], lone["x"]) == ("lines", "markers", [51])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.99998, 1.0], pytest.approx([0.98899, 1.01099])),
        ([1.0, 1.2], None),
        ([0.0, 0.0], [-0.05, 1]),
        ([None, None], [0, 1]),
    ],
)
def test_the_axis_of_nearly_equal_values_is_not_of_their_last_digits(
    values: list[float | None], expected: object
) -> None:
    laid = build_axis(make_runs(2), "date")
    line = TrendLine("m", [TrendPoint(run.id, value) for run, value in zip(laid.runs, values)])
    chart = chart_metric(BY_NAME["speedup"], [line], laid, chart_id="c")
    assert go.Figure(chart.figure) and chart.figure["layout"]["yaxis"].get("range") == expected


def test_the_mean_of_fewer_models_says_that_some_failed(
    open_engine: OpenEngine, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    failed = measure(model="b", status="failed", reason="OOM", values={}, repeats={})
    add_results(store, "R1", measure(model="a"), measure(model="b"), started_us=START_US)
    add_results(store, "R2", measure(model="a"), failed, started_us=START_US + DAY_US)
    line = build_suite_line(
        SUMMARY_BY_NAME["graph_breaks_per_model"],
        list_summaries(open_engine(reader), TrendFilter(), "hud"),
    )
    assert [point.note for point in line.points] == ["1 of 2 models failed", None]
    laid = build_axis(list_trend_runs(open_engine(reader), ["R1", "R2"]), "date")
    (trace,) = chart_metric(BY_NAME["speedup"], [line], laid, chart_id="c").figure["data"]
    assert trace["hovertext"] == ["", "1 of 2 models failed<br>"]


@pytest.mark.usefixtures("suite")
def test_what_no_run_has_is_a_sentence_and_no_chart(client: FlaskClient) -> None:
    text = text_of(client, "/trends?definition=summarize_perf&metric=pass_ratio&metric=speedup")
    assert "Pass rate: no run here has one by summarize_perf.py" in text


@pytest.mark.usefixtures("suite")
def test_the_axis_of_commits_is_in_the_order_of_ancestry_and_says_what_is_not_known(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    note = "is not recorded, so the time of its first run places it"
    assert note in text_of(client, "/trends?axis=commit")
    assert note not in text_of(client, "/trends")
    runs = store.execute(
        "select id, git_commit from runs where source = 'bench' order by started_us"
    ).fetchall()
    hashes = {row["id"]: row["git_commit"] for row in runs}
    newest_first = list(reversed(list(dict.fromkeys(hashes.values()))))
    save_commits(
        store,
        [
            StoredCommit(commit, before, 5, "Ann", "x")
            for before, commit in zip([None, *newest_first], newest_first)
        ],
    )
    assert note not in text_of(client, "/trends?axis=commit")
    trend = client.get("/api/v1/trend?metric=speedup&model=Breaky&axis=commit").json["data"]  # type: ignore[index]
    assert [point["git_commit"] for point in trend["series"][0]["points"]] == newest_first
    assert trend["notes"] == []


def test_where_nobody_checked_accuracy_trends_are_of_what_was_timed(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    for number, run_id in enumerate(RUNS[:3]):
        timed = measure(experiment="performance", accuracy=None, task=None)
        add_results(store, run_id, timed, started_us=START_US + number * 60_000_000)
    unnamed = client.get("/trends").text
    assert '<option value="summarize_perf" selected>' in unnamed
    speedup = _figures(unnamed)["trend-0"]
    assert [value is not None for value in speedup["data"][0]["y"]] == [True] * 3
    low, high = speedup["layout"]["xaxis"]["range"]
    assert high - low < 3 * 60_000, "runs minutes apart fill the chart"
    assert high == (START_US + 2 * 60_000_000) // 1000, "no time after the newest run"
    assert '<option value="hud" selected>' in client.get("/trends?definition=hud").text
