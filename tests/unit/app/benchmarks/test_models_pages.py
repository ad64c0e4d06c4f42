"""The Models page, a model's own page and a run's Results tab."""

from __future__ import annotations

import re
import sqlite3

import orjson
import plotly.graph_objects as go
import pytest
from flask.testing import FlaskClient

from compileboard.app.benchmarks.charts import chart_history, chart_repeats
from compileboard.app.benchmarks.queries import list_history
from compileboard.app.benchmarks.series import split_series
from compileboard.app.core.charts import MAX_CHART_BYTES
from tests.unit.app.benched import (
    ACCURACY,
    BREAK_ID,
    CAUSE_ID,
    COMMAND,
    HOSTILE,
    MLP,
    RUNS,
    add_results,
    bench_suite,
    measure,
)
from tests.unit.app.clickhouse.published import OpenEngine, on_both_engines
from tests.unit.app.seed import add_run
from tests.unit.app.server.test_hostile_text import _Seen

pytestmark = on_both_engines


@pytest.fixture
def suite(store: sqlite3.Connection) -> None:
    bench_suite(store)


def text_of(client: FlaskClient, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, address
    return " ".join(answer.text.split())


@pytest.mark.usefixtures("suite")
def test_models_shows_every_state_in_words_and_apart(client: FlaskClient) -> None:
    page = text_of(client, "/models")
    line = " ".join(re.sub("<[^>]*>", "", page).split())
    words = (
        "failed: out of memory",
        "failed: timed out",
        "does not run compiled",
        ">skipped<",
        ">not run<",
    )
    assert [
        word
        for word in (*words, "needs torchvision", "not measured", "no clear difference")
        if word not in page
    ] == []
    assert 'class="number zero" data-label="Breaks">0<' in page
    assert "11: 6 measured, 3 failed, 1 skipped, 1 not run" in line
    assert "CUDA out of memory." in page
    assert page.count("<script>") == 0


@pytest.mark.usefixtures("suite")
def test_headline_numbers_name_their_definition(client: FlaskClient) -> None:
    page = text_of(client, "/models")
    assert '45.5% <span class="soft">5 of 11</span>' in page
    assert "Summary formula: PyTorch HUD." in page
    assert "1.115×" in page
    assert all(
        text in page for text in ("PyTorch HUD", "runner.py", "summarize_perf.py", "1.2406×")
    )


@pytest.mark.usefixtures("suite")
def test_models_can_be_filtered_sorted_and_paged(client: FlaskClient) -> None:
    assert "Hungry" in (failed := text_of(client, "/models?status=failed"))
    assert "Bert4" not in failed
    fastest = text_of(client, "/models?sort=speedup&limit=2")
    assert fastest.index("Bert4") < fastest.index("GPT2x4")
    assert "Breaky" not in fastest
    assert "More models" in fastest
    assert "0.572×" in text_of(client, f"/models?run={RUNS[0]}")
    assert "No models match" in text_of(client, "/models?q=nothing")
    assert [
        client.get(f"/models?{query}").status_code
        for query in ("x=1", "status=odd", "sort=odd", "run=odd")
    ] == [*(400, 400, 400, 404)]


def test_without_results_the_page_says_how_to_get_some(client: FlaskClient) -> None:
    assert "compileboard-collect bench --db" in text_of(client, "/models")


def test_accuracy_that_came_in_another_run_completes_the_newest_performance(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_results(store, "OLD", MLP, measure(**ACCURACY))
    add_results(store, "NEW", measure(values={"speedup": 1.5}), started_us=MLP.time_us + 10**9)
    page = text_of(client, "/models")
    assert "1.500×" in page
    assert 'accuracy of <a href="/runs/OLD/results">' in page
    assert "</a>: pass" in page
    assert "1.250×" not in page


def test_a_wrong_answer_is_a_failure_with_its_own_command(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    wrong = ACCURACY | {"accuracy": "fail_accuracy", "status": "failed", "reason": "fail_accuracy"}
    facts = {"tolerance": 0.001, "cosine": False}
    add_results(store, "RUN", MLP, measure(**wrong, command="bench --accuracy", facts=facts))
    page = text_of(client, "/models/mlp")
    assert "failed: wrong answer" in page and "accuracy: wrong answer" not in page
    assert "Compared element by element, tolerance 0.001" in page
    assert all(
        text in page
        for text in (
            "bench --accuracy",
            str(MLP.command),
            "Command to reproduce: accuracy",
            "1.250×",
        )
    )
    assert "mlp" in text_of(client, "/models?status=failed")


def test_a_minimal_program_stands_with_the_result_that_it_is_of(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    minimal = {
        "repro": "00000000000000ab",
        "graph": 2,
        "graph_count": 4,
        "status": "not_finished",
        "failure": "output 0: error 0.1",
        "node_count_before": 25,
        "node_count": 1,
        "operations": ["aten.atan.default"],
        "program": "def forward(self, <x>):\n    return x",
    }
    wrong = ACCURACY | {"accuracy": "fail_accuracy", "status": "failed", "reason": "fail_accuracy"}
    facts = {
        "minimal_programs": [minimal, {**minimal, "program": None, "repro": 3, "graph": "x"}, "odd"]
    }
    add_results(store, "RUN", measure(**wrong, facts=facts))
    page = text_of(client, "/models/mlp")
    assert (
        page.count("Minimal program</h2>") == 2
        and "graph 2 of 4" in page
        and "stopped at its time limit" in page
    )
    assert "25 → 1 operation:" in page and "def forward(self, &lt;x&gt;):" in page
    assert 'href="/repros/00000000000000ab"' in page


def test_a_run_of_accuracy_alone_says_what_it_has(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_results(
        store,
        "RUN",
        measure(**ACCURACY),
        measure(**ACCURACY | {"model": "b", "accuracy": "fail_accuracy"}),
    )
    page = text_of(client, "/runs/RUN/results")
    assert all(text in page for text in ("1 of 2 pass", "needs accuracy and a speedup"))
    assert "Beyond noise" not in page


def test_speedups_without_intervals_are_not_counted_as_noise(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    bare = measure(values={"speedup": 1.5})
    add_results(store, "RUN", bare)
    assert "no intervals" in text_of(client, "/models")
    add_results(store, "MORE", measure(model="b"))
    assert "1 faster" in (page := text_of(client, "/models")) and "1 without an interval" in page


def test_failures_come_first_and_answers_can_be_filtered(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    bad = ACCURACY | {"accuracy": "fail_accuracy", "model": "wrong", "task": "w"}
    oom = measure(model="oom", status="failed", reason="OOM", values={}, repeats={})
    add_results(store, "RUN", MLP, measure(model="wrong"), measure(**bad), oom)
    page = text_of(client, "/models?sort=status")
    assert page.index("<bdi>oom") < page.index("<bdi>wrong") < page.index("<bdi>mlp")
    assert "<bdi>mlp" not in text_of(client, "/models?accuracy=fail")
    assert "<bdi>wrong" not in text_of(client, "/models?accuracy=not_measured")
    assert client.get("/models?accuracy=odd").status_code == 400


def test_a_summary_is_of_the_table_below_it_and_the_worst_table_comes_first(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_results(
        store, "OLD", measure(dtype="amp", values={"speedup": 0.5}), measure(model="b", dtype="amp")
    )
    add_results(store, "NEW", measure(values={"speedup": 2.0}), started_us=MLP.time_us + 10**9)
    parts = text_of(client, "/models?view=numbers").split("<h2 ")[1:]
    assert ["amp" in parts[0], "float32" in parts[1], len(parts)] == [True, True, 2]
    assert "0.791×" in parts[0] and "2.000×" not in parts[0]
    assert re.findall("[0-9.]+× <span", parts[1]) == ["2.000× <span"]


def test_a_configuration_that_a_page_cuts_says_how_many_rows_are_here(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    slow = {"speedup": 0.5, "speedup_low": 0.4, "speedup_high": 0.6}
    add_results(store, "RUN", MLP, measure(model="slow", values=slow), measure(mode="training"))
    page = text_of(client, "/runs/RUN/results?limit=1&view=numbers")
    assert "1 of 2 rows here" in page and "<bdi>slow" in page and "<bdi>mlp" not in page
    following = client.get(
        re.findall('rel="next" href="([^"]+)"', page)[0].replace("&amp;", "&")
    ).text
    assert "<bdi>mlp" in following and "training" not in following


@pytest.mark.usefixtures("suite")
def test_counters_and_recorded_breaks_are_named_apart_and_tables_too(client: FlaskClient) -> None:
    page = text_of(client, "/models/Breaky")
    assert "by torch&#39;s counters" in page and "Recorded graph breaks" in page
    captions = re.findall(r"<caption class=.hidden.>([^<]*)</caption>", page)
    assert "Latency as a table" in captions
    assert len(captions) == len(set(captions))
    assert '<th scope="row" class="results__model"><a href="/models/Breaky?' in text_of(
        client, "/models"
    )


def test_an_accuracy_check_that_was_skipped_says_why(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    skipped = ACCURACY | {
        "accuracy": None,
        "status": "skipped",
        "reason": "it draws random numbers",
    }
    add_results(store, "RUN", MLP, measure(**skipped))
    assert "accuracy: skipped: it draws random numbers" in text_of(client, "/models")


@pytest.mark.usefixtures("suite")
def test_a_model_has_its_history_its_breaks_and_the_command(client: FlaskClient) -> None:
    page = text_of(client, f"/models/Breaky?run={RUNS[1]}")
    assert [
        text
        for text in ("0.572×", "0.569×", "0.587×", COMMAND.format("Breaky"))
        if text not in page
    ] == []
    assert "it lies from 0.560× to 0.578×: slower" in page
    assert f"/graph_breaks/{BREAK_ID}" in page
    assert f"/recompiles/{CAUSE_ID}" in page
    charts = (
        "speedup",
        "latency",
        "compile-time",
        "memory",
        "breaks",
        "ops",
        "graphs",
        "compression",
        "repeats",
    )
    assert [chart for chart in charts if f'id="{chart}-chart"' not in page] == []
    assert "pct_ops" in page
    assert '>2<span class="sub">performance</span>' in page


@pytest.mark.parametrize(
    ("device", "faults", "is_named"),
    [("cuda", 277.0, True), ("cuda", 5.0, False), ("cpu", 277.0, False)],
)
def test_page_faults_of_a_call_are_shown(
    client: FlaskClient, store: sqlite3.Connection, device: str, faults: float, is_named: bool
) -> None:
    values = {**MLP.values, "compiled_page_faults": faults, "eager_page_faults": 0.0}
    add_results(store, RUNS[0], measure(device=device, values=values))
    page = text_of(client, "/models/mlp")
    assert f"Page faults per call: {faults:g} compiled, 0 eager." in page
    assert ("frame stack may be the cause" in page) == is_named


@pytest.mark.usefixtures("suite")
def test_a_failed_model_shows_its_traceback_and_no_zero(client: FlaskClient) -> None:
    page = text_of(client, "/models/Hungry")
    assert "Tried to allocate 96.00 GiB." in page
    assert "No repeats: failed: out of memory." in page
    assert "not recorded</span>: a model that times out is killed" in text_of(
        client, "/models/Sleeper"
    )


@pytest.mark.usefixtures("suite")
def test_unknown_models_series_and_points_are_not_found(client: FlaskClient) -> None:
    addresses = (
        "/models/Nothing",
        "/models/Breaky?dtype=amp",
        "/models/Breaky?run=ODD",
        "/models/Breaky?odd=1",
    )
    assert [client.get(address).status_code for address in addresses] == [404, 404, 404, 400]


@pytest.mark.usefixtures("suite")
@pytest.mark.parametrize(
    "address", ["/models", f"/runs/{RUNS[0]}/results", "/models/" + HOSTILE.replace("&", "%26")]
)
def test_a_hostile_name_stays_text(client: FlaskClient, address: str) -> None:
    seen = _Seen(client.get(address).text)
    assert [tag for tag, attributes in seen.tags if "onclick" in attributes] == []
    assert "&lt;b onclick=x&gt;" in client.get(address).text


@pytest.mark.usefixtures("suite")
def test_a_run_with_results_has_a_tab_of_them(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_run(store, "PLAIN")
    assert f'href="/runs/{RUNS[2]}/results"' in text_of(client, f"/runs/{RUNS[2]}")
    assert "/results" not in text_of(client, "/runs/PLAIN")
    assert "0.587×" in text_of(client, f"/runs/{RUNS[2]}/results")
    assert "This run measured no model" in text_of(client, "/runs/PLAIN/results")


def test_series_of_one_name_are_told_apart(client: FlaskClient, store: sqlite3.Connection) -> None:
    add_results(
        store,
        "RUN",
        MLP,
        measure(batch_size=64, values={"speedup": 2.5}),
        measure(mode="training", values={}),
    )
    page = text_of(client, "/models/mlp?batch_size=64")
    assert '<h2 id="series-title">Configurations</h2>' in page
    assert '<p class="soft">inference · float32 · AMD EPYC 9654 · inductor · batch 64</p>' in page
    assert "2.500×" in page
    assert all(
        text in page
        for text in (
            "inference · float32 · AMD EPYC 9654 · inductor · batch 8",
            "training · float32",
        )
    )


@pytest.mark.usefixtures("suite")
def test_runs_and_a_runs_summary_count_its_results(client: FlaskClient) -> None:
    assert "3 results failed" in text_of(client, "/runs")
    assert "Benchmark results" in text_of(client, f"/runs/{RUNS[0]}")


@pytest.mark.usefixtures("suite")
def test_charts_are_what_plotly_takes_and_small(
    open_engine: OpenEngine, reader: sqlite3.Connection
) -> None:
    (series,) = split_series(list_history(open_engine(reader), "Breaky"))
    charts = chart_history(series.points, ["/models/Breaky"] * 3)
    repeats = chart_repeats({"eager": [1.0, 1.1, 1.05], "compiled": [0.5, 0.5, 0.5]})
    assert repeats is not None
    assert sum(repeats.figure["data"][0]["y"]) == 3
    for chart in (*charts, repeats):
        go.Figure(chart.figure)
        assert len(orjson.dumps(chart.figure)) < MAX_CHART_BYTES
    assert [name for name, _is_number in charts[0].columns] == [
        "Measured",
        "speedup, ×",
        "95% interval",
    ]
    assert charts[0].rows[0][1:] == ["0.587", "0.578–0.596"]
    assert chart_repeats({"eager": []}) is None


def test_an_experiment_alone_is_said_to_be_and_the_timed_series_comes_first(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    counted = measure(
        experiment="coverage",
        backend="eager",
        values={"pct_ops": 1.0},
        repeats={},
        facts={"a": {"b": 1}},
    )
    add_results(store, "RUN", MLP, measure(**ACCURACY), counted)
    page = text_of(client, "/models?view=numbers")
    assert "· eager</h2>" in page and "coverage alone" in page
    assert '<span class="soft">1 of 1</span>' in page
    assert "1.250×" in text_of(client, "/models/mlp")
    assert "only coverage was measured" in text_of(client, "/models/mlp?backend=eager")
