"""The overview: its numbers are the rows'; charts of recorded runs are small and honest."""

from __future__ import annotations

import gzip
import html
import json
import re
import sqlite3
from dataclasses import replace
from random import Random
from typing import Any

import orjson
import pytest
from flask.testing import FlaskClient

from compileboard.app.benchmarks import recorded_charts as charts
from compileboard.app.core.charts import MAX_CHART_BYTES, Chart
from compileboard.app.runs import overview as overview_model
from compileboard.app.runs import overview_queries as overview
from compileboard.app.runs.queries import STATES
from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.fixes.fix import TriedFix
from compileboard.collectors.store.connection import checkpoint
from compileboard.collectors.store.run_causes import load_causes
from tests.unit.app.benched import (
    ACCURACY,
    DAY_US,
    MLP,
    RUNS,
    add_results,
    bench_suite,
    measure,
)
from tests.unit.app.clickhouse.published import OpenEngine, on_both_engines
from tests.unit.app.recorded import RUN, record_run
from tests.unit.app.seed import START_US, add_run, insert
from tests.unit.app.series_changes import keep, make_change

pytestmark = on_both_engines

HOUR_US = 3_600_000_000


def _facts(text: str) -> dict[str, str]:
    facts = text[text.index('id="totals"') :]
    matches = re.findall(r"<dt>(.*?)</dt>\s*<dd>(.*?)</dd>", facts[: facts.index("</details>")])
    return {label: value.partition(", ")[0].replace(",", "") for label, value in matches}


def add_break(store: sqlite3.Connection, reason: str, in_runs: list[tuple[str, str, int]]) -> None:
    number = store.execute("select count(*) from distinct_breaks").fetchone()[0] + 1
    insert(store, "distinct_breaks", id=number, fingerprint=reason, reason=reason, hints="[]")
    for run_id, name, started_us in in_runs:
        add_run(store, run_id, name=name, started_us=started_us)
        insert(
            store, "run_breaks", run_id=run_id, distinct_id=number, break_count=1, compile_us=1000
        )


def _figures(text: str) -> dict[str, Any]:
    matches = re.findall(
        r'<script type="application/json" id="([^"]+)-data"[^>]*>(.*?)</script>', text, re.DOTALL
    )
    return {name: json.loads(body) for name, body in matches}


