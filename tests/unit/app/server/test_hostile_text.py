"""Other people's text reaches every page, the API and every export as text."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from html.parser import HTMLParser

import pytest
from flask.testing import FlaskClient

from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.hostile import (
    BAD,
    BREAK_ID,
    CAUSE_ID,
    FORMULA,
    REPRO_ID,
    RUN,
    record_hostile_run,
)

TABS = (
    "",
    "compiles",
    "breaks",
    "breaks&view=each",
    "recompiles",
    "failures",
    "caches",
    "environment",
    "processes",
)
PAGES = (
    "/",
    "/runs",
    *(f"/runs/{RUN}?tab={tab}" for tab in TABS),
    f"/runs/{RUN}/compiles/1",
    f"/runs/{RUN}/compiles/2",
    f"/runs/{RUN}/ranks?rows=all",
    f"/runs/{RUN}/stacks?library=shown",
    f"/runs/{RUN}/shapes",
    f"/runs/{RUN}/cudagraphs",
    f"/runs/{RUN}/delete",
    "/graph_breaks",
    f"/graph_breaks/{BREAK_ID}",
    "/recompiles",
    f"/recompiles/{CAUSE_ID}",
    "/cuda_graphs",
    "/repros",
    f"/runs/{RUN}/repros",
    f"/repros/{REPRO_ID}",
    f"/runs/{RUN}/report.html",
    f"/runs/{RUN}/report.html?source=0",
    "/runs/%3Cimg%20src=x%20onerror=alert(1)%3E",
    "/runs?q=%3Cimg%20src=x%20onerror=alert(1)%3E%7B%7B7*7%7D%7D",
    "/runs?sort=%3Cscript%3Ealert(1)%3C/script%3E",
)
LISTS = (
    "",
    "/compiles",
    "/compilations",
    "/graph_breaks",
    "/recompiles",
    "/failures",
    "/processes",
    "/repros",
    "/cudagraphs",
)


class _Seen(HTMLParser):
    """Collect what a browser would make of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.fixture(autouse=True)
def run(store: sqlite3.Connection) -> None:
    record_hostile_run(store)


@pytest.mark.parametrize("address", PAGES)
@on_both_engines
def test_a_page_shows_hostile_text_as_text(client: FlaskClient, address: str) -> None:
    page = client.get(address).text
    seen = _Seen(page)
    assert [tag for tag, _ in seen.tags if tag in ("img", "iframe", "object")] == []
    assert [
        name for _, attributes in seen.tags for name in attributes if name.startswith("on")
    ] == []
    links = [
        attributes[name] or ""
        for _, attributes in seen.tags
        for name in ("href", "src")
        if name in attributes
    ]
    assert [link for link in links if re.match(r"\s*(javascript|https?://evil)", link)] == []
    assert "<script>alert" not in page
    assert "script&gt;49" not in page, "a template ran what it was given"


@pytest.mark.parametrize(
    "address", [address for address in PAGES if RUN in address and "delete" not in address]
)
def test_a_page_has_no_script_but_its_own(client: FlaskClient, address: str) -> None:
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", client.get(address).text, re.S)
    inline = [
        text
        for attributes, text in scripts
        if "src=" not in attributes and "application/json" not in attributes
    ]
    assert not [text for text in inline if "alert(1)" in text]
    for attributes, text in scripts:
        if "application/json" in attributes:
            assert not set("<>&\u2028\u2029") & set(text)
            assert json.loads(text)["data"]


@pytest.mark.parametrize("part", LISTS)
def test_the_api_gives_hostile_text_back_whole(client: FlaskClient, part: str) -> None:
    answer = client.get(f"/api/v1/runs/{RUN}{part}")
    assert (answer.status_code, answer.content_type.split(";")[0]) == (200, "application/json")
    assert BAD in _texts(answer.get_json())


@pytest.mark.parametrize(
    "address", ["/api/v1/runs", "/api/v1/graph_breaks", "/api/v1/recompiles", "/api/v1/repros"]
)
@on_both_engines
def test_the_api_across_runs_gives_hostile_text_back_whole(
    client: FlaskClient, address: str
) -> None:
    assert BAD in _texts(client.get(address).get_json())


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in _texts(part)]
    if isinstance(value, list):
        return [text for part in value for text in _texts(part)]
    return [value] if isinstance(value, str) else []


def test_the_json_report_gives_hostile_text_back_whole(client: FlaskClient) -> None:
    report = json.loads(client.get(f"/runs/{RUN}/report.json").data)
    for part in (
        "run",
        "compiles",
        "compilations",
        "graph_breaks",
        "recompiles",
        "failures",
        "processes",
    ):
        assert BAD in _texts(report[part]), part


@pytest.mark.parametrize("table", ["compilations", "graph_breaks", "recompiles"])
def test_the_csv_report_runs_no_formula(client: FlaskClient, table: str) -> None:
    text = client.get(f"/runs/{RUN}/report.csv?table={table}").data.decode()
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    assert [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))] == []
    assert f"'{BAD}" in cells
    assert f"'{FORMULA}" in text.replace('""', '"')


def test_the_markdown_report_links_and_mentions_nobody(client: FlaskClient) -> None:
    text = client.get(f"/runs/{RUN}/report.md").text
    outside = re.sub(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert "<img" not in outside and "<script" not in outside
    assert "@everyone" not in outside and "http://evil" not in outside
    assert re.findall(r"(?<!\\)\]\(([^)]*)\)", outside) == []
