"""The CUDA graphs page, over programs of benchmarks/cuda_graphs/programs.py on an H200."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from flask.testing import FlaskClient

from compileboard.app.core.store import FileStore
from compileboard.app.cuda_graphs.model import (
    MAX_LEVELS,
    MAX_NODES,
    PathSegment,
    describe_functions,
    list_functions,
    list_reasons,
    list_trees,
)
from compileboard.app.cuda_graphs.run_queries import (
    COMPILE_GRAPHS_SQL,
    GRAPHS_SQL,
    NEWEST_REASONS_SQL,
    CudaGraph,
    list_all,
    list_graphs,
)
from compileboard.app.incidents.evidence import EvidenceCollector
from compileboard.app.incidents.groups import list_cause_keys
from compileboard.app.incidents.model import describe_cause
from compileboard.app.runs.advice import RunFacts, list_problems
from compileboard.app.runs.failures import list_runtime_failures
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.run_costs import list_recorded_again
from compileboard.collectors.store.search import index_run
from tests.tools.make_db import DATA, record_events
from tests.unit.app import recorded
from tests.unit.app.plan import assert_no_scan


def record(store: sqlite3.Connection, name: str) -> str:
    return record_events(
        Ingestor(store), DATA / "events" / f"torch2.11-cuda-graphs-{name}.jsonl.xz"
    )


def read(store: sqlite3.Connection, name: str) -> list[CudaGraph]:
    return list_all(store, record(store, name))


@pytest.fixture
def graph(store: sqlite3.Connection) -> CudaGraph:
    return next(row for row in read(store, "branches") if row.stage == "recording")


def count_nodes(segments: tuple[PathSegment, ...]) -> int:
    return sum(len(path.nodes) + count_nodes(path.branches) for path in segments)


def test_a_function_that_is_recorded_again_stands_first(store: sqlite3.Connection) -> None:
    again, first = list_functions(read(store, "another_output"))
    assert (again.first.compile_id, again.warm_up_count, len(again.recordings)) == ("1/0", 1, 5)
    assert (again.again_count, again.place_only_count) == (4, 0)
    assert (first.again_count, first.place_only_count) == (0, 4)  # five calls, one after another
    assert describe_functions([again, first]).startswith("2 functions have CUDA graphs: 10 rec")


def test_reasons_name_the_input_that_moved(store: sqlite3.Connection) -> None:
    moved, elsewhere = list_reasons(list_functions(read(store, "another_output")))
    assert (moved.status, moved.count) == ("CudagraphManagedIdxMismatch", 4)
    (name,) = moved.inputs
    assert (name.name, name.dtype, name.shape) == ("arg0_1", "torch.float32", (8, 64))
    assert name.frame is not None and "x / x.norm()" in name.frame["code"]
    assert (elsewhere.why.word, elsewhere.count) == ("Called after another graph", 4)


def test_a_reason_has_its_fix_and_a_step_of_several_calls_none(store: sqlite3.Connection) -> None:
    moved, elsewhere = list_reasons(list_functions(read(store, "another_output")))
    assert [fix.id for fix in moved.fixes] == ["passed_clone"]
    assert elsewhere.fixes == ()


def test_a_function_that_sometimes_begins_a_path_has_a_fix(store: sqlite3.Connection) -> None:
    first, second = read(store, "branches")[2:4]
    alone = replace(second, id=9, graph=7, parent_graph=None, depth=0)
    second = replace(second, status="PathNotEnded")
    (reason,) = list_reasons(list_functions([first, alone, second]))
    assert [fix.id for fix in reason.fixes] == ["kept_clone"]
    assert reason.why.word == "Called while an earlier output is in use"


def test_a_path_that_branches_is_marked_where_one_function_has_several_graphs(
    store: sqlite3.Connection,
) -> None:
    (tree,) = list_trees(read(store, "another_output"))
    (path,) = tree.segments
    assert [node.graph.graph for node in path.nodes] == [0, 1, 2, 3, 4]
    assert [node.fan_out for node in path.nodes] == [0, 0, 0, 0, 5]
    first, again, *_ = (branch.nodes[0].why for branch in path.branches)
    assert first is None and again is not None and again.word.startswith("Output of another")
    assert (tree.longest_path, tree.again_count, tree.cut_count) == (6, 4, 0)


def test_two_continuations_of_a_break_are_two_functions(store: sqlite3.Connection) -> None:
    (tree,) = list_trees(read(store, "branches"))
    (path,) = tree.segments
    assert [node.fan_out for node in path.nodes] == [0]
    assert len(path.branches) == 2


def test_a_function_that_was_only_warmed_up_has_no_time(graph: CudaGraph) -> None:
    (row,) = list_functions([replace(graph, stage="warm_up")])
    assert (row.recordings, row.recording_us, row.last) == ([], None, None)
    assert describe_functions([row]).startswith("No CUDA graph was recorded")


def test_a_wide_tree_is_cut(graph: CudaGraph) -> None:
    children = [replace(graph, graph=number, parent_graph=0) for number in range(1, 1000)]
    (tree,) = list_trees([graph, *children])
    assert count_nodes(tree.segments) == MAX_NODES
    assert tree.cut_count == 1000 - MAX_NODES
    assert tree.segments[0].is_cut


def test_a_deep_tree_is_cut(graph: CudaGraph) -> None:
    graphs = [graph]
    for number in range(1, 100, 2):  # two graphs follow each second one
        graphs += [replace(graph, graph=number + i, parent_graph=number - 1) for i in (0, 1)]
    (tree,) = list_trees(graphs)
    assert count_nodes(tree.segments) == 1 + 2 * MAX_LEVELS
    assert tree.cut_count == len(graphs) - 1 - 2 * MAX_LEVELS


@pytest.mark.parametrize("parent", [0, 7, -3])
def test_a_parent_that_is_no_graph_before_it_ends(graph: CudaGraph, parent: int) -> None:
    looped = replace(graph, graph=0, parent_graph=parent)
    assert count_nodes(list_trees([looped, looped])[0].segments) <= MAX_NODES


def test_the_page_says_what_was_recorded_and_why_again(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    page = client.get(f"/runs/{record(store, 'parameter_replaced')}/cudagraphs").text
    for text in (
        "1 function has CUDA graphs: 2 recordings, 1 of them again because no graph fitted.",
        "Stable since call 3 of compiled functions, 14.8 s after the run&#39;s start",
        "A call passed one at another address.",
        "torch.float32 [64, 64]",
        "again: Parameter, buffer or static input moved",
    ):
        assert text in page


def test_a_run_without_graphs_says_when_torch_makes_them(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    recorded.record_run(store)
    store.execute("delete from cudagraph_skips")
    store.execute("delete from cudagraphs")
    page = client.get(f"/runs/{recorded.RUN}/cudagraphs").text
    assert "reduce-overhead" in page and "only to debug lines" in page


def test_skips_stand_on_the_page_and_no_longer_among_the_caches(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    recorded.record_run(store)
    assert "mutated inputs" in client.get(f"/runs/{recorded.RUN}/cudagraphs").text
    assert "mutated inputs" not in client.get(f"/runs/{recorded.RUN}?tab=caches").text
    summary = client.get(f"/runs/{recorded.RUN}").text
    assert f'href="/runs/{recorded.RUN}/cudagraphs"' in summary


def test_the_api_has_every_reason(client: FlaskClient, store: sqlite3.Connection) -> None:
    rows: list[dict[str, Any]] = client.get(
        f"/api/v1/runs/{record(store, 'another_output')}/cudagraphs"
    ).json["data"]
    last = rows[-1]
    assert [reason["graph"] for reason in last["reasons"]] == [5, 6, 7, 8]
    assert last["reasons"][0]["meaning"].startswith("A graph reads an earlier graph's output")
    assert [row["stage"] for row in rows].count("recording") == 10


@pytest.mark.parametrize("sql", [GRAPHS_SQL, COMPILE_GRAPHS_SQL, NEWEST_REASONS_SQL])
def test_no_statement_reads_the_table_from_end_to_end(store: sqlite3.Connection, sql: str) -> None:
    values = {"run_id": record(store, "branches"), "key": 1, "after_us": 0, "after_id": 0}
    assert_no_scan(store, sql, values | {"limit": 9})


def test_pages_have_each_graph_once(store: sqlite3.Connection) -> None:
    run_id = record(store, "another_output")
    first = list_graphs(store, run_id, None, 5)
    rest = list_graphs(store, run_id, first.next, 50)
    assert [row.id for row in (*first.rows, *rest.rows)] == [
        row.id for row in list_all(store, run_id)
    ]


def test_the_summary_names_what_is_recorded_again_and_its_fix(store: sqlite3.Connection) -> None:
    run_id = read(store, "another_output") and store.execute("select id from runs").fetchone()[0]
    (group,) = list_recorded_again(store, run_id)
    (problem,) = list_problems(RunFacts(recorded_again=[group]))
    assert (problem.title, problem.number) == (
        "CUDA graph recorded again: Output of another CUDA graph moved",
        "4 times, 6.37 ms",
    )
    assert problem.advice.startswith("Clone what one compiled function returns")
    assert list_problems(RunFacts(recorded_again=[replace(group, count=2)])) == []


def test_a_graph_a_size_has_a_fix_and_partitions_have_none(store: sqlite3.Connection) -> None:
    graph = next(row for row in read(store, "branches") if row.graph == 0)
    sizes = [replace(graph, graph=n, graph_function=n, call_count=9 + n) for n in range(5)]
    (reason,) = list_reasons(list_functions(sizes))
    assert (reason.why.word, reason.count) == ("Several sizes", 5)
    assert [fix.id for fix in reason.fixes] == ["sizes_padded"]
    assert list_reasons(list_functions([replace(size, call_count=9) for size in sizes])) == []


def test_an_output_that_was_overwritten_has_its_fix(store: sqlite3.Connection) -> None:
    run_id = record(store, "output_kept")
    (problem,) = list_problems(RunFacts(raised=list_runtime_failures(store, run_id)))
    assert problem.title == "The program ended: RuntimeError"
    assert "cudagraph_mark_step_begin()" in problem.advice


@pytest.mark.parametrize("query", ["arg0_1", "x.norm", "CudagraphManagedIdxMismatch"])
def test_search_leads_to_the_reason(
    store: sqlite3.Connection, client: FlaskClient, query: str
) -> None:
    index_run(store, record(store, "another_output"))
    groups = client.get(f"/api/v1/search?q={query}&kind=rerecording").get_json()["data"]["groups"]
    (hit,) = (hit for group in groups for hit in group["hits"])
    assert hit["compile_id"] == "1/0"
    assert f'href="/cuda_graphs/{hit["ref_id"]}"' in client.get(f"/search?q={query}").text
    assert client.get(f"/cuda_graphs/{hit['ref_id']}").status_code == 200


def test_tables_have_each_recording(store: sqlite3.Connection, client: FlaskClient) -> None:
    run = record(store, "another_output")
    address = f"/runs/{run}/report.csv?table=cudagraphs"
    rows = list(csv.DictReader(io.StringIO(client.get(address).text)))
    assert len(rows) == len(list_all(store, run))
    assert sum(int(row["duration_us"] or 0) for row in rows if row["status"]) == 6366
    (newest,) = [row for row in rows if row["graph"] == "6"]
    assert json.loads(newest["reasons"])[0]["inputs"][0]["name"] == "arg0_1"
    assert "x.norm" in newest["reasons"]
    redacted = client.get(f"{address}&source=0").text
    assert "arg0_1" in redacted and "x.norm" not in redacted
    assert len(client.get(f"/runs/{run}/report.json").get_json()["cudagraphs"]) == len(rows)


def test_the_list_of_runs_has_a_column_where_a_run_has_any(
    store: sqlite3.Connection, client: FlaskClient
) -> None:
    record(store, "branches")
    assert "CUDA graphs again" not in client.get("/runs").text
    run = record(store, "another_output")
    page = client.get("/runs?sort=rerecordings").text
    assert 'data-label="CUDA graphs again">4<' in page
    assert 'zero" data-label="CUDA graphs again">0<' in page
    assert client.get("/api/v1/runs?sort=rerecordings").get_json()["data"][0]["id"] == run


def test_prometheus_has_the_newest_runs(store: sqlite3.Connection, client: FlaskClient) -> None:
    record(store, "branches")
    record(store, "another_output")
    text = client.get("/metrics").text
    lines = [line for line in text.splitlines() if "cudagraph_rerecordings{" in line]
    assert {line.partition('name="')[2].partition('"')[0]: line[-3:] for line in lines} == {
        "branches": "0.0",
        "another_output": "4.0",
    }


def test_an_incident_lists_reasons_that_came_with_it(store: sqlite3.Connection) -> None:
    before, after = record(store, "branches"), record(store, "another_output")
    change: Any = SimpleNamespace(
        subject="runs",
        metric="cudagraph_rerecording_count",
        kind="step",
        before_run_id=before,
        first_run_id=after,
    )
    causes = EvidenceCollector(FileStore(store)).gather(change)["causes"]
    (cause,) = [cause for cause in causes if cause["kind"] == "rerecording"]
    assert describe_cause(cause) == (
        "CUDA graph recorded again, new: arg0_1 float32[8, 64] in another_output.<locals>.<lambda> "
        "(0 → 4)"
    )
    assert cause["rerecording_id"] == "00bc098a5cb3ab75"
    assert list_cause_keys(SimpleNamespace(causes=[cause], environment=())) == [  # type: ignore[arg-type]
        ("cause", "00bc098a5cb3ab75")
    ]


def test_a_compile_has_its_graphs_and_leads_to_the_runs(
    store: sqlite3.Connection, client: FlaskClient
) -> None:
    run = record(store, "another_output")
    again = next(graph for graph in list_all(store, run) if graph.status)
    address = f"/runs/{run}/compiles/{again.compile_key}"
    page = client.get(address).text
    assert "Output of another CUDA graph moved" in page and "x / x.norm()" in page
    assert f'href="/runs/{run}/cudagraphs"' in page
    assert f'href="{address}"' in client.get(f"/runs/{run}/cudagraphs").text
    graphs = client.get(f"/api/v1{address}").get_json()["data"]["cudagraphs"]
    assert {graph["compile_id"] for graph in graphs} == {"1/0"}
    assert [graph["stage"] for graph in graphs].count("recording") == 5
    assert [len(graph["reasons"]) for graph in graphs] == [0, 0, 1, 1, 1, 1]


def test_a_compile_has_its_skips(store: sqlite3.Connection, client: FlaskClient) -> None:
    recorded.record_run(store)
    (key,) = store.execute("select compile_key from cudagraph_skips limit 1").fetchone()
    page = client.get(f"/runs/{recorded.RUN}/compiles/{key}").text
    assert 'id="cudagraphs"' in page and "mutated inputs" in page