@on_both_engines
def test_what_files_of_results_do_not_count_is_not_recorded(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_results(store, "R1", MLP)
    store.execute("update runs set source = 'import', torch_version = null")
    checkpoint(store)
    answer = client.get("/api/v1/overview").get_json()["data"]
    assert answer["totals"]["run_count"] == 1
    counted = (
        "compile_count",
        "recompile_count",
        "graph_break_count",
        "failure_count",
        "compile_us",
        "recompile_us",
    )
    assert {name: answer["totals"][name] for name in counted} == dict.fromkeys(counted)
    assert answer["trend"][0]["compile_count"] is answer["trend"][0]["compile_us"] is None
    assert client.get("/api/v1/runs/R1").get_json()["data"]["distinct_break_count"] is None
    facts = _facts(client.get("/").text)
    for label in (
        "Compiles",
        "Recompiles",
        "Graph breaks",
        "Compile time",
        "Spent on recompiles",
        "Failures",
    ):
        assert "not recorded" in facts[label], label
    for page, words in (
        ("/recompiles", "no function was recompiled"),
        ("/graph_breaks", "every frame compiled whole"),
    ):
        text = client.get(page).text
        assert "not recorded" in text and words not in text


def test_totals_are_those_of_the_rows(
    recorded_client: FlaskClient, recorded_reader: sqlite3.Connection
) -> None:
    facts = _facts(recorded_client.get("/").text)
    for label, table in (
        ("Runs", "runs"),
        ("Compiles", "compiles"),
        ("Recompiles", "recompiles"),
        ("Graph breaks", "graph_breaks"),
        ("Failures", "compiles where outcome = 'failed'"),
    ):
        assert facts[label] == str(
            recorded_reader.execute(f"select count(*) from {table}").fetchone()[0]
        ), label


def test_rankings_are_those_of_the_rows(
    open_engine: OpenEngine, recorded_client: FlaskClient, recorded_reader: sqlite3.Connection
) -> None:
    top = overview.list_top(open_engine(recorded_reader), overview.TopBreak, limit=500)
    rows = recorded_reader.execute(
        "select distinct_id, count(*) from graph_breaks group by distinct_id"
    ).fetchall()
    counts = {format_id(key): n for key, n in rows}
    assert {graph_break.distinct_id: graph_break.break_count for graph_break in top} == counts
    functions = overview.list_top(open_engine(recorded_reader), overview.TopFunction, limit=500)
    rows = recorded_reader.execute(
        "select function_id, count(*) from recompiles group by function_id"
    ).fetchall()
    assert {function.function_id: function.recompile_count for function in functions} == {
        format_id(key): n for key, n in rows if key
    }
    causes = overview.list_top(open_engine(recorded_reader), overview.TopCause, limit=500)
    assert sum(cause.recompile_count for cause in causes) == sum(
        function.recompile_count for function in functions
    )
    costs = [graph_break.compile_us or 0 for graph_break in top]
    assert costs == sorted(costs, reverse=True)


def test_what_needs_no_fix_is_not_present_and_does_not_lead(
    recorded_client: FlaskClient, recorded_reader: sqlite3.Connection
) -> None:
    answer = recorded_client.get("/api/v1/overview").get_json()["data"]
    text = html.unescape(recorded_client.get("/").text)
    needless = {
        format_id(content_id)
        for (run_id,) in recorded_reader.execute("select id from runs").fetchall()
        for cause in load_causes(recorded_reader, run_id)
        for content_id in cause.content_ids
        if cause.is_expected
    }
    for name, key in (("graph_breaks", "distinct_id"), ("recompile_causes", "cause_id")):
        rows = [(row["is_expected"], row[key]) for row in answer[name]]
        assert rows == sorted(rows, key=lambda row: row[0])
        assert {content_id for is_expected, content_id in rows if is_expected} <= needless
        assert needless.isdisjoint(of for is_expected, of in rows if not is_expected)
        assert all(of in text for _is_expected, of in rows[:3])
    assert any(row["is_expected"] for row in answer["recompile_causes"])


def test_a_scope_is_that_suite_and_name_alone(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    for number, (suite, name) in enumerate([("a", "x"), ("a", "y"), (None, "x")]):
        totals = {"compile_count": 10**number, "recompile_count": number}
        add_run(
            store, f"R{number}", suite=suite, name=name, totals=totals, started_us=START_US + number
        )
    for query, compiles in (
        ("", "111"),
        ("suite=a", "11"),
        ("name=x", "101"),
        ("suite=a&name=y", "10"),
    ):
        assert _facts(client.get(f"/?{query}").text)["Compiles"] == compiles
    assert _facts(client.get("/?suite=none").text)["Runs"] == "0"


def test_an_empty_database_shows_both_commands(client: FlaskClient) -> None:
    text = client.get("/").text
    assert "make demo" in text
    assert "compileboard-collect run --db" in text
    assert "application/json" not in text


def test_every_point_is_in_the_table_twin(
    open_engine: OpenEngine, recorded_client: FlaskClient, recorded_reader: sqlite3.Connection
) -> None:
    every = overview.list_trend(open_engine(recorded_reader))
    program = charts.list_programs(every)[-1]
    text = recorded_client.get("/trends", query_string={"program": program}).text
    points = [point for point in every if (point.suite or point.name) == program]
    figure = _figures(text)["recompiles-chart"]
    drawn = [
        value for trace in figure["data"] if "markers" in trace["mode"] for value in trace["y"]
    ]
    assert sorted(drawn) == sorted(point.recompile_count for point in points)
    twin = text[text.index('id="recorded-table"') :]
    assert twin[: twin.index("</details>")].count("<tr>") == len(points) + 1


def _points(series: int, runs: int) -> list[overview.RunPoint]:
    """Make points as noisy as real ones; ids and times are what compresses worst."""
    random = Random(7)
    return [
        overview.RunPoint(
            "01M" + "".join(random.choices("0123456789ABCDEFGHJKMNPQRSTVWXYZ", k=23)),
            f"name-{random.randrange(series)}",
            None,
            "suite",
            "finished",
            START_US + number * 4 * HOUR_US + random.randrange(HOUR_US),
            *(random.randrange(limit) for limit in (100, 40, 90, 10**8)),
        )
        for number in range(runs)
    ]


def _charts(points: list[overview.RunPoint]) -> list[Chart]:
    trends = (charts.chart_recompiles, charts.chart_compile_time, charts.chart_graph_breaks)
    return [charts.chart_runs(points), *(make(points) for make in trends)]


@pytest.mark.parametrize("runs", [1, 3, 40, 1000])
def test_charts_stay_small_and_plotly_takes_them(runs: int) -> None:
    import plotly.graph_objects as go

    points = _points(12, runs)
    made = _charts(points)
    for chart in made:
        assert len(go.Figure(chart.figure).data) == len(chart.figure["data"])
    bodies = [charts.share_points(points), *(chart.figure for chart in made)]
    text = b"".join(orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY) for body in bodies)
    assert len(gzip.compress(text, 1)) <= MAX_CHART_BYTES


def test_different_series_are_never_joined_by_a_line() -> None:
    for runs in (60, 400):
        for chart in _charts(_points(12, runs))[1:]:
            others = [trace for trace in chart.figure["data"] if trace.get("name") == "all others"]
            assert [trace["mode"] for trace in others] == ["markers"]
            assert chart.legend[-1] == ("all others", "series-8")


def test_many_points_get_a_rolling_median_and_say_so() -> None:
    noisy, few = charts.chart_recompiles(_points(2, 60)), charts.chart_recompiles(_points(2, 6))
    assert "rolling median of 7 runs" in (noisy.note or "")
    assert "median" not in (few.note or "")
    dots, line = noisy.figure["data"][:2]
    assert (dots["mode"], line["mode"]) == ("markers", "lines")
    assert line["x"] == dots["x"]
    assert line["y"][6] == sorted(dots["y"][:7])[3]
    assert line["y"][0] == dots["y"][0]


@pytest.mark.parametrize("runs", [1, 3, 1000])
def test_axes_of_time_end_at_the_newest_run_and_a_lone_bar_does_not_fill_its_chart(
    runs: int,
) -> None:
    points = _points(1, runs)
    newest_ms = points[-1].started_us // 1000
    bars, *trends = [chart.figure["layout"]["xaxis"]["range"] for chart in _charts(points)]
    bin_ms = {1: 1, 3: 1, 1000: 24 * 7}[runs] * HOUR_US // 1000
    assert newest_ms < bars[1] <= newest_ms + bin_ms
    assert {trend[1] for trend in trends} == {newest_ms}
    first_ms = points[0].started_us // 1000
    assert bars[0] <= first_ms and bars[1] - bars[0] >= 12 * bin_ms
    margins_ms = {first_ms - low for low, _high in trends}
    assert all(0 < margin <= (newest_ms - first_ms) / 50 or runs == 1 for margin in margins_ms)


def test_counts_of_runs_add_up(
    open_engine: OpenEngine, recorded_reader: sqlite3.Connection
) -> None:
    for points in (_points(3, 200), overview.list_trend(open_engine(recorded_reader))):
        figure = charts.chart_runs(points).figure
        assert sum(sum(trace["y"]) for trace in figure["data"]) == len(points)


def test_markup_in_a_name_stays_text(client: FlaskClient, store: sqlite3.Connection) -> None:
    add_run(store, "R1", name="</script><b onclick=x>", suite='<a href="//evil">')
    text = client.get("/trends").text
    for page in (text, client.get("/").text):
        assert "<b onclick" not in page
        assert "</script><b" not in page
    names = [trace.get("name", "") for trace in _figures(text)["recompiles-chart"]["data"]]
    assert names
    assert not any("<" in name for name in names)


def test_chart_of_runs_has_every_state() -> None:
    (point,) = _points(1, 1)
    failed = replace(point, state="imported", has_failed=True)
    figure = charts.chart_runs([*(replace(point, state=state) for state in STATES), failed]).figure
    assert sum(sum(trace["y"]) for trace in figure["data"]) == len(STATES) + 1
    assert len({trace["meta"]["color"] for trace in figure["data"]}) == len(STATES) + 1


def test_runs_with_failures_have_a_colour_of_their_own(
    open_engine: OpenEngine, client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_run(store, "R1")
    add_run(store, "R2", totals={"failed_result_count": 1})
    add_run(store, "R3", state="failed", totals={"failure_count": 1})
    chart = charts.chart_runs(overview.list_trend(open_engine(store)))
    assert [(trace["name"], trace["y"]) for trace in chart.figure["data"]] == [
        ("finished", [1]),
        ("finished, with failures", [1]),
        ("failed", [1]),
    ]


def test_a_cause_is_present_if_the_newest_run_of_its_name_has_it(
    open_engine: OpenEngine, client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_break(store, "fixed", in_runs=[("R1", "train", START_US)])
    add_break(store, "left", in_runs=[("R3", "serve", START_US + 2)])
    add_run(store, "R2", name="train", started_us=START_US + 1)
    add_run(store, "R4", name="serve", started_us=START_US + 3, state="running")
    top = {
        row.reason: row.is_present
        for row in overview.list_top(open_engine(store), overview.TopBreak)
    }
    assert top == {"fixed": False, "left": True}


@pytest.mark.parametrize(
    ("run", "status"),
    [
        ({"state": "killed"}, "Killed"),
        ({"state": "killed", "totals": {"failure_count": 2}}, "Killed, 2 failures"),
        ({"state": "failed", "totals": {"failure_count": 2}}, "2 failures"),
        ({"state": "finished"}, "Finished"),
    ],
)
def test_a_status_says_how_a_run_ended(
    client: FlaskClient, store: sqlite3.Connection, run: dict[str, Any], status: str
) -> None:
    add_run(store, "R1", name="train", **run)
    text = client.get("/").text
    recent = text[text.index('id="recent"') :]
    badge = re.search(r'class="badge[^"]*"[^>]*>(.*?)</span>', recent)
    assert badge is not None and badge[1].strip() == status
    assert ("train was killed" in text) == (run["state"] == "killed")


def test_the_first_screen_needs_no_chart_library_and_no_select(
    recorded_client: FlaskClient,
) -> None:
    text = recorded_client.get("/").text
    assert "plotly" not in text
    assert "application/json" not in text
    assert "<select" not in text
    assert len(gzip.compress(text.encode())) < 150_000


def test_programs_that_win_most_come_first_and_lead_to_their_fixes(
    recorded_client: FlaskClient, recorded_reader: sqlite3.Connection
) -> None:
    answer = recorded_client.get("/api/v1/overview").json
    programs = answer["data"]["programs"]  # type: ignore[index]
    assert len(programs) >= 2
    assert [program["saved_us"] for program in programs] == sorted(
        (program["saved_us"] for program in programs), reverse=True
    )
    for program in programs:
        causes = [
            cause for cause in load_causes(recorded_reader, program["run_id"]) if cause.is_fixable
        ]
        assert (program["fix_count"], program["first_cause"]) == (len(causes), causes[0].title)
        assert program["compile_us"] is None or program["saved_us"] <= program["compile_us"]
        assert f'href="/runs/{program["run_id"]}"' in recorded_client.get("/").text


@on_both_engines
def test_a_benchmark_with_a_fix_stands_among_the_programs(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    program, benchmark = record_run(store), record_run(store)
    store.execute("update runs set name = 'nightly' where id = ?", (benchmark,))
    store.execute("update run_totals set result_count = 2 where run_id = ?", (benchmark,))
    checkpoint(store)
    listed = client.get("/api/v1/overview").get_json()["data"]["programs"]
    is_benchmark = {row["run_id"]: row["is_benchmark"] for row in listed}
    assert is_benchmark == {program: False, benchmark: True}
    assert f'href="/runs/{benchmark}">nightly' in client.get("/").text


def _copy_run(store: sqlite3.Connection, number: int, **values: Any) -> str:
    """Copy the run of `record_run` with what its causes are read from, and return the copy's id."""
    run_id = f"COPY{number}"
    for table in ("runs", "run_totals"):
        key = "id" if table == "runs" else "run_id"
        (row,) = store.execute(f"select * from {table} where {key} = ?", (RUN,))
        copied = {**dict(row), key: run_id}
        insert(store, table, **{name: values.get(name, value) for name, value in copied.items()})
    return run_id


def test_the_newest_program_is_shown_beside_many_benchmarks_and_leads(
    client: FlaskClient, store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = record_run(store)
    newer = {"started_us": START_US + HOUR_US, "suite": None, "result_count": 2}
    names = [f"bench{number}" for number in range(7)]
    for number, name in enumerate(names):
        _copy_run(store, number, name=name, **newer)
    _copy_run(store, 8, name="needless", started_us=START_US + HOUR_US)
    causes = load_causes(store, program)
    larger = [replace(cause, saved_us=(cause.saved_us or 0) + 5) for cause in causes]
    found = {program: causes, "COPY8": []}
    monkeypatch.setattr(
        overview_model, "_read_causes", lambda _store, run: found.get(run.id, larger)
    )
    checkpoint(store)
    answer = client.get("/api/v1/overview").get_json()["data"]
    shown = [row["name"] for row in answer["programs"]]
    assert (len(shown), shown[-1]) == (6, "train")
    assert answer["verdict"]["sentence"].startswith("train: ")


def test_a_fix_that_costs_time_is_no_negative_saving(
    client: FlaskClient, store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = record_run(store)
    checkpoint(store)
    first, *_others = [cause for cause in load_causes(store, program) if cause.is_fixable]
    trial = TriedFix("improved", "", "", "", None, None, None, None, 0, base_us=9, new_us=6)
    saving = replace(first, saved_us=2_000_000, run_us=2_000_000, trials=(trial,))
    costly = replace(saving, saved_us=-3_000_000, run_us=-3_000_000)
    listed = [saving, costly]
    monkeypatch.setattr(overview_model, "_read_causes", lambda _store, _run: listed)
    (row,) = client.get("/api/v1/overview").get_json()["data"]["programs"]
    assert (row["saved_us"], row["run_us"], row["is_measured"]) == (2_000_000, 2_000_000, True)
    page = " ".join(client.get("/").text.split())
    assert '2.00 s <span class="sub">measured</span>' in page and "rest in its steps" not in page
    listed.append(replace(first, saved_us=1_000, run_us=1_000))
    (row,) = client.get("/api/v1/overview").get_json()["data"]["programs"]
    assert not row["is_measured"]


@on_both_engines
def test_programs_are_shown_beside_benchmarks_and_found_by_their_suite(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    program = record_run(store)
    store.execute("update runs set suite = 'programs' where id = ?", (program,))
    for day in range(1, 60):
        add_results(store, f"BENCH{day}", MLP, started_us=START_US - day * DAY_US)
    checkpoint(store)
    page, of_suite = client.get("/").text, client.get("/?suite=programs").text
    for text in (page, of_suite):
        assert f'href="/runs/{program}"' in text and "Most to win" in text
        assert 'href="/?suite=programs"' in text
    assert "Headline numbers" in page and "Headline numbers" not in of_suite
    assert "No runs match" not in of_suite and "No runs match" in client.get("/?suite=nope").text
    assert "No runs match" in client.get("/?backend=nope").text
    for scope in ("suite=programs", ""):  # the benchmarks are older than a week
        answer = client.get(f"/api/v1/overview?{scope}").get_json()["data"]
        assert answer["programs"][0]["first_fix"] and answer["verdict"]["state"] == "fixes"


def test_a_suite_that_only_results_name_finds_their_run_and_its_own_failures(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    broken = {"suite": "broken", "model": "Bad", "status": "failed", "values": {}, "repeats": {}}
    add_results(store, "R1", MLP, measure(**broken), started_us=START_US)
    store.execute("update runs set suite = null")
    checkpoint(store)
    for suite, is_failing in ((MLP.suite, False), ("broken", True)):
        page = client.get(f"/?suite={suite}").text
        assert 'href="/runs/R1"' in page and "No runs match" not in page
        assert client.get(f"/api/v1/runs?suite={suite}").get_json()["data"][0]["id"] == "R1"
        answer = client.get(f"/api/v1/overview?suite={suite}").get_json()["data"]
        assert ("Bad fails" in answer["verdict"]["sentence"]) is is_failing
    assert client.get("/api/v1/runs?suite=none").get_json()["data"] == []


def test_recorded_runs_of_two_programs_share_no_axis(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    for number, suite in enumerate((None, "nightly", None, "nightly", None)):
        add_run(
            store,
            f"R{number}",
            name=f"program {number % 2}",
            suite=suite,
            started_us=START_US + number * HOUR_US,
            totals={"recompile_count": number, "compile_count": 9},
        )
    checkpoint(store)
    for address, own in (
        ("/trends", ["R0", "R2", "R4"]),
        ("/trends?program=nightly", ["R1", "R3"]),
    ):
        text = client.get(address).text
        assert f'"runs":{orjson.dumps(own).decode()}' in text
        assert 'href="/trends?program=nightly#recorded"' in text


def test_a_failure_without_batch_size_is_one_model_on_every_page(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    """As upstream writes it: c fails with batch size 0, d's answer is wrong, and its speedup counts
    nowhere.
    """
    numbers = {"a": 1.0, "b": 1.5, "c": 2.0, "d": 4.0}
    failed = {
        "model": "c",
        "batch_size": None,
        "values": {},
        "repeats": {},
        "status": "failed",
        "reason": "unknown",
    }
    for day, run_id in enumerate(RUNS):
        results = [
            measure(**experiment | own)
            for model, speedup in numbers.items()
            for experiment in ({"values": {"speedup": speedup}, "repeats": {}}, ACCURACY)
            for own in [{"model": model, "batch_size": 8, "task": None}]
        ]
        results = [
            replace(own, accuracy="fail_accuracy" if own.model == "d" else own.accuracy)
            for own in results
        ]
        if day == 2:
            results[4:6] = [
                measure(**failed),
                measure(**ACCURACY | failed | {"accuracy": "fail_to_run"}),
            ]
        add_results(store, run_id, *results, started_us=START_US + day * DAY_US)
    models = client.get("/api/v1/models").json["data"]
    assert sorted((row["model"], row["status"]) for row in models if row["model"] == "c") == [
        ("c", "failed")
    ]
    assert "c fails" in client.get(f"/compare?base={RUNS[1]}&new={RUNS[2]}").text
    overview = client.get("/api/v1/overview").json["data"]
    assert "2 models healthy" in overview["verdict"]["context"]
    tiles = {tile["metric"]: tile for tile in overview["tiles"]}
    assert tiles["pass_ratio"]["verdict"] == "worse" and tiles["pass_ratio"]["value"] == 0.5
    page = client.get("/").text
    assert set(re.findall(r"\d\.\d+×", page)) == {"1.44×", "1.22×"}


def test_incidents_of_another_suite_are_not_counted_among_the_models_of_this_one(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    bench_suite(store)
    models = ("Bert4", "GPT2x4", "Resnet18")
    keep(store, *(make_change(id=f"{n:016}", model=model) for n, model in enumerate(models)))
    add_results(store, "R1", MLP, started_us=START_US + 5 * DAY_US)
    checkpoint(store)
    answer = client.get("/api/v1/overview").get_json()["data"]
    assert answer["verdict"]["sentence"].startswith("1 incident open"), "not 3 of 1 models"


def test_the_key_says_which_tiles_are_of_the_newest_run(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    checked = replace(MLP, sequence=2, **ACCURACY)
    add_results(store, "R1", MLP, checked)
    failed: dict[str, Any] = {"status": "failed", "reason": "OOM", "values": {}, "repeats": {}}
    broken = replace(MLP, sequence=2, **(ACCURACY | {"accuracy": "fail_accuracy"}))
    add_results(store, "R2", replace(MLP, **failed), broken, started_us=START_US + DAY_US)
    checkpoint(store)
    key = " ".join(client.get("/").text.split())
    assert "last run without failures; of the newest run: Pass rate</span>" in key
