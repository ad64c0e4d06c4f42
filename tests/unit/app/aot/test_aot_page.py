"""The AOT page: the distinct findings of a run, its graphs one by one, several graphs of one
compile kept apart.
"""

from __future__ import annotations

import json
import re
import sqlite3

import pytest
from flask.testing import FlaskClient

from compileboard.app.aot.model import build_aot
from compileboard.app.aot.run_queries import list_aot_graphs
from compileboard.app.aot.wrappers import explain_graph
from tests.unit.app.hostile import MARKUP
from tests.unit.app.seed import insert
from tests.unit.app.traced import PROCESS, RUN, START_US, aot_text, record_traced_run


def _run(reader: sqlite3.Connection, name: str) -> str:
    return str(reader.execute("select id from runs where name = ?", (name,)).fetchone()[0])


@pytest.mark.parametrize("name", ["zoo_recompiles", "zoo_graph_breaks"])
def test_findings_of_a_run_are_those_of_its_graphs(
    explored_reader: sqlite3.Connection, name: str
) -> None:
    run_id = _run(explored_reader, name)
    screen = build_aot(explored_reader, run_id)
    report, graphs = screen.report, screen.graphs
    titles = {finding.title.partition(":")[0] for graph in graphs for finding in graph.findings}
    assert {finding.title for finding in report.findings} == titles != set()
    assert report.graph_count == len(graphs) > 0
    assert report.trained_count == sum(graph.trained is True for graph in graphs)


def test_a_graph_is_explained_with_torchs_own_configuration(
    explored_reader: sqlite3.Connection,
) -> None:
    run_id = _run(explored_reader, "zoo_recompiles")
    rows = list_aot_graphs(explored_reader, run_id).rows
    assert {row.summary["rng_functionalized"] for row in rows} == {None}
    for graph in build_aot(explored_reader, run_id).graphs:
        assert graph.summary["rng_functionalized"] is False
        assert not any("random" in sentence for sentence in graph.unknown)


def test_pages_have_each_graph_once(explored_reader: sqlite3.Connection) -> None:
    run_id = _run(explored_reader, "zoo_recompiles")
    seen: list[int] = []
    cursor = None
    while True:
        page = list_aot_graphs(explored_reader, run_id, cursor, 1)
        seen += [row.id for row in page.rows]
        if (cursor := page.next) is None:
            break
    assert seen == [row.id for row in list_aot_graphs(explored_reader, run_id).rows]


def test_wrappers_that_torch_wrote_are_used_for_single_graphs_only(
    store: sqlite3.Connection,
) -> None:
    record_traced_run(store)
    key = store.execute("select min(compile_key) from aot_graphs").fetchone()[0]
    store.execute("begin immediate")
    for sequence, name in ((901, "runtime_wrapper_orchestration"), (902, "dedup_wrapper")):
        store.execute(
            "insert into artifacts (run_id, process_id, sequence, compile_key, name, encoding, "
            "state, time_us) "
            "values (?, ?, ?, ?, ?, 'string', 'none', 1)",
            (RUN, "b" * 32, sequence, key, name),
        )
    store.execute("commit")
    first, other = build_aot(store, RUN).graphs
    assert "AOTDedupeWrapper" in first.wrappers
    assert "AOTDedupeWrapper" not in other.wrappers
    store.execute("begin immediate")
    store.execute("update aot_graphs set compile_key = ?", (key,))
    store.execute("commit")
    apart = build_aot(store, RUN).graphs
    assert [(report.place, report.graph_count) for report in apart] == [(1, 2), (2, 2)]
    assert not any("AOTDedupeWrapper" in report.wrappers for report in apart)


def test_page_shows_each_graph_with_cost_and_what_to_do(
    explored_client: FlaskClient, explored_reader
) -> None:
    run_id = _run(explored_reader, "zoo_recompiles")
    page = explored_client.get(f"/runs/{run_id}/aot").text
    numbers = [row.id for row in list_aot_graphs(explored_reader, run_id).rows]
    assert [int(actual) for actual in re.findall(r'<tr id="graph-(\d+)"', page)] == numbers
    assert page.count("<dt>Fix</dt>") >= len(numbers)
    linked = re.findall(r'href="([^"]+)#graph-(\d+)"', page)
    assert linked
    for address, number in linked:
        assert f'<tr id="graph-{number}"' in explored_client.get(address.replace("&amp;", "&")).text


