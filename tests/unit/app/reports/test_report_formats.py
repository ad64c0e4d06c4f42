"""Each format of a recorded run: complete, cut, with and without source, on disk, over HTTP."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3

import pytest
from flask.testing import FlaskClient

from compileboard.app.reports import FORMATS
from compileboard.app.reports.csv_report import dump, format_cell
from compileboard.app.reports.markdown import code, prose
from compileboard.collectors.contract.events import Compiled
from tests.unit.app.recorded import RUN, list_events, record_run

SECRET = "print('"  # begins the recorded source line


@pytest.fixture(autouse=True)
def run(store: sqlite3.Connection) -> None:
    record_run(store)


def _get(client: FlaskClient, rest: str) -> str:
    answer = client.get(f"/runs/{RUN}/report.{rest}")
    assert answer.status_code == 200
    return answer.data.decode()


@pytest.mark.parametrize("format", FORMATS)
def test_a_report_is_saved_under_the_runs_name(client: FlaskClient, format: str) -> None:
    answer = client.get(f"/runs/{RUN}/report.{format}")
    disposition = answer.headers["Content-Disposition"]
    assert disposition.startswith("attachment; filename=train-") and disposition.endswith(
        f".{format}"
    )
    assert answer.content_type == FORMATS[format]


def test_html_is_one_file_that_asks_nobody(client: FlaskClient) -> None:
    answer = client.get(f"/runs/{RUN}/report.html")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', answer.text)
    assert policy is not None
    meta = policy[1].replace("&#39;", "'")
    assert answer.headers["Content-Security-Policy"] == f"{meta}; frame-ancestors 'none'"
    assert len(re.findall("sha256-", meta)) == answer.text.count("<script") == 1
    assert re.findall(r"<(?:link|script|img)[^>]*(?:href|src)=\"(?!data:)", answer.text) == []


def test_html_without_compiles_has_no_bars(client: FlaskClient, store: sqlite3.Connection) -> None:
    store.execute("delete from compiles")
    page = _get(client, "html")
    assert 'class="bars"' not in page and "Nothing was compiled." in page


def test_html_has_every_part(client: FlaskClient) -> None:
    page = _get(client, "html")
    for text in (
        "Fix this first",
        "Mark dimension 0 of x",
        "GB0059",
        "dynamo.recompile_limit",
        "disk full",
        "no tap",
    ):
        assert text in page
    assert "2 records were lost while recording" in page


def test_json_has_what_was_recorded(client: FlaskClient) -> None:
    report = json.loads(_get(client, "json"))
    assert (report["schema"], report["version"], report["source_lines"]) == (
        "compileboard.report",
        1,
        True,
    )
    told = {event.sequence: event for event in list_events() if isinstance(event, Compiled)}
    assert {compilation["sequence"] for compilation in report["compilations"]} == set(told)
    for row in report["compilations"]:
        event = told[row["sequence"]]
        assert (row["kind"], row["duration_us"], row["function"]) == (
            event.record_kind,
            event.duration_us,
            event.function,
        )
        assert {name: row[name] for name in event.metrics} == event.metrics, (
            "torch's own, under its own names"
        )
    parts = (
        "compiles",
        "graph_breaks",
        "recompiles",
        "failures",
        "cache_lookups",
        "cudagraph_skips",
        "processes",
    )
    assert [len(report[part]) for part in parts] == [4, 1, 2, 1, 2, 1, 1]


def test_csv_has_a_row_a_record_and_keeps_newlines(client: FlaskClient) -> None:
    rows = list(csv.DictReader(io.StringIO(_get(client, "csv"), newline="")))
    assert [row["kind"] for row in rows].count("forward") == 4
    assert rows[0]["guard_count"] == "12"
    assert ["Builtin\nall of it"] in [
        json.loads(row["restart_reasons"]) for row in rows if row["restart_reasons"]
    ]
    recompiles = list(csv.DictReader(io.StringIO(_get(client, "csv?table=recompiles"), newline="")))
    assert [(row["guard_category"], row["guard_count"]) for row in recompiles] == [
        ("tensor_size", "1"),
        ("tensor_size", "2"),
    ]


@pytest.mark.parametrize("format", ["html", "md", "json", "csv?table=graph_breaks"])
def test_source_lines_are_left_out_on_request(client: FlaskClient, format: str) -> None:
    shown, mark = _get(client, format), "&" if "?" in format else "?"
    hidden = _get(client, f"{format}{mark}source=0")
    texts = [text.replace("&#39;", "'") for text in (shown, hidden)]
    assert [SECRET in text for text in texts] == [True, False]
    if format in ("html", "md"):
        assert "has lines of the program" in texts[0] and "were left out of this report" in texts[1]


def test_more_rows_than_a_page_come_whole(client: FlaskClient, store: sqlite3.Connection) -> None:
    row = dict(store.execute("select * from graph_breaks").fetchone())
    names = ", ".join(row)
    for number in range(450):
        values = row | {"id": 1000 + number, "sequence": 1000 + number}
        store.execute(
            f"insert into graph_breaks ({names}) values ({', '.join(f':{name}' for name in row)})",
            values,
        )
    assert len(json.loads(_get(client, "json"))["graph_breaks"]) == 451
    assert _get(client, "csv?table=graph_breaks").count("\r\n") == 452


@pytest.mark.parametrize(
    ("rest", "status", "sentence"),
    [
        ("xml", 404, "known are html, json, csv, md"),
        ("csv?table=x", 400, "table: "),
        ("md?source=x", 400, "source: "),
    ],
)
def test_a_report_that_is_not_there_is_refused(
    client: FlaskClient, rest: str, status: int, sentence: str
) -> None:
    answer = client.get(f"/runs/{RUN}/report.{rest}")
    assert (answer.status_code, sentence in answer.text.replace("&#39;", "'")) == (status, True)
    assert client.get(f"/runs/nope/report.{rest}").status_code in (400, 404)


def test_cells_guard_text_and_leave_numbers() -> None:
    values = ("=1", "-x", "\tx", -1, -0.5, None, True, ["a", "=b"], [], {"a": 1})
    cells = ["'=1", "'-x", "'\tx", -1, -0.5, "", "true", '["a", "=b"]', "[]", '{"a": 1}']
    assert [format_cell(value) for value in values] == cells


def test_values_that_are_hard_to_write_are_written() -> None:
    assert json.loads(dump({"big": 2**70, "half": "\ud800"})) == {"big": str(2**70), "half": "?"}


def test_markdown_words_stay_words() -> None:
    assert prose("a|b <i> @you #12") == "a\\|b &lt;i\\> @\u200byou \\#\u200b12"
    assert code("a `b` | c\nd") == "`` a `b` \\| c d ``"
    assert code(None) == "_not recorded_"


def test_markdown_tables_have_one_width(client: FlaskClient) -> None:
    lines = [line for line in _get(client, "md").splitlines() if line.startswith("| ")]
    widths = [len(re.split(r"(?<!\\)\|", line)) for line in lines]
    assert set(widths) <= {10, 7, 8, 5}
