"""Graph breaks across runs: numbers agree with the rows, filters narrow, one break has its page."""

from __future__ import annotations

import html
import json
import re
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from compileboard.app.reasons.graph_breaks import GRAPH_BREAKS
from compileboard.app.reasons.queries import (
    get_reason,
    get_reason_trends,
    list_affected_runs,
    list_history,
    list_reasons,
)
from compileboard.app.runs.queries import MAX_SLOTS, list_slots
from compileboard.collectors.contract.fingerprints import format_id, parse_id
from compileboard.collectors.store.connection import checkpoint
from compileboard.collectors.store.ingest.ingestor import Ingestor
from tests.unit.app.benched import BREAK_ID, MLP, add_results, list_break
from tests.unit.app.clickhouse.published import OpenClient, OpenEngine, on_both_engines
from tests.unit.app.seed import START_US, add_distinct_break, add_function, add_run, insert

pytestmark = on_both_engines

ALL = GRAPH_BREAKS.read_filter({})


def _listed(client: FlaskClient, query: str = "") -> list[int]:
    answer = client.get(f"/graph_breaks?{query}")
    assert answer.status_code == 200
    return [
        int(number)
        for number in re.findall(r'<td class="text"><a href="/graph_breaks/(\d+)"', answer.text)
    ]


def test_distinct_breaks_agree_with_their_events(
    open_engine: OpenEngine, recorded_reader: sqlite3.Connection
) -> None:
    page = list_reasons(open_engine(recorded_reader), GRAPH_BREAKS, ALL, limit=1000)
    rows = recorded_reader.execute(
        "select distinct_id, count(*), count(distinct run_id) from graph_breaks group by "
        "distinct_id"
    )
    assert {row.id: (row.break_count, row.run_count) for row in page.rows} == {
        format_id(key): (n, runs) for key, n, runs in rows
    }


def test_the_summary_is_the_sum_of_the_list(
    open_engine: OpenEngine, recorded_reader: sqlite3.Connection
) -> None:
    page = list_reasons(open_engine(recorded_reader), GRAPH_BREAKS, ALL, limit=1000)
    slots = list_slots(open_engine(recorded_reader), ALL.runs)
    trends = get_reason_trends(open_engine(recorded_reader), GRAPH_BREAKS, ALL)
    summary, cells = trends.summary, trends.grid
    total = recorded_reader.execute(
        "select count(*), count(distinct run_id) from graph_breaks"
    ).fetchone()
    assert (summary.break_count, summary.run_count) == tuple(total)
    assert summary.distinct_count == len(page.rows)
    assert summary.compile_us == sum(row.compile_us for row in page.rows)
    runs = [slot.run_count for slot in slots]
    drawn = sum(value * count for line in cells.lines.values() for value, count in zip(line, runs))
    assert drawn == pytest.approx(summary.break_count)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("order", GRAPH_BREAKS.orders)
@pytest.mark.parametrize("way", ["", ".asc"])
def test_pages_visit_every_break_once_in_order(
    open_engine: OpenEngine, recorded_reader: sqlite3.Connection, order: str, way: str
) -> None:
    whole = list_reasons(
        open_engine(recorded_reader), GRAPH_BREAKS, ALL, sort=order + way, limit=1000
    ).rows
    keys = [getattr(graph_break, GRAPH_BREAKS.orders[order]) for graph_break in whole]
    assert keys == sorted(keys, reverse=not way)
    cursor, seen = None, []
    while True:
        page = list_reasons(
            open_engine(recorded_reader),
            GRAPH_BREAKS,
            ALL,
            sort=order + way,
            cursor=cursor,
            limit=25,
        )
        seen += [row.id for row in page.rows]
        cursor = page.next
        if cursor is None:
            break
    assert seen == [graph_break.id for graph_break in whole]


