"""The built-in suite and a person's own models as an H200 measured them: recorded events, from
store to page.
"""

from __future__ import annotations

import lzma
import math
import sqlite3
from pathlib import Path

import pytest

from compileboard.app.benchmarks.queries import ModelFilter, list_models
from compileboard.app.benchmarks.run_queries import list_task_breaks
from compileboard.app.comparison.load import load_side
from compileboard.app.comparison.sides import find_side
from compileboard.app.core.newest import read_clock
from compileboard.app.core.store import FileStore
from compileboard.collectors.contract.events import RunStarted, load_event
from compileboard.collectors.store.connection import BOARD, open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.rollups import HUD, geomean, summarize
from tests.unit.app.clickhouse.published import OpenClient, OpenEngine, on_both_engines
from tests.unit.app.compared import now

DATA = Path(__file__).parents[3] / "data" / "bench"


@pytest.fixture(scope="module")
def h200(tmp_path_factory: pytest.TempPathFactory) -> sqlite3.Connection:
    """Ingest what `bench` recorded there, each run by itself."""
    connection = open_writer(tmp_path_factory.mktemp("h200") / BOARD)
    migrate_connection(connection)
    for path in sorted(DATA.glob("h200-*.jsonl.xz")):
        ingest_recorded(connection, path)
    return connection


def ingest_recorded(connection: sqlite3.Connection, path: Path) -> None:
    """Ingest the runs that `tests.tools.export_events` kept, in the order they began."""
    events = [load_event(line) for line in lzma.decompress(path.read_bytes()).decode().splitlines()]
    runs = {event.process_id: event.run_id for event in events if hasattr(event, "run_id")}
    for run_id in dict.fromkeys(event.run_id for event in events if isinstance(event, RunStarted)):
        Ingestor(connection).ingest(
            run_id, [event for event in events if runs.get(event.process_id) == run_id]
        )


def test_every_model_of_the_suite_was_measured(
    open_engine: OpenEngine, h200: sqlite3.Connection
) -> None:
    rows = list_models(open_engine(h200), ModelFilter(suite="builtin"))
    assert [row.status for row in rows] == ["measured"] * 18
    assert {row.hardware for row in rows} == {"NVIDIA H200"}
    assert all(row.speedup_low <= row.speedup <= row.speedup_high for row in rows)  # type: ignore[operator]
    assert sum(row.accuracy == "pass" for row in rows) == 15, (
        "three had no time left for their accuracy check"
    )


def test_the_geomean_is_what_bench_printed_and_huds_is_of_those_that_passed(
    open_engine: OpenEngine, h200: sqlite3.Connection
) -> None:
    rows = list_models(open_engine(h200), ModelFilter(suite="builtin"))
    assert round(geomean([row.speedup for row in rows if row.speedup is not None]) or 0, 2) == 3.17
    passed = [row.speedup for row in rows if row.accuracy == "pass" and row.speedup is not None]
    assert summarize(rows, HUD).geomean_speedup == pytest.approx(
        math.prod(passed) ** (1 / len(passed)), abs=1e-9
    )


def test_a_persons_own_models_stand_beside_it(
    open_engine: OpenEngine, h200: sqlite3.Connection
) -> None:
    rows = {row.model: row for row in list_models(open_engine(h200), ModelFilter(suite="local"))}
    assert (
        rows["Breaky"].graph_breaks,
        rows["Breaky"].unique_graph_breaks,
        rows["Breaky"].calls_captured,
    ) == (4, 3, 8)
    assert (rows["Bert4"].calls_captured, rows["Bert4"].unique_graphs, rows["Bert4"].accuracy) == (
        120,
        1,
        "pass",
    )
    wrong = rows["WrongAnswer"]
    assert (wrong.accuracy, wrong.status, wrong.reason) == (
        "fail_accuracy",
        "failed",
        "fail_accuracy",
    )
    assert wrong.speedup is not None and "--accuracy" in str(wrong.command)


def test_breaks_hang_on_the_models_they_came_with(
    open_engine: OpenEngine, h200: sqlite3.Connection
) -> None:
    (run_id,) = {
        row.run_id
        for row in list_models(open_engine(h200), ModelFilter(suite="builtin"))
        if row.model == "detector"
    }
    broke = list_task_breaks(h200, run_id, tasks='["builtin/detector/performance"]')
    assert broke and all("detector.py" in str(graph_break) for graph_break in broke)
    assert list_task_breaks(h200, run_id, tasks='["builtin/mlp/performance"]') == []


def test_a_side_of_a_comparison_has_the_machine_that_was_recorded(
    open_engine: OpenEngine, h200: sqlite3.Connection
) -> None:
    run_id = h200.execute("select run_id from results limit 1").fetchone()[0]
    side = load_side(
        FileStore(h200), read_clock(), find_side(h200, *now(open_engine(h200)), run_id, "base")
    )
    assert side.environment["driver"] == ("580.159.04",)
    assert side.environment["hardware"] == ("NVIDIA H200",)
    assert side.environment["torch"][0].startswith("2.11.0")


@on_both_engines
def test_reasons_by_torchs_counters_are_not_called_distinct_breaks(
    h200: sqlite3.Connection, open_client: OpenClient
) -> None:
    path = h200.execute("pragma database_list").fetchone()["file"]
    page = open_client(Path(path)).get("/models/Breaky").text
    assert "by torch&#39;s counters, 3 reasons" in page and "3 distinct" not in page
    assert page.count("performance, accuracy") == 4, "the distinct breaks that were recorded"
