"""The API's lists over recorded runs: every row once, as many as the run's totals."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from compileboard.app.reasons import run_queries as recompiles
from compileboard.app.runs import run_queries as run_pages
from compileboard.app.server.openapi import OPERATIONS
from compileboard.collectors.store.codec import unpack
from compileboard.collectors.store.connection import BOARD, open_reader, open_writer
from compileboard.collectors.store.dashboard import save_baseline
from tests.tools.make_db import DATA
from tests.tools.make_db import main as make_db
from tests.unit.app.benched import BREAK_ID, CAUSE_ID, bench_suite
from tests.unit.app.benched import RUNS as BENCH_RUNS
from tests.unit.app.clickhouse.published import OpenClient, on_both_engines
from tests.unit.app.deleted import delete_and_audit
from tests.unit.app.explored import LOGS as WHOLE_LOGS
from tests.unit.app.explored import explore
from tests.unit.app.recorded import REASON_ID, RUN, record_run
from tests.unit.app.repros.captured import capture_repros
from tests.unit.app.series_changes import keep_one_of_each

pytestmark = on_both_engines

LOGS = ("torch2.11-cuda-hf_Bert_train", "torch2.11-cuda-zoo_recompiles", "torch2.13-breaks")
LISTS = [operation for operation in OPERATIONS if operation.is_list]
SORTS = [
    (operation.path, order)
    for operation in LISTS
    for part in operation.parameters
    if part.name == "sort"
    for order in part.schema["enum"]
]


def over_engines(calls: Iterable[tuple[str, ...]]) -> list[Any]:
    """Add the engine to calls of lists: a list of one run reads no other, so it is over a file
    alone.
    """
    engines = {"sqlite": (), "clickhouse": (pytest.mark.clickhouse,)}
    return [
        pytest.param(*call, name, marks=marks)
        for call in calls
        for name, marks in engines.items()
        if name == "sqlite"
        or not ("<run_id>" in call[0] or call[-1].endswith(".desc"))  # as without it
    ]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / BOARD
    make_db([str(path), *(str(DATA / "trace" / f"{name}.log.xz") for name in LOGS)])
    with closing(open_writer(path)) as connection:
        record_run(connection)
        bench_suite(connection)
        for name in ("first", "second", "third"):
            save_baseline(connection, name, {}, run_id=BENCH_RUNS[0])
        keep_one_of_each(connection)
        capture_repros(connection)
        delete_and_audit(connection)
        connection.executemany(
            "insert into streams values (?, 's', null, 9, 7, 2, 0, 0, '0.1.0', 5, ?, 6)",
            [(run_id, updated_us) for updated_us, run_id in enumerate(BENCH_RUNS)],
        )
    explore(path)
    return path


@pytest.fixture
def client(recorded: Path, open_client: OpenClient) -> FlaskClient:
    return open_client(recorded)


@pytest.fixture(scope="module")
def reader(recorded: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_reader(recorded)) as connection:
        yield connection


def read_all(client: FlaskClient, path: str, **query: Any) -> list[dict[str, Any]]:
    """Follow a list to its end."""
    rows: list[dict[str, Any]] = []
    cursor = None
    while True:
        answer = client.get(
            f"/api/v1{path}", query_string=query | ({"cursor": cursor} if cursor else {})
        ).json
        assert answer["ok"], answer
        rows += answer["data"]
        cursor = answer["next"]
        if cursor is None:
            return rows
        assert len(answer["data"]) == query.get("limit", 100)


@cache
def read_whole(client: FlaskClient, path: str) -> list[dict[str, Any]]:
    """Read a list in one page, once for all tests: they only read."""
    return read_all(client, path, limit=1000)


def list_paths(client: FlaskClient, path: str) -> list[str]:
    runs = [run["id"] for run in read_whole(client, "/runs")] if "<run_id>" in path else [""]
    reasons = {"<distinct_id>": BREAK_ID, "<cause_id>": CAUSE_ID, "<reason_id>": REASON_ID}
    for name, reason_id in reasons.items():
        path = path.replace(name, reason_id)
    if "<issue_id>" in path:
        path = path.replace("<issue_id>", read_whole(client, "/failures")[0]["id"])
    return [path.replace("<run_id>", run) for run in runs]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("path", "engine_name"),
    over_engines(
        (operation.path,)
        for operation in LISTS
        if operation.path not in ("/imports", "/matrix", "/views")
    ),
)  # imports are of this server, none here saved a view; a page of the matrix is a tree
def test_pages_of_any_size_have_every_row_once(client: FlaskClient, path: str) -> None:
    seen = 0
    for address in list_paths(client, path):
        whole = read_whole(client, address)
        assert read_all(client, address, limit=1) == whole
        assert read_all(client, address, limit=7) == whole
        keys = Counter(json.dumps(row, sort_keys=True) for row in whole)
        assert not keys or max(keys.values()) == 1
        seen += len(whole)
    assert seen > 0


def test_pages_of_the_matrix_have_every_model_once(client: FlaskClient) -> None:
    models = []
    for limit in (1, 7, 1000):
        answer = client.get("/api/v1/matrix", query_string={"limit": limit}).json
        pages = [answer]
        while answer["next"] is not None:
            answer = client.get(
                "/api/v1/matrix", query_string={"limit": limit, "cursor": answer["next"]}
            ).json
            pages.append(answer)
        models.append(
            [
                (suite["suite"], row["model"])
                for page in pages
                for suite in page["data"]
                for row in suite["rows"]
            ]
        )
    assert models[0] == models[1] == models[2] and len(set(models[0])) == len(models[0]) > 7


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("path", "sort", "engine_name"), over_engines(SORTS))
def test_pages_of_every_order_have_every_row_once(
    client: FlaskClient, path: str, sort: str
) -> None:
    for address in list_paths(client, path):
        whole = read_all(client, address, limit=1000, sort=sort)
        assert read_all(client, address, limit=7, sort=sort) == whole
        assert len({row["id"] for row in whole}) == len(whole) == len(read_whole(client, address))


def test_lists_are_as_long_as_the_totals_say(client: FlaskClient) -> None:
    lists = {
        "compiles": "compile",
        "compilations": "record",
        "graph_breaks": "graph_break",
        "processes": "process",
    }
    lists |= {
        "recompiles": "recompile",
        "recompile_limits": "recompile_limit",
        "cudagraph_skips": "cudagraph_skip",
    }
    runs = read_all(client, "/runs")
    assert len(runs) == len(LOGS) + 1 + len(BENCH_RUNS) + len(WHOLE_LOGS) + 2  # two ranks; repros
    for run in runs:
        for name, count in lists.items():
            assert len(read_all(client, f"/runs/{run['id']}/{name}")) == run[f"{count}_count"], (
                run["name"],
                name,
            )
        results = Counter(
            row["result"] for row in read_all(client, f"/runs/{run['id']}/cache_lookups")
        )
        assert [results[outcome] for outcome in ("hit", "miss", "bypass")] == [
            run[f"cache_{outcome}_count"] for outcome in ("hit", "miss", "bypass")
        ]


def test_sums_of_rows_are_the_totals(client: FlaskClient) -> None:
    for run in read_all(client, "/runs"):
        path = f"/runs/{run['id']}"
        records = read_all(client, f"{path}/compilations")
        assert sum(
            record["duration_us"] or 0 for record in records if record["kind"] != "runtime"
        ) == (run["compile_us"] or 0)
        assert sum(record["restart_count"] for record in records) == run["restart_count"]
        compiles = read_all(client, f"{path}/compiles")
        assert sum(compile_row["total_us"] or 0 for compile_row in compiles) == (
            run["compile_us"] or 0
        )
        assert sum(
            compile_row["total_us"] or 0
            for compile_row in compiles
            if compile_row["recompiled_from"]
        ) == (run["recompile_us"] or 0)
        raised = [
            failure
            for failure in read_all(client, f"{path}/failures")
            if failure["phase"] != "compile"
        ]
        failed = [compile_row for compile_row in compiles if compile_row["outcome"] == "failed"]
        assert len(failed) + len(raised) == run["failure_count"]
        assert (
            sum(compile_row["outcome"] == "skipped" for compile_row in compiles)
            == run["skipped_frame_count"]
        )
        distinct = read_all(client, f"{path}/distinct_graph_breaks")
        assert (
            sum(graph_break["break_count"] for graph_break in distinct) == run["graph_break_count"]
        )
        causes = read_all(client, f"{path}/recompile_causes")
        assert sum(cause["recompile_count"] for cause in causes) == run["recompile_count"]


def test_sums_over_runs_are_the_sums_of_the_runs(client: FlaskClient) -> None:
    runs = read_all(client, "/runs")
    totals = client.get("/api/v1/overview").json["data"]["totals"]
    for name in (
        "compile_count",
        "recompile_count",
        "graph_break_count",
        "failure_count",
        "compile_us",
    ):
        assert totals[name] == sum(run[name] or 0 for run in runs)
    breaks = client.get("/api/v1/graph_breaks/trends").json["data"]["summary"]
    assert breaks["break_count"] == sum(
        graph_break["break_count"] for graph_break in read_all(client, "/graph_breaks", limit=5)
    )
    assert breaks["break_count"] == totals["graph_break_count"]
    causes = client.get("/api/v1/recompiles/trends").json["data"]["summary"]
    assert causes["recompile_count"] == totals["recompile_count"]


def test_a_record_has_every_metric_under_its_own_name(
    client: FlaskClient, reader: sqlite3.Connection
) -> None:
    rows = [
        row
        for run in read_all(client, "/runs")
        for row in read_all(client, f"/runs/{run['id']}/compilations")
    ]
    checked = 0
    for row in rows:
        stored = reader.execute(
            "select body from events where process_id = :process_id and sequence = :sequence", row
        ).fetchone()
        metrics = json.loads(unpack(stored["body"]))["metrics"]
        assert {name: row[name] for name in metrics} == metrics
        checked += len(metrics)
    assert checked > 50 * len(LOGS)


PLANS = [
    run_pages.PROCESS_PAGE_SQL,
    recompiles.CAUSES_SQL,
    recompiles.LIMITS_SQL,
    run_pages.NOTES_SQL,
]


@pytest.mark.parametrize("sql", PLANS)
def test_queries_of_a_run_scan_no_table_and_sort_little(
    reader: sqlite3.Connection, sql: str
) -> None:
    values = {"run_id": RUN, "least": 0, "after_us": 0, "after_count": 0, "after_id": 0, "limit": 5}
    steps = [row["detail"] for row in reader.execute(f"explain query plan {sql}", values)]
    assert [step for step in steps if step.startswith("SCAN")] == []