@pytest.fixture
def seeded(store: sqlite3.Connection) -> tuple[int, int]:
    """Add two breaks: `print` in both runs, `100%_sure` in the newer one alone."""
    function_id = add_function(store, "Model.forward", "model.py")
    first = add_distinct_break(
        store, "print", function_id, gb_id="GB0059", gb_type="Builtin", source_line="print(x)"
    )
    second = add_distinct_break(store, "100%_sure", None)
    for number, suite in enumerate(("a", "b")):
        add_run(store, f"R{number}", suite=suite, started_us=START_US + number)
        insert(
            store,
            "run_breaks",
            run_id=f"R{number}",
            distinct_id=first,
            break_count=3,
            compile_us=1000,
        )
    insert(store, "run_breaks", run_id="R1", distinct_id=second, break_count=1, compile_us=10)
    return first, second


@pytest.mark.parametrize(
    ("query", "which"),
    [
        ("", (0, 1)),
        ("q=PRINT(", (0,)),
        ("q=100%25_", (1,)),
        ("q=_", (1,)),
        ("gb=gb0059", (0,)),
        ("kind=Builtin", (0,)),
        ("function=model.py:Model", (0,)),
        ("suite=a", (0,)),
        ("suite=b&sort=breaks.asc", (1, 0)),
        ("suite=c", ()),
        ("q=none", ()),
    ],
)
def test_each_filter_lets_its_breaks_through(
    client: FlaskClient, seeded: tuple[int, int], query: str, which: tuple[int, ...]
) -> None:
    assert _listed(client, query) == [seeded[number] for number in which]


def test_a_filter_of_runs_counts_in_those_runs_alone(
    open_engine: OpenEngine, reader: sqlite3.Connection, seeded: tuple[int, int]
) -> None:
    for suite, count in (("a", 3), ("b", 3), (None, 6)):
        selection = GRAPH_BREAKS.read_filter({"suite": suite} if suite else {})
        reasons = list_reasons(open_engine(reader), GRAPH_BREAKS, selection).rows
        assert {graph_break.id: graph_break.break_count for graph_break in reasons}[
            format_id(seeded[0])
        ] == count


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("sort=x", "sort: 'x' is not one of breaks"),
        ("cursor=x", "cursor: "),
        ("state=x", "state: 'x'"),
        ("x=y", "x: there is no such filter"),
        (f"gb={'x' * 201}", "gb: must be at most 200"),
    ],
)
def test_a_bad_filter_is_one_sentence(client: FlaskClient, query: str, sentence: str) -> None:
    answer = client.get(f"/graph_breaks?{query}")
    assert answer.status_code == 400
    assert sentence in html.unescape(answer.text)


def test_one_break_has_its_runs_history_and_events(
    open_engine: OpenEngine, recorded_client: FlaskClient, recorded_reader: sqlite3.Connection
) -> None:
    for row in list_reasons(open_engine(recorded_reader), GRAPH_BREAKS, ALL, limit=5).rows:
        reason = get_reason(open_engine(recorded_reader), GRAPH_BREAKS, parse_id(row.id))
        assert reason == row
        runs = list_affected_runs(
            open_engine(recorded_reader), GRAPH_BREAKS, parse_id(row.id), limit=500
        ).rows
        assert sum(run.count for run in runs) == row.break_count
        text = recorded_client.get(f"/graph_breaks/{row.id}").text
        assert all(f"/runs/{run.id}" in text for run in runs)
        assert 'id="fix-title">Fix</h2>' in text and "Full message from torch" in text