def test_a_graph_that_writes_to_its_input_is_found(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    record_traced_run(store, MARKUP)
    page = client.get(f"/runs/{RUN}/aot").text
    assert "Written by the graph itself" in page
    assert "<img src=x" not in page
    assert "<script>alert" not in page
    data = client.get(f"/api/v1/runs/{RUN}/aot").json["data"]
    assert [
        finding["graph_count"]
        for finding in data["findings"]
        if finding["title"] == "Written by the graph itself"
    ] == [2]


def add_window(store: sqlite3.Connection, wrappers_us: list[float]) -> None:
    """Save a window whose traced steps called both compiles, the first one's backward too."""
    called = [("0/0", "forward"), ("0/1", "forward"), ("0/0", "backward")]
    graphs = [
        {
            "number": n,
            "phase": phase,
            "compile_id": compile_id,
            "input_bytes": 0,
            "shared_bytes": 0,
        }
        for n, (compile_id, phase) in enumerate(called)
    ]
    empty = {"call_us": 9.0, "entry_us": None, "guard_us": None, "kernels": []}
    kernels = {"first_kernel": None, "last_kernel": None}
    lists = ("host", "gaps", "frames", "eager_kernels", "spans")
    traced = {"step_count": 3, "step_us": 9.0} | {name: [] for name in lists}
    traced["graphs"] = [
        {"number": n, "wrapper_us": us} | empty | kernels for n, us in enumerate(wrappers_us)
    ]
    texts = {"graphs": json.dumps(graphs), "steps": "[]", "traced": json.dumps(traced)}
    keys = {"run_id": RUN, "process_id": PROCESS, "sequence": 900, "time_us": START_US + 10**9}
    insert(store, "step_windows", wanted_count=3, earlier_count=0, **keys, **texts)
    store.commit()


def test_wrappers_have_the_time_of_traced_steps(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    record_traced_run(store)
    page = client.get(f"/runs/{RUN}/aot").text
    assert "--steps 40" in page and '<td class="number" data-label="Time a call">–</td>' in page
    add_window(store, [20.0, 14.0, 10.0])
    data = client.get(f"/api/v1/runs/{RUN}/aot").json["data"]
    assert [graph["time"] for graph in data["graphs"]] == [
        {"forward_us": 20.0, "backward_us": 10.0},
        {"forward_us": 14.0, "backward_us": None},
    ]
    assert {finding["call_us"] for finding in data["findings"]} == {(30.0 + 14.0) / 2}
    page = client.get(f"/runs/{RUN}/aot").text
    assert "--steps 40" not in page and f'href="/runs/{RUN}/steps"' in page
    assert "22 µs, all wrappers of such a graph together" in page and "backward 10 µs" in page


def test_a_graph_that_is_one_of_several_has_no_time(store: sqlite3.Connection) -> None:
    record_traced_run(store)
    add_window(store, [20.0, 14.0, 10.0])
    with store:
        store.execute("update aot_graphs set compile_key = (select min(id) from compiles)")
    screen = build_aot(store, RUN)
    assert [graph.time for graph in screen.graphs] == [None, None]
    assert {finding.call_us for finding in screen.report.findings} == {None}


def test_words_of_torch_that_nobody_knows_are_shown_as_text(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    record_traced_run(store)
    summary = json.loads(store.execute("select summary from aot_graphs limit 1").fetchone()[0])
    summary["outputs"] = [{"index": 0, "output_type": MARKUP, "base_index": None}]
    store.execute("begin immediate")
    store.execute("update aot_graphs set summary = ?", (json.dumps(summary),))
    store.execute("commit")
    assert any("not known here" in wrapper_cost.what for wrapper_cost in explain_graph(summary))
    assert "<img src=x" not in client.get(f"/runs/{RUN}/aot").text


def test_a_run_without_metadata_says_where_it_comes_from(recorded_client, recorded_reader) -> None:
    run_id = recorded_reader.execute("select id from runs limit 1").fetchone()[0]
    assert "trace log" in recorded_client.get(f"/runs/{run_id}/aot").text
    assert aot_text().startswith("ViewAndMutationMeta(")
