"""A suite over a period: the pages' numbers to the digit, whatever names people choose."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask.testing import FlaskClient

from compileboard.app.benchmarks.suite import DAY_US, Period, SuiteScreen, build_suite, read_period
from compileboard.app.benchmarks.suite import SUITE_TABLES as TABLES
from compileboard.app.benchmarks.trend_queries import TrendFilter
from compileboard.app.cli.main import main
from compileboard.app.comparison.compare import build_comparison
from compileboard.app.core.newest import RecorderClock, read_clock
from compileboard.app.core.page import FilterError
from compileboard.app.core.store import FileStore
from compileboard.app.reports import FORMATS, SUITE_TABLES
from compileboard.app.reports.comparison_report import write_comparison
from compileboard.app.reports.csv_report import format_cell
from compileboard.app.reports.html import read_plotly
from compileboard.app.reports.suite_report import name_part, write_suite
from compileboard.app.runs.shell import REPORTS
from compileboard.collectors.store.connection import checkpoint
from tests.unit.app.benched import HOSTILE, MLP, RUNS, add_results, bench_suite, measure
from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.seed import START_US
from tests.unit.app.series_changes import keep, make_change

SUITE = "bench_models"
PERIOD = Period(START_US - DAY_US, START_US + 10 * DAY_US)
ODD = 'a/b "c"\n\'=1+1'


@pytest.fixture
def suite(store: sqlite3.Connection) -> None:
    bench_suite(store)
    checkpoint(store)


def read(store: sqlite3.Connection, period: Period = PERIOD, **filters: Any) -> SuiteScreen:
    return build_suite(
        FileStore(store),
        TrendFilter(**({"suite": SUITE} | filters)),
        period,
        RecorderClock(START_US + 20 * DAY_US),
    )


def write(suite: SuiteScreen, format: str, table: str = "runs") -> str:
    return b"".join(write_suite(suite, format, START_US, table)).decode()


def export(database: Path, *more: str, format: str = "json", suite: str = SUITE) -> int:
    return main(
        ["export", "--db", str(database), "--suite", suite, "--format", format, "--output", *more]
    )


@on_both_engines
@pytest.mark.usefixtures("suite")
def test_the_numbers_are_those_of_the_overview_and_compare_to_the_digit(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    document = json.loads(write(read(store), "json"))
    overview = client.get("/api/v1/overview").json["data"]
    tiles = {tile["metric"]: tile["value"] for tile in overview["tiles"]}
    numbers = {headline.delta.metric.name: headline.new for headline in read(store).headlines}
    assert tiles == {name: value for name, value in numbers.items() if name in tiles}
    assert len(tiles) == 6
    assert document["verdict"]["sentence"] == overview["verdict"]["sentence"]
    compared = client.get(f"/api/v1/compare?base={RUNS[0]}&new={RUNS[2]}").json["data"]
    of_models = [model for model in document["models"] if model["outcome"] == "compared"]
    assert {
        (of_model["model"], of_model["metric"]): of_model["change"] for of_model in of_models
    } == {
        (model["model"], name): delta["change"]
        for model in compared["models"]
        for name, delta in model["metrics"].items()
    }
    points = client.get(f"/api/v1/trend?suite={SUITE}&metric=speedup").json["data"]["series"][0][
        "points"
    ]
    assert [run["geomean_speedup"] for run in document["runs"]] == [
        point["value"] for point in points
    ]


@pytest.mark.usefixtures("suite")
def test_base_is_the_last_run_before_the_period(store: sqlite3.Connection) -> None:
    suite = read(store, Period(START_US + DAY_US - 1, START_US + 2 * DAY_US - 1))
    assert suite.base and (suite.base.run_id, suite.new.run_id) == RUNS[:2]
    assert (suite.is_base_before, suite.run_count, len(suite.runs)) == (True, 1, 2)
    assert [commit.run.id for commit in suite.commits] == [RUNS[1]]
    assert "the last run before this period" in write(suite, "html")


@pytest.mark.usefixtures("suite")
def test_one_run_alone_has_no_change(store: sqlite3.Connection) -> None:
    suite = read(store, Period(START_US, START_US + 1))
    assert (suite.base, suite.comparison, suite.new.run_id) == (None, None, RUNS[0])
    for format in ("html", "md"):
        assert "No other run, of this period or before it" in write(suite, format)
    assert json.loads(write(suite, "json"))["models"] == []


def test_failures_are_new_resolved_or_still_there(store: sqlite3.Connection) -> None:
    failed: dict[str, Any] = {"status": "failed", "reason": "OOM", "values": {}, "repeats": {}}
    add_results(
        store, "R1", measure(model="a"), measure(model="b", **failed), measure(model="c", **failed)
    )
    second = [measure(model="a", **failed), measure(model="b"), measure(model="c", **failed)]
    add_results(store, "R2", *second, started_us=START_US + DAY_US)
    suite = read(store, suite="builtin")
    assert [(failure.row.model, failure.word) for failure in suite.failures] == [
        ("a", "new"),
        ("b", "resolved"),
        ("c", "still"),
    ]
    assert "| new | a | did not fail | failed: out of memory |" in write(suite, "md")
    for format in ("md", "html"):
        assert "2 of 3 models fail." in write(suite, format)


def test_of_several_configurations_it_says_which_and_how_to_choose(
    store: sqlite3.Connection, database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, dtype in enumerate(("float32", "bfloat16")):
        add_results(
            store, f"R{number}", measure(dtype=dtype), started_us=START_US + number * DAY_US
        )
    checkpoint(store)
    assert read(store, suite="builtin").chosen.dtype == "bfloat16"
    assert read(store, suite="builtin", dtype="float32").chosen.dtype == "float32"
    output = str(tmp_path / "out.html")
    assert (
        export(
            database,
            output,
            "--since",
            "2026-11-01",
            "--until",
            "2026-11-30",
            suite="builtin",
            format="html",
        )
        == 0
    )
    assert (
        "measured in 1 other configuration" in (error := capsys.readouterr().err)
        and "name the dtype to choose another" in error
    )
    assert "measured in 1 other configuration" in Path(output).read_text()


@pytest.mark.usefixtures("suite")
@pytest.mark.parametrize(
    ("expected", "period", "sentence"),
    [
        ({"suite": "odd"}, PERIOD, "there is no suite 'odd'.*known: 'bench_models'"),
        ({"mode": "training"}, PERIOD, "never measured like this; it was as inference · float32"),
        (
            {},
            Period(0, DAY_US),
            "no run from 1970-01-01 to 1970-01-01 .UTC.; its runs are of 2026-11-18 to 2026-11-20",
        ),
        ({"branch": "odd"}, PERIOD, "no run of suite 'bench_models' is on branch 'odd'"),
    ],
)
def test_what_there_is_none_of_is_said(
    store: sqlite3.Connection, expected: dict[str, Any], period: Period, sentence: str
) -> None:
    with pytest.raises(FilterError, match=sentence):
        read(store, period, **expected)


@on_both_engines
@pytest.mark.parametrize("format", FORMATS)
def test_a_suite_may_have_any_name(
    store: sqlite3.Connection, database: Path, tmp_path: Path, client: FlaskClient, format: str
) -> None:
    add_results(store, "R1", measure(suite=ODD, model=HOSTILE))
    checkpoint(store)
    assert export(database, str(tmp_path / "out"), "--last", "999w", suite=ODD, format=format) == 0
    text = (tmp_path / "out").read_bytes()
    assert text and b"<b onclick" not in text
    query = {"suite": ODD, "since": "2026-11-01", "until": "2026-12-31"}
    answer = client.get(f"/trends/report.{format}", query_string=query)
    assert (answer.status_code, answer.content_type) == (200, FORMATS[format])
    assert f"filename={name_part(ODD)}-2026-11-01-2026-12-31" in answer.headers[
        "Content-Disposition"
    ].replace('"', "")


def test_names_of_files_never_fall_together() -> None:
    assert name_part("nightly_1.0") == "nightly_1.0"
    assert len({name_part(name) for name in ("a/b", "a b", "a-b", "..", "/", "")}) == 6
    assert all(
        "/" not in name_part(name) and not name_part(name).startswith(".")
        for name in ("../x", "..", "/etc")
    )


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"])
def test_no_cell_of_any_table_is_a_formula(store: sqlite3.Connection, sign: str) -> None:
    bad = f"{sign}cmd|' /C calc'!A1"
    for number in range(2):
        broken = measure(
            suite=bad, model=bad, mode=bad, status="failed", reason=bad, values={}, repeats={}
        )
        add_results(
            store,
            f"R{number}",
            broken,
            measure(suite=bad, mode=bad),
            started_us=START_US + number * DAY_US,
        )
        store.execute(
            "update runs set name = ?, git_subject = ?, torch_version = ?",
            (bad, bad, f"{bad}{number}"),
        )
    suite = read(store, suite=bad)
    for table in SUITE_TABLES:
        cells = [
            other_cell
            for row in csv.reader(io.StringIO(write(suite, "csv", table), newline=""))
            for other_cell in row
        ]
        assert [
            other_cell
            for other_cell in cells
            if other_cell.startswith(sign) and not other_cell.lstrip("-").replace(".", "").isdigit()
        ] == []
    assert format_cell(bad) == f"'{bad}" and format_cell(-1.5) == -1.5


def test_the_tables_are_those_that_the_command_knows() -> None:
    assert (*TABLES,) == SUITE_TABLES
    assert SUITE_TABLES[0] == "runs"


@pytest.mark.parametrize(
    ("given", "period"),
    [
        (("2026-10-01", "2026-10-31", None), (20727, 20758)),
        (("7d", None, None), (20781, 20788)),
        ((None, None, "2w"), (20774, 20788)),
        ((None, "2026-10-31T00:00Z", "24h"), (20756, 20757)),
    ],
)
def test_periods_are_read_as_people_write_them(given: Any, period: tuple[int, int]) -> None:
    assert read_period(*given, now_us=20788 * DAY_US) == Period(*(day * DAY_US for day in period))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("yesterday", None, None), "since: 'yesterday' is not a time; expected a day as"),
        (("2026-10-01", None, "3d"), "both set the start of the period"),
        (("2026-10-02", "2026-10-01", None), "not before its end"),
        ((None, None, "0d"), "last: '0d' is not a duration"),
        ((None, "2026-02-30", None), "until: '2026-02-30' is not a time"),
    ],
)
def test_a_period_that_is_none_is_refused_in_words(given: Any, sentence: str) -> None:
    with pytest.raises(FilterError, match=sentence):
        read_period(*given, now_us=START_US)


@pytest.mark.usefixtures("suite")
def test_incidents_of_the_period_are_in_it(store: sqlite3.Connection) -> None:
    series = {
        "suite": SUITE,
        "model": HOSTILE,
        "mode": MLP.mode,
        "dtype": MLP.dtype,
        "hardware": "NVIDIA H200",
    }
    for number, first_us in enumerate((START_US + DAY_US, START_US - 9 * DAY_US)):
        keep(store, make_change(id=f"F{number}", branch=f"b{number}", first_us=first_us, **series))
    suite = read(store)
    assert (
        [incident.id for incident in suite.incidents],
        [change.id for change in suite.changes],
    ) == (["F0"], ["F0"])
    assert "speedup down 11%" in write(suite, "html") and "speedup down 11%" in write(suite, "md")
    assert "speedup down 11%" in write(suite, "csv", "incidents")
    assert "speedup 0.65× → 0.578×" in write(suite, "csv", "changes")


@pytest.mark.usefixtures("suite")
@on_both_engines
def test_the_trends_page_offers_the_report_of_what_it_draws(client: FlaskClient) -> None:
    page = client.get(f"/trends?suite={SUITE}&last=2&branch=main").text
    addresses = [
        html.unescape(match) for match in re.findall(r'href="(/trends/report[^"]*)"', page)
    ]
    assert [urlsplit(address).path for address in addresses] == [
        f"/trends/report.{extension}" for extension, _label in REPORTS
    ]
    as_json = next(address for address in addresses if "report.json" in address)
    asked = parse_qs(urlsplit(as_json).query)
    days = {"since": ["2026-11-19"], "until": ["2026-11-20"], "suite": [SUITE], "branch": ["main"]}
    assert {name: asked[name] for name in days} == days
    assert client.get(as_json).json["run_count"] == 2
    assert "/trends/report" not in client.get("/trends?category=tensor_size").text


def test_the_largest_reports_stay_below_two_megabytes_beside_the_library(
    store: sqlite3.Connection,
) -> None:
    models = [measure(model=f"model_{number:04}_of_a_name_that_is_long") for number in range(700)]
    numbers = dict(MLP.values)
    add_results(store, "R0", *models[:600])
    slower = {
        **numbers,
        "speedup": 1.0,
        "speedup_low": 0.99,
        "speedup_high": 1.01,
        "abs_latency": 4.0,
    }
    add_results(
        store,
        "R1",
        *(replace(model, values=slower) for model in models[50:]),
        started_us=START_US + DAY_US,
    )
    library = read_plotly()
    compared = build_comparison(FileStore(store), read_clock(), "R0", "R1")
    whole = b"".join(write_comparison(compared, "html", START_US))
    for body in (whole, write(read(store, suite="builtin"), "html").encode()):
        assert body.count(library) == 1
        assert len(body) - len(library) < 2_000_000
        assert b"of 550; " in body
