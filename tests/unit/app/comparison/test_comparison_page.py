"""The Compare page and its files."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import orjson
import plotly.graph_objects as go
import pytest
from flask.testing import FlaskClient
from markupsafe import escape

from compileboard.app.benchmarks.metrics import BY_NAME
from compileboard.app.cli.main import main
from compileboard.app.comparison import charts
from compileboard.app.comparison.charts import chart_changes
from compileboard.app.comparison.compare import build_comparison
from compileboard.app.comparison.table import format_share
from compileboard.app.core.charts import MAX_CHART_BYTES
from compileboard.app.core.newest import read_clock
from compileboard.app.core.store import FileStore
from tests.unit.app.benched import (
    DAY_US,
    HOSTILE,
    MLP,
    RUNS,
    add_results,
    bench_suite,
    list_suite,
    measure,
)
from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.seed import START_US, add_run
from tests.unit.app.server.test_hostile_text import _Seen

pytestmark = on_both_engines

NEW = "01JBENCH0000000000000000A4"
FORMULA = "=1+1"


def change(event: Any) -> Any:
    """Make Bert4 slower, GPT2x4 break, Resnet18 wrong and MobileNetV3 fail."""
    values = dict(event.values)
    timed = event.experiment == "performance"
    if event.model == "Bert4" and timed:
        values |= {name: values[name] * 0.8 for name in ("speedup", "speedup_low", "speedup_high")}
        values["abs_latency"] *= 1.25
        event = replace(
            event,
            repeats=event.repeats
            | {"compiled": [value * 1.25 for value in event.repeats["compiled"]]},
        )
    if event.model == "GPT2x4":
        values["graph_breaks"] = 2
    if event.model == "Resnet18" and not timed:
        event = replace(event, accuracy="fail_accuracy")
    if event.model == "MobileNetV3" and timed:
        return replace(event, status="failed", reason="OOM", values={}, repeats={})
    return replace(event, values=values)


@pytest.fixture
def suite(store: sqlite3.Connection) -> str:
    """Record three runs, and a fourth in which much changed; give the address that compares the
    last two.
    """
    bench_suite(store)
    newcomer = measure(model=FORMULA, suite="bench_models", device="cuda", hardware="NVIDIA H200")
    add_results(store, NEW, *map(change, list_suite(2)), newcomer, started_us=START_US + 4 * DAY_US)
    return f"/compare?base={RUNS[2]}&new={NEW}"


def text_of(client: FlaskClient, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, address
    return " ".join(answer.text.split())


def test_the_page_says_what_changed_and_by_what(client: FlaskClient, suite: str) -> None:
    page = text_of(client, suite)
    words = (
        "−20.0%",
        "by 95% intervals",
        'by Mann–Whitney U</span><span class="sub">p =',
        "now wrong",
        "Only in new: 1 model",
    )
    words += (
        "measured on base, failed (out of memory) in new",
        "resolved",
        "only on base 0, only in new 1, excluded 6",
    )
    assert [word for word in words if word not in page] == []
    assert page.count("<script>") == 0
    seen = _Seen(client.get(suite).text)
    assert [
        name for _tag, attributes in seen.tags for name in attributes if name.startswith("on")
    ] == []
    assert str(escape(HOSTILE)) in page


def test_the_address_chooses_metrics_models_and_order(client: FlaskClient, suite: str) -> None:
    graphs, unchanged = text_of(client, f"{suite}&metric=graphs").split('id="unchanged"')
    assert ">GPT2x4<" in graphs
    assert ">Breaky</a><span" not in graphs
    assert ">Breaky</a><span" in unchanged
    slowest = text_of(client, f"{suite}&metric=speedup&sort=speedup.asc")
    rows = re.findall(r'<td class="brief"><a href="/models/(\w+)\?', slowest)
    assert rows[0] == "Bert4"
    assert "More models" in text_of(client, f"{suite}&limit=1")
    bad = ("x=1", "metric=odd", "metric=autograd_captures", "sort=odd", "anyway=2", "limit=0")
    assert {query: client.get(f"{suite}&{query}").status_code for query in bad} == dict.fromkeys(
        bad, 400
    )
    assert client.get("/compare?new=nothing").status_code == 400
    assert client.get(f"/compare/report.doc?new={NEW}").status_code == 404


def test_another_machine_is_refused_with_a_button(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_results(store, "OLD", MLP)
    add_results(store, "NEW", measure(hardware="Xeon"), started_us=START_US + DAY_US)
    page = text_of(client, "/compare?base=OLD&new=NEW")
    assert "Not compared: these numbers would compare machines" in page
    assert "hardware AMD EPYC 9654 on base, Xeon in new" in page
    assert 'href="/compare?base=OLD&amp;new=NEW&amp;anyway=1"' in page
    anyway = text_of(client, "/compare?base=OLD&new=NEW&anyway=1")
    assert "compared anyway: Hardware: AMD EPYC 9654 on base, Xeon in new" in anyway
    assert "0%" in anyway


def test_without_a_second_run_the_page_says_what_to_do(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    assert "Measure the built-in suite twice" in text_of(client, "/compare")
    add_run(store, "ONE")
    assert "There is no earlier run of the same suite as ONE" in text_of(client, "/compare?new=ONE")
    assert client.get("/api/v1/compare?new=ONE").status_code == 404
    assert client.get("/compare/report.md?new=ONE").status_code == 404


@pytest.mark.usefixtures("suite")
def test_a_run_leads_to_its_comparison(client: FlaskClient) -> None:
    for page in (f"/runs/{NEW}", f"/runs/{NEW}/results"):
        assert f'href="/compare?new={NEW}"' in text_of(client, page)
    assert 'aria-current="page">Compare<' in text_of(client, f"/compare?new={NEW}")


def test_files_and_api_have_the_same_numbers(client: FlaskClient, suite: str) -> None:
    query = suite.partition("?")[2]
    answer = client.get(f"/api/v1/compare?{query}").json["data"]
    saved = json.loads(client.get(f"/compare/report.json?{query}").text)
    assert {key: saved[key] for key in answer} == answer
    lines = list(csv.DictReader(io.StringIO(client.get(f"/compare/report.csv?{query}").text)))
    model = next(model for model in answer["models"] if model["model"] == "Bert4")
    line = next(line for line in lines if line["model"] == "Bert4" and line["metric"] == "speedup")
    assert float(line["change"]) == model["metrics"]["speedup"]["change"]
    assert {line["outcome"] for line in lines} == {"compared", "excluded", "only_new"}
    assert [line["model"] for line in lines if line["outcome"] == "only_new"] == [f"'{FORMULA}"]
    total = next(metric for metric in answer["metrics"] if metric["metric"] == "speedup")
    for address in (suite, f"/compare/report.md?{query}", f"/compare/report.html?{query}"):
        assert format_share(total["change"]) in text_of(client, address), address


def test_reports_are_whole_and_keep_other_peoples_text_as_text(
    client: FlaskClient, suite: str
) -> None:
    query = suite.partition("?")[2]
    answer = client.get(f"/compare/report.html?{query}")
    assert "script-src 'sha256-" in answer.headers["Content-Security-Policy"]
    assert answer.headers["Content-Disposition"].startswith("attachment; filename=compare-")
    assert not re.search(r'(?:src|href)="(?:https?:)?/', answer.text.partition("<script")[0])
    assert "<b onclick" not in answer.text
    markdown = client.get(f"/compare/report.md?{query}").text
    assert "<b onclick" not in markdown
    assert "| Bert4 | Speedup | 1.756× | 1.405× | −20.0% | worse | 95% intervals |" in markdown


def test_the_command_writes_what_the_page_saves(
    client: FlaskClient, suite: str, database: Any, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    command = ["export", "--db", str(database), "--output", "-", "--format", "csv"]
    assert main([*command, "--compare", RUNS[2], NEW]) == 0
    assert (
        capsysbinary.readouterr().out
        == client.get(suite.replace("/compare?", "/compare/report.csv?")).data
    )
    assert main([*command, "--compare", "branch:none", NEW]) == 2
    assert b"--compare base: no run of branch 'none'" in capsysbinary.readouterr().err
    assert main([*command, "--compare", RUNS[2], NEW, "--no-source"]) == 2
    assert main([*command, "--run", NEW, "--anyway"]) == 2
    assert main([*command[:-1], "upstream", "--compare", RUNS[2], NEW]) == 2


@pytest.mark.usefixtures("suite")
def test_the_chart_is_small_and_one_that_plotly_takes(reader: sqlite3.Connection) -> None:
    comparison = build_comparison(FileStore(reader), read_clock(), RUNS[2], NEW).comparison
    chart = chart_changes(
        BY_NAME["speedup"], comparison.pairs, lambda pair: f"/models/{pair.model}"
    )
    assert chart is not None
    go.Figure(chart.figure)
    assert len(orjson.dumps(chart.figure)) < MAX_CHART_BYTES
    assert [row[0] for row in chart.rows][-1] == "Bert4"
    assert chart.rows[-1][3:] == ["−20.0%", "0.7764–0.8244", "worse", "95% intervals"]
    assert chart_changes(BY_NAME["cudagraph_skips"], comparison.pairs, lambda _pair: "") is None


def test_without_sides_pairs_are_proposed_and_each_can_be_compared(
    client: FlaskClient, suite: str, database: Path
) -> None:
    assert main(["baseline", "save", "good", "--run", RUNS[1], "--db", str(database)]) == 0
    page = client.get("/compare").text
    addresses = [
        unescape(address) for address in re.findall(r'href="(/compare\?base=[^"]+)"', page)
    ]
    assert [address.partition("base=")[2].partition("&")[0] for address in addresses[:2]] == [
        RUNS[-1],
        "baseline:good",
    ]
    assert {client.get(address).status_code for address in addresses} == {200}
    verdict = (
        client.get(addresses[0]).text.partition('id="verdict-title">')[2].partition("</h1>")[0]
    )
    assert (
        unescape(verdict)
        == client.get(f"/api/v1{addresses[0]}").json["data"]["summary"]["sentence"]
    )


def test_no_two_verdicts_are_drawn_alike() -> None:
    looks = [(color, str(charts._MARKERS.get(word))) for word, color in charts._COLORS.items()]
    assert len(set(looks)) == len(looks)