def test_a_trend_is_of_one_program(client: FlaskClient, store: sqlite3.Connection) -> None:
    runs = [("train.py", None), ("serve.py", None), ("nightly", "timm"), ("train.py", None)]
    breaks = {run: add_distinct_break(store, run[0]) for run in dict.fromkeys(runs)}
    for day, (name, suite) in enumerate(runs):
        own = {"name": name, "suite": suite, "totals": {"graph_break_count": 1}}
        add_run(store, f"R{day}", started_us=START_US + day, **own)
        counts = {"distinct_id": breaks[name, suite], "break_count": 1, "compile_us": 1}
        insert(store, "run_breaks", run_id=f"R{day}", **counts)
    newest = client.get("/graph_breaks").text
    assert "Per run of train.py" in newest and newest.count("<polyline") == 1
    assert "program=serve.py#trend" in newest and "program=timm#trend" in newest
    one = client.get("/graph_breaks?program=timm&sort=runs").text
    assert "Per run of timm" in one and one.count("<polyline") == 1
    assert "Per run of" not in client.get("/graph_breaks?name=train.py").text


@pytest.mark.parametrize("query", [{}, {"kind": "Loop"}, {"state": "finished"}])
def test_a_kind_has_the_id_of_its_first_break_that_was_seen(
    open_engine: OpenEngine, store: sqlite3.Connection, query: dict[str, str]
) -> None:
    for number in (1, 5, 3):
        gb_id = f"GB000{number}"
        add_distinct_break(store, gb_id, gb_type="Loop", gb_id=gb_id, id=number)
        name = "other" if number == 1 else "train"
        add_run(store, f"R{number}", name=name, started_us=START_US - number)
        counts = {"distinct_id": number, "break_count": 1, "compile_us": 1}
        insert(store, "run_breaks", run_id=f"R{number}", **counts)
    selected = GRAPH_BREAKS.read_filter({"name": "train", **query})
    (kind,) = get_reason_trends(open_engine(store), GRAPH_BREAKS, selected).grid.kinds
    assert (kind.gb_id, kind.distinct_count) == ("GB0003", 2)


