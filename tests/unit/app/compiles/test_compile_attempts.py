"""The Compile directory over whole recorded logs."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

from compileboard.app.compiles import run_queries as compiles
from compileboard.app.compiles.model import build_entries, split_attempts
from compileboard.app.compiles.run_queries import OUTCOMES, CompileFilter
from compileboard.app.core.labels import OUTCOMES as OUTCOME_WORDS
from compileboard.app.core.settings import Settings
from compileboard.app.runs import trace_files
from compileboard.app.runs.trace_files import CompileEvent
from compileboard.app.stacks import run_queries as stacks
from tests.unit.app.explored import explore
from tests.unit.app.seed import add_run


def _run(reader: sqlite3.Connection, name: str) -> str:
    return str(reader.execute("select id from runs where name = ?", (name,)).fetchone()[0])


def _step(
    sequence: int, kind: str = "artifact", attempt: int | None = 0, name: str = "x"
) -> CompileEvent:
    return CompileEvent(1, "p", sequence, kind, sequence, attempt, name, None, "kept", 1)


def test_every_step_is_there_once_and_in_order(explored_reader: sqlite3.Connection) -> None:
    run_id = _run(explored_reader, "zoo_graph_breaks")
    rows = compiles.list_compiles(explored_reader, run_id).rows
    steps = trace_files.list_steps(explored_reader, [row.id for row in rows])
    entries = build_entries(rows, steps)
    sql = "select count(*) from artifacts where compile_key = ? and name not like 'describe_%'"
    for row, entry in zip(rows, entries, strict=True):
        assert entry.artifact_count == explored_reader.execute(sql, (row.id,)).fetchone()[0]
        for attempt in entry.attempts:
            places = [line.first.sequence for line in attempt.lines if line.first.kind != "record"]
            assert places == sorted(places)
    first = entries[0]
    assert [attempt.number for attempt in first.attempts] == [0, 1]
    assert [line.first.kind for line in first.attempts[0].lines] == ["descriptions", "graph_break"]
    assert first.compile.outcome == "broke"


def test_a_compile_has_one_outcome_wherever_it_is_listed(
    recorded_reader: sqlite3.Connection,
) -> None:
    seen: set[str] = set()
    for run in recorded_reader.execute("select id from runs").fetchall():
        rows = compiles.list_compiles(recorded_reader, run["id"], limit=1000).rows
        outcomes = {row.id: row.outcome for row in rows}
        assert {
            row.key: row.outcome for row in stacks.list_stack_compiles(recorded_reader, run["id"])
        } == outcomes
        assert compiles.count_outcomes(recorded_reader, run["id"]) == Counter(outcomes.values())
        for outcome in OUTCOMES:
            listed = compiles.list_compiles(
                recorded_reader, run["id"], CompileFilter(outcome=outcome), limit=1000
            ).rows
            assert [row.id for row in listed] == [row.id for row in rows if row.outcome == outcome]
        seen |= set(outcomes.values())
    assert {"compiled", "broke", "empty", "failed"} <= seen


@pytest.mark.parametrize("run", ["zoo_graph_breaks", "zoo_recompiles"])
def test_the_tabs_of_a_run_name_a_compile_alike(
    explored_client: FlaskClient, explored_reader, run: str
) -> None:
    run_id = _run(explored_reader, run)
    compiled = explored_client.get(f"/api/v1/runs/{run_id}/compiles").json["data"]
    expected = Counter(OUTCOME_WORDS[row["outcome"]].word for row in compiled)
    pages = [
        explored_client.get(f"/runs/{run_id}{tab}").text
        for tab in ("?tab=compiles", "/directory", "/stacks")
    ]
    rows = re.findall(r"<tbody.*</tbody>", pages[0], re.DOTALL)[0]
    entries = re.findall(r"<h3>.*?</header>", pages[1], re.DOTALL)
    legend = re.findall(
        r'<ul class="legend" aria-label="Outcomes">(.*?)</ul>', pages[2], re.DOTALL
    )[0]
    assert Counter(re.findall(r'<span class="badge[^>]*>([^<]+)</span>', rows)) == expected
    assert (
        Counter(re.findall(r'<span class="badge[^>]*>([^<]+)</span>', "".join(entries))) == expected
    )
    assert {
        word: int(count) for word, count in re.findall(r"</span>([^<(]+) \((\d+)\)", legend)
    } == expected


def test_events_belong_to_the_attempt_of_the_artifacts_before_them() -> None:
    steps = [
        _step(1, name="describe_tensor", kind="descriptions"),
        _step(2, "graph_break", None),
        _step(3, attempt=1),
        _step(4, attempt=1),
        _step(5, "lookup", None, "fx_graph"),
        _step(6, attempt=1, name="fx_graph_cache_hit"),
        _step(6, "lookup", None, "fx_graph"),
        _step(7, "record", None, "forward"),
    ]
    first, second = split_attempts(steps)
    assert [line.first.kind for line in first.lines] == ["descriptions", "graph_break"]
    assert [(line.first.kind, len(line.steps)) for line in second.lines] == [
        ("artifact", 2),
        ("lookup", 1),
        ("artifact", 1),
        ("record", 1),
    ]


def test_page_names_outcomes_and_links_everything(
    explored_client: FlaskClient, explored_reader
) -> None:
    run_id = _run(explored_reader, "zoo_graph_breaks")
    page = explored_client.get(f"/runs/{run_id}/directory").text
    for text in (
        "broke and resumed",
        "Attempt 1",
        "9 records that describe tensors",
        "GB0059",
        "forward record",
    ):
        assert text in page, text
    for address in set(re.findall(rf'href="(/runs/{run_id}/(?:artifacts|compiles)[^"#]*)', page)):
        assert explored_client.get(address.replace("&amp;", "&")).status_code == 200, address
    recompiles = explored_client.get(
        f"/runs/{_run(explored_reader, 'zoo_recompiles')}/directory"
    ).text
    assert "changes against 0/0" in recompiles and "recompile limit" in recompiles


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("outcome=broke", 3),
        ("outcome=compiled", 0),
        ("artifact=dynamo_output_graph", 2),
        ("q=nobody", 0),
    ],
)
def test_filters_leave_what_they_say(
    explored_client: FlaskClient, explored_reader, query: str, count: int
) -> None:
    page = explored_client.get(
        f"/runs/{_run(explored_reader, 'zoo_graph_breaks')}/directory?{query}"
    ).text
    assert page.count('class="panel entry"') == count
    assert ("No compiles match" in page) == (count == 0)


def test_a_bad_outcome_is_refused_in_words(explored_client: FlaskClient, explored_reader) -> None:
    answer = explored_client.get(
        f"/runs/{_run(explored_reader, 'zoo_recompiles')}/directory?outcome=best"
    )
    assert answer.status_code == 400 and "is not one of compiled, restarted, broke" in answer.text


def test_a_run_without_payloads_says_so(tmp_path: Path, shared_app: Flask) -> None:
    explore(tmp_path / "bare.db", payloads=False)
    shared_app.config["COMPILEBOARD"] = Settings(db=str(tmp_path / "bare.db"))
    client = shared_app.test_client()
    run_id = client.get("/api/v1/runs?q=zoo_recompiles").json["data"][0]["id"]
    page = client.get(f"/runs/{run_id}/directory").text
    graph = re.search(r'href="([^"]*)" title="the FX graph that dynamo captured', page)
    assert graph and "left out" in page
    assert "--no-payloads" in client.get(graph[1]).text


def test_an_empty_run_says_what_to_do(client: FlaskClient, store: sqlite3.Connection) -> None:
    add_run(store, "EMPTY")
    assert "No compiles" in client.get("/runs/EMPTY/directory").text


def test_a_compile_leads_to_every_other_view_of_it(
    explored_client: FlaskClient, explored_reader
) -> None:
    run_id = _run(explored_reader, "zoo_recompiles")
    key = explored_reader.execute(
        "select id from compiles where run_id = ? and compile_id = '0/1'", (run_id,)
    ).fetchone()[0]
    page = explored_client.get(f"/runs/{run_id}/compiles/{key}").text
    row = page.split('aria-label="This compile elsewhere"')[1].split("</nav>")[0]
    places = dict(reversed(link) for link in re.findall(r'href="([^"]+)">([^<]+)<', row))
    assert list(places) == [
        "On the timeline",
        "Guards as a tree",
        "Changes from 0/0",
        "Compare with…",
        "Among all stacks",
    ]
    for address in places.values():
        assert explored_client.get(address.replace("&amp;", "&")).status_code == 200, address
