"""Benchmark results in the reports and in `export`."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from dataclasses import replace

import pytest
from flask.testing import FlaskClient

from tests.unit.app.benched import HOSTILE, MLP, RUNS, add_results, bench_suite, measure
from tests.unit.app.benchmarks.exported import list_exported
from tests.unit.app.server.test_hostile_text import _Seen


@pytest.fixture(autouse=True)
def suite(store: sqlite3.Connection) -> None:
    bench_suite(store)


def get(client: FlaskClient, rest: str) -> str:
    answer = client.get(f"/runs/{RUNS[2]}/report.{rest}")
    assert answer.status_code == 200
    return answer.data.decode()


def test_html_has_the_suite_what_failed_first_with_its_traceback(client: FlaskClient) -> None:
    page = get(client, "html")
    assert page.index("Hungry") < page.index("Breaky") < page.index("Bert4")
    words = (
        "failed: out of memory",
        "no clear difference",
        "Tried to allocate 96.00 GiB.",
        "PyTorch HUD",
        "1.1152×",
    )
    assert [word for word in words if word not in page] == []
    assert [tag for tag, attributes in _Seen(page).tags if "onclick" in attributes] == []
    assert HOSTILE not in page


def test_json_has_the_rows_and_what_each_experiment_said(client: FlaskClient) -> None:
    report = json.loads(get(client, "json"))
    assert len(report["results"]) == 11
    breaky = next(
        measurement
        for measurement in report["measurements"]
        if measurement["model"] == "Breaky" and measurement["experiment"] == "performance"
    )
    assert len(breaky["repeats"]["eager"]) == 50
    assert breaky["values"] == {"pct_ops": 98.5}
    hungry = next(
        measurement for measurement in report["measurements"] if measurement["model"] == "Hungry"
    )
    assert (hungry["status"], hungry["speedup"]) == ("failed", None)
    assert "96.00 GiB" in hungry["traceback"]


def test_csv_has_a_row_a_model_and_nothing_where_nothing_was_measured(client: FlaskClient) -> None:
    rows = {
        row["model"]: row
        for row in csv.DictReader(io.StringIO(get(client, "csv?table=results"), newline=""))
    }
    assert len(rows) == 11
    assert (rows["Hungry"]["reason"], rows["Hungry"]["speedup"], rows["Bert4"]["graph_breaks"]) == (
        "OOM",
        "",
        "0",
    )


def test_markdown_has_the_suite_in_words(client: FlaskClient) -> None:
    text = get(client, "md")
    assert "| PyTorch HUD | 45.5%, 5/11 | 1.115× |" in text
    assert (
        "| Breaky | measured, slower; accuracy: pass | 0.587× | 0.578–0.596, slower | 2.47 s | "
        "4 | 1 | 8 |"
    ) in text
    assert "<b onclick" not in text


def test_a_pipe_in_the_name_of_a_model_ends_no_cell(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_results(store, "R9", replace(MLP, model="a|b"))
    text = client.get("/runs/R9/report.md").text
    assert "\n| a\\|b |" in text and "\n| a|b |" not in text


def test_reports_and_page_sum_up_the_same_configurations(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_results(
        store,
        RUNS[2][:-1] + "Z",
        measure(values={"speedup": 2.0}),
        measure(mode="training", task="t"),
    )
    path = f"/runs/{RUNS[2][:-1]}Z"
    page, html, markdown = (
        client.get(path + rest).text
        for rest in ("/results?view=numbers", "/report.html", "/report.md")
    )
    summaries = [
        re.findall(r'data-label="Geomean speedup">([^<]+)<', text) for text in (page, html)
    ]
    assert summaries[0] == summaries[1] != []
    headings = [re.findall("builtin: [a-z]+ · float32", text) for text in (page, html, markdown)]
    assert all(
        {"builtin: training · float32", "builtin: inference · float32"} == set(words)
        for words in headings
    )
    assert f"| {summaries[0][0][:5]}" in markdown


def test_reports_have_exports_in_the_matrix_and_their_own_table_alone(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    run = RUNS[2][:-1] + "Y"
    add_results(store, run, *list_exported())
    html, markdown = (client.get(f"/runs/{run}/report.{ending}").text for ending in ("html", "md"))
    assert "AOTInductor package" in html and "AOTInductor package" in markdown
    assert "· aot_inductor</h" not in html and not re.search("#### .*aot_inductor", markdown)
    assert (
        len(re.findall("#### builtin: .*inductor", markdown)) >= 1
    )  # what was timed keeps its table