def test_runs_of_a_program_without_breaks_are_not_on_the_axis(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    distinct = add_distinct_break(store, "train")
    for day, (name, count) in enumerate([("train.py", 1), ("serve.py", 0), ("train.py", 1)]):
        own = {"name": name, "totals": {"graph_break_count": count}}
        add_run(store, f"R{day}", started_us=START_US + day, **own)
        if count:
            counts = {"distinct_id": distinct, "break_count": 1, "compile_us": 1}
            insert(store, "run_breaks", run_id=f"R{day}", **counts)
    page = client.get("/graph_breaks").text
    assert "Per run of train.py" in page and "program=serve.py" not in page


def test_history_has_a_zero_where_it_did_not_come(
    open_engine: OpenEngine,
    reader: sqlite3.Connection,
    store: sqlite3.Connection,
    seeded: tuple[int, int],
) -> None:
    add_run(store, "R2", suite="b", started_us=START_US + 2)
    history = list_history(open_engine(reader), GRAPH_BREAKS, seeded[1])
    assert [(point.run_id, point.count) for point in history] == [("R1", 1), ("R2", 0)]


def test_a_break_whose_runs_are_gone_is_not_found(
    client: FlaskClient, seeded: tuple[int, int]
) -> None:
    assert client.get(f"/graph_breaks/{format_id(seeded[1])}").status_code == 200
    assert client.post("/runs/R1/delete").status_code == 303
    answer = client.get(f"/graph_breaks/{format_id(seeded[1])}")
    assert answer.status_code == 404
    assert "its runs may have been deleted" in answer.text


def test_a_breaks_history_has_the_runs_without_a_suite_that_do_not_have_it(
    open_engine: OpenEngine, store: sqlite3.Connection
) -> None:
    distinct = add_distinct_break(store, "print")
    for day, (name, suite, count) in enumerate(
        [("a", None, 2), ("a", None, 0), ("b", None, 0), ("a", "nightly", 0)]
    ):
        add_run(store, f"R{day}", name=name, suite=suite, started_us=START_US + day)
        if count:
            insert(
                store,
                "run_breaks",
                run_id=f"R{day}",
                distinct_id=distinct,
                break_count=count,
                compile_us=1,
            )
    history = list_history(open_engine(store), GRAPH_BREAKS, distinct)
    assert [(point.run_id, point.count) for point in history] == [("R0", 2), ("R1", 0)], (
        "the same name and no suite, no other"
    )


def test_beyond_48_runs_a_place_of_a_trend_is_the_mean_of_its_runs(
    open_engine: OpenEngine, store: sqlite3.Connection
) -> None:
    distinct = add_distinct_break(store, "print")
    for number in range(2 * MAX_SLOTS):
        add_run(store, f"R{number:03}", started_us=START_US + number)
        if number < 3:  # 4 + 4 in the first two runs, 4 + 0 in the next two
            insert(
                store,
                "run_breaks",
                run_id=f"R{number:03}",
                distinct_id=distinct,
                break_count=4,
                compile_us=1,
            )
    slots = list_slots(open_engine(store), ALL.runs)
    assert [slot.run_count for slot in slots] == [2] * MAX_SLOTS
    cells = get_reason_trends(open_engine(store), GRAPH_BREAKS, ALL).grid
    assert cells.line(format_id(distinct)) == [4.0, 2.0] + [0.0] * (MAX_SLOTS - 2)
    assert cells.kinds[0].trend == cells.line(format_id(distinct))


def test_a_break_of_the_benchmark_harness_is_not_shown_as_the_users(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    step = "compileboard/collectors/bench/steps.py"
    add_results(store, "R1", replace(MLP, mode="training"))
    events = [replace(event, file=step) for event in list_break("R1/mlp-performance", START_US)[:3]]
    Ingestor(store).ingest("R1", events, now_us=START_US)
    checkpoint(store)
    label = "in the benchmark harness"
    for page in ("/graph_breaks", f"/graph_breaks/{BREAK_ID}", "/runs/R1", "/runs/R1?tab=breaks"):
        assert label in client.get(page).text, page
    for address in ("graph_breaks", "runs/R1/graph_breaks", "runs/R1/distinct_graph_breaks"):
        rows = client.get(f"/api/v1/{address}").get_json()["data"]
        assert rows and all(row["is_in_harness"] for row in rows), address
    (cause,) = client.get("/api/v1/runs/R1/causes").get_json()["data"]
    assert (cause["is_expected"], cause["saved_us"]) == (True, None)


def test_no_page_shows_the_backticks_of_torchs_words(
    recorded_client: FlaskClient, recorded_reader: sqlite3.Connection
) -> None:
    query = "select run_id from graph_breaks order by id limit 20"
    found = recorded_reader.execute(query).fetchall()
    paths = {"/graph_breaks", *(f"/runs/{row['run_id']}?tab=breaks" for row in found)}
    for path in paths:
        text = re.sub(r"(?s)<script.*?</script>", "", recorded_client.get(path).text)
        assert "`" not in re.sub(r"<[^>]*>", "", text), path


def test_the_list_links_each_line_of_the_run_that_last_had_it(
    store: sqlite3.Connection, open_client: OpenClient
) -> None:
    git = {"remote": "git@github.com:a/b.git", "root": "/w/b", "tracked": {"": ["model.py"]}}
    facts = json.dumps({"git": git})
    break_id = add_distinct_break(store, "print", add_function(store), line=7)
    for number, commit in enumerate(("a" * 40, "b" * 40)):
        start = {"started_us": START_US + number, "git_commit": commit, "facts": facts}
        add_run(store, f"R{number}", totals={"graph_break_count": 1}, **start)
        insert(store, "run_breaks", run_id=f"R{number}", distinct_id=break_id, break_count=1)
    store.commit()
    path = Path(store.execute("pragma database_list").fetchone()["file"])
    page = open_client(path).get("/graph_breaks").text
    assert f'href="https://github.com/a/b/blob/{"b" * 40}/model.py#L7"' in page
    assert "a" * 40 not in page
