"""CUDA graphs recorded again across runs, as recorded on an H200."""

from __future__ import annotations

import sqlite3
from html import unescape
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from compileboard.app.notebook.board import Board
from compileboard.app.reasons.queries import get_reason, list_affected_runs, list_reasons
from compileboard.app.reasons.rerecordings import RERECORDINGS
from compileboard.collectors.contract.fingerprints import parse_id
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection
from tests.tools.make_db import DATA, record_events
from tests.unit.app.clickhouse.published import OpenClient, OpenEngine, on_both_engines

pytestmark = on_both_engines
PROGRAMS = ("another_output", "branches", "parameter_replaced")
ALL = RERECORDINGS.read_filter({})


@pytest.fixture
def board(tmp_path: Path) -> sqlite3.Connection:
    connection = open_writer(tmp_path / "board.db")
    migrate_connection(connection)
    for name in PROGRAMS:
        path = DATA / "events" / f"torch2.11-cuda-graphs-{name}.jsonl.xz"
        record_events(Ingestor(connection), path)
    return connection


@pytest.fixture
def graphs(board: sqlite3.Connection, open_client: OpenClient, tmp_path: Path) -> FlaskClient:
    return open_client(tmp_path / "board.db")


def test_reasons_agree_with_the_recordings(
    board: sqlite3.Connection, open_engine: OpenEngine
) -> None:
    listed = list_reasons(open_engine(board), RERECORDINGS, ALL).rows
    assert [(reason.status, reason.rerecording_count, reason.duration_us) for reason in listed] == [
        ("CudagraphManagedIdxMismatch", 4, 6366),
        ("StaticInputIdxMismatch", 1, 2064),
    ]
    for reason in listed:
        engine, reason_id = open_engine(board), parse_id(reason.id)
        assert get_reason(engine, RERECORDINGS, reason_id) == reason
        (run,) = list_affected_runs(engine, RERECORDINGS, reason_id).rows
        assert (run.count, run.duration_us) == (reason.rerecording_count, reason.duration_us)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("q=norm", ["CudagraphManagedIdxMismatch"]),
        ("q=ARG0_1", ["CudagraphManagedIdxMismatch", "StaticInputIdxMismatch"]),
        ("status=StaticInputIdxMismatch", ["StaticInputIdxMismatch"]),
        ("function=another_output", ["CudagraphManagedIdxMismatch"]),
        ("name=branches", []),
        ("sort=first.asc", ["StaticInputIdxMismatch", "CudagraphManagedIdxMismatch"]),
    ],
)
def test_filters_and_orders(graphs: FlaskClient, query: str, expected: list[str]) -> None:
    listed = graphs.get(f"/api/v1/cuda_graphs?{query}").get_json()["data"]
    assert [reason["status"] for reason in listed] == expected
    assert graphs.get(f"/cuda_graphs?{query}").status_code == 200


def test_the_trend_is_of_one_program(graphs: FlaskClient) -> None:
    page = unescape(graphs.get("/cuda_graphs").text)
    assert "Per run of another_output" in page
    other = graphs.get("/cuda_graphs?program=parameter_replaced").text
    assert "Per run of parameter_replaced" in other
    assert "Parameter, buffer or static input moved" in other
    summary = graphs.get("/api/v1/cuda_graphs/trends").get_json()["data"]["summary"]
    assert summary == {
        "reason_count": 2,
        "function_count": 2,
        "run_count": 2,
        "rerecording_count": 5,
        "duration_us": 8430,
    }


def test_one_reason_has_its_inputs_source_and_recordings(graphs: FlaskClient) -> None:
    (reason,) = graphs.get("/api/v1/cuda_graphs?q=norm").get_json()["data"]
    address = f"/cuda_graphs/{reason['id']}"
    page = unescape(graphs.get(address).text)
    assert "Output of another CUDA graph moved" in page
    assert "arg0_1 float32[8, 64]" in page
    assert 'norm = torch.compile(lambda x: x / x.norm(), mode="reduce-overhead")' in page
    events = graphs.get(f"/api/v1{address}").get_json()["data"]["events"]
    assert [(event["compile_id"], event["parent_graph"]) for event in events] == [("1/0", 4)] * 4


def test_a_notebook_has_the_same_rows(board: sqlite3.Connection, tmp_path: Path) -> None:
    frame = Board(str(tmp_path / "board.db")).cuda_graphs(function="another_output")
    assert list(frame["rerecording_count"]) == [4]


def test_a_board_without_any_says_so(graphs: FlaskClient, board: sqlite3.Connection) -> None:
    board.execute("delete from run_rerecordings")
    board.execute("update publications set pub = pub + 1")
    board.execute("update runs set pub = (select pub from publications)")
    assert "3 runs recorded: no CUDA graph was recorded again" in graphs.get("/cuda_graphs").text
    assert graphs.get(f"/cuda_graphs/{'0' * 16}").status_code == 404
