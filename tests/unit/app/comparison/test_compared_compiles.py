"""Two compiles side by side: of one run, of two, without artifacts, and what names none."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from compileboard.app.artifacts import model
from compileboard.app.artifacts.artifact_labels import GUARDS, STATES
from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.store.connection import BOARD, open_writer
from tests.unit.app.clickhouse.published import OpenClient, on_both_engines
from tests.unit.app.explored import explore

pytestmark = on_both_engines


def _side(reader: sqlite3.Connection, compile_id: str, run: str = "zoo_recompiles") -> str:
    sql = """
select r.id, c.id
from runs as r
join compiles as c on c.run_id = r.id
where r.name = ? and c.compile_id = ?
"""
    return "{}:{}".format(*reader.execute(sql, (run, compile_id)).fetchone())


def _compare(client: FlaskClient, a: str, b: str) -> dict[str, Any]:
    answer = client.get("/api/v1/compare/compiles", query_string={"a": a, "b": b}).json
    assert answer and answer["ok"], answer
    data: dict[str, Any] = answer["data"]
    return data


def test_a_recompile_against_its_base_has_the_differences_of_each_kind(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection
) -> None:
    data = _compare(explored_client, _side(explored_reader, "0/0"), _side(explored_reader, "0/1"))
    facts = {fact["name"]: fact for fact in data["facts"]}
    assert facts["role"]["word"] == "differs" and facts["torch_version"]["word"] == "same"
    assert (facts["graph_op_count"]["a"], facts["guard_count"]["b"]) == (3, 44)
    assert facts["dynamo"]["change"] == pytest.approx(59923 / 170719 - 1)
    kinds = {kind["key"]: kind["pairs"] for kind in data["artifacts"]}
    assert [kinds[key][0]["changed_count"] for key in ("guards", "graph")] == [2, 4]
    assert len(kinds["guards"][0]["changed"]) == 2 and kinds["code"][0]["lines"]


def test_the_page_has_both_runs_the_differences_and_the_other_compiles(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection
) -> None:
    a, b = _side(explored_reader, "0/0"), _side(explored_reader, "0/0", "zoo_graph_breaks")
    page = explored_client.get(f"/compare/compiles?a={a}&b={b}").text
    for part in ('id="guards"', 'id="graph"', 'id="code"', "zoo_graph_breaks", "phases-chart"):
        assert part in page, part
    other = _side(explored_reader, "0/2").replace(":", "%3A")
    assert other in page.replace(":", "%3A"), "another compile of the function"
    b_run = b.partition(":")[0]
    links = [part.partition('"')[0] for part in page.split('href="')[1:]]
    asides = [link.replace("&amp;", "&") for link in links if f"b_run={b_run}" in link]
    assert asides and all(explored_client.get(link).status_code == 200 for link in asides)


def test_the_compile_s_page_leads_to_it(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection
) -> None:
    side = _side(explored_reader, "0/1")
    page = explored_client.get("/runs/{}/compiles/{}".format(*side.split(":"))).text
    assert f"/compare/compiles?a={side}" in page
    choices = explored_client.get(f"/compare/compiles?a={side}").text
    function_id = explored_reader.execute(
        "select function_id from compiles where id = ?", (side.partition(":")[2],)
    ).fetchone()[0]
    breaks = _side(explored_reader, "0/0", "zoo_graph_breaks").partition(":")[0]
    assert f"{breaks}:{format_id(function_id)}" in choices, "the function's compiles of another run"


@pytest.mark.parametrize("write", ["{a}", "https://box/c/runs/{run}/compiles/{key}?x=1#top"])
def test_the_same_compile_twice_is_said(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection, write: str
) -> None:
    a = _side(explored_reader, "0/0")
    run, key = a.split(":")
    query = {"a": a, "b": write.format(a=a, run=run, key=key)}
    page = explored_client.get("/compare/compiles", query_string=query).text
    assert "Both sides are the same compile." in page
    assert all(
        pair["is_same"]
        for kind in _compare(explored_client, a, a)["artifacts"]
        for pair in kind["pairs"]
    )


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("x", 400),
        ("NONE:1", 404),
        ("{run}:999999", 404),
        ("{run}:7fffffffffffffff", 404),
        ("{run}:abc", 404),
        ("{run}:xyz", 400),
    ],
)
def test_a_compile_that_there_is_not_and_a_text_of_another_form_are_refused(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection, text: str, status: int
) -> None:
    a = _side(explored_reader, "0/0")
    query = {"a": a, "b": text.format(run=a.partition(":")[0])}
    page = explored_client.get("/compare/compiles", query_string=query)
    api = explored_client.get("/api/v1/compare/compiles", query_string=query)
    assert (page.status_code, api.status_code) == (status, status)
    assert api.json and api.json["error"].startswith("b: ")
    assert api.json["error"] in page.text.replace("&#39;", "'")


def test_the_api_names_the_compile_that_is_missing(explored_client: FlaskClient) -> None:
    answer = explored_client.get("/api/v1/compare/compiles?b=x")
    assert answer.status_code == 400
    assert answer.get_json()["error"] == (
        "a: is missing; expected RUN:NUMBER or the address of a compile's page"
    )


def test_guards_under_the_names_of_two_versions_are_compared(
    tmp_path: Path, open_client: OpenClient, explored_reader: sqlite3.Connection
) -> None:
    explore(tmp_path / BOARD)
    a, b = _side(explored_reader, "0/0"), _side(explored_reader, "0/1")
    sql = "update artifacts set name = ? where name = ? and compile_id = '0/1'"
    with closing(open_writer(tmp_path / BOARD)) as store:
        store.execute(sql, (GUARDS[1], GUARDS[0]))
    pairs = _compare(open_client(tmp_path / BOARD), a, b)["artifacts"][0]["pairs"]
    assert [pair["changed_count"] for pair in pairs] == [2]


def test_an_artifact_of_one_side_alone_is_listed(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection
) -> None:
    a, limit = _side(explored_reader, "0/0"), _side(explored_reader, "0/8")
    page = explored_client.get(f"/compare/compiles?a={a}&b={limit}").text
    assert page.count("Only A · 0/0") == 3 and page.count("B · 0/8: <span") == 3
    kinds = _compare(explored_client, a, limit)["artifacts"]
    assert [(kind["pairs"], len(kind["only_a"]), kind["only_b"]) for kind in kinds] == [
        ([], 1, [])
    ] * 3


def test_artifacts_without_a_text_say_why(
    tmp_path: Path, open_client: OpenClient, explored_reader: sqlite3.Connection
) -> None:
    explore(tmp_path / BOARD)
    with closing(open_writer(tmp_path / BOARD)) as store:
        store.execute("update artifacts set state = 'left_out', payload_id = null")
    a, b = _side(explored_reader, "0/0"), _side(explored_reader, "0/1")
    page = open_client(tmp_path / BOARD).get(f"/compare/compiles?a={a}&b={b}").text
    assert page.count(STATES["left_out"].meaning) == 6


def test_long_texts_lead_to_their_own_page(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection, monkeypatch: Any
) -> None:
    monkeypatch.setattr(model, "TOGETHER_CHARS", 100)
    a, b = _side(explored_reader, "0/0"), _side(explored_reader, "0/1")
    page = explored_client.get(f"/compare/compiles?a={a}&b={b}").text
    assert "Too long to be compared here" in page and "Compare on its own page" in page


def test_compare_of_two_runs_leads_to_a_function_s_compiles(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection
) -> None:
    base, new = (
        _side(explored_reader, "0/0", run).partition(":")[0]
        for run in ("zoo_graph_breaks", "zoo_recompiles")
    )
    page = explored_client.get(f"/compare?base={base}&new={new}").text
    link = page.partition('href="/compare/compiles?')[2].partition('"')[0].replace("&amp;", "&")
    compared = explored_client.get(f"/compare/compiles?{link}").text
    assert "Both sides are the same compile" not in compared and 'id="facts"' in compared
