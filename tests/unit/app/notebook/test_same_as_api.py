"""A frame has the rows of the API's list, value for value, and typed columns."""

from __future__ import annotations

import re
from typing import Any

import markupsafe
import pandas as pd
import pytest
from flask.testing import FlaskClient

from compileboard.app.notebook.board import Board, BoardRun
from compileboard.app.notebook.data_frames import LIST, MAPPING, MOMENT, FrameColumn, FrameMethod
from compileboard.app.server.openapi import OPERATIONS
from tests.unit.app.benched import RUNS
from tests.unit.app.clickhouse.published import board_on_both_engines
from tests.unit.app.recorded import RUN

OF_BOARD = {name: method for name, method in vars(Board).items() if isinstance(method, FrameMethod)}
OF_RUN = {
    name: method for name, method in vars(BoardRun).items() if isinstance(method, FrameMethod)
}


def read_all(client: FlaskClient, path: str, part: str = "", **query: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    cursor = None
    while True:
        more = {"cursor": cursor} if cursor else {}
        answer = client.get(f"/api/v1{path}", query_string={"limit": 1000, **query, **more}).json
        assert answer and answer["ok"], answer
        rows += answer["data"][part] if part else answer["data"]
        cursor = (answer["data"] if part else answer)["next"]
        if cursor is None:
            return rows


def read_value(column: FrameColumn, row: dict[str, Any]) -> Any:
    value: Any = row
    for key in column.path:
        value = None if value is None else value[key]
    return value


def write_plain(column: FrameColumn, value: Any) -> Any:
    """Write a frame's value as JSON has it."""
    if column.kind in (LIST, MAPPING):
        return list(value) if isinstance(value, tuple) else value
    if value is pd.NA or value is pd.NaT or (isinstance(value, float) and pd.isna(value)):
        return None
    return (
        int(value.asm8.astype("datetime64[us]").astype("int64"))
        if isinstance(value, pd.Timestamp)
        else value
    )


def assert_same(method: FrameMethod, frame: pd.DataFrame, rows: list[dict[str, Any]]) -> None:
    assert len(frame) == len(rows)
    shown = [
        column for column in method.columns if column.path and not is_object_metric(column, rows)
    ]
    assert len(shown) > 4
    for column in shown:
        values = [write_plain(column, value) for value in frame[column.name].array]
        expected = [read_value(column, row) for row in rows]
        assert plain(values) == plain(expected), (method.name, column.name)


def is_object_metric(column: FrameColumn, rows: list[dict[str, Any]]) -> bool:
    """Return True for a metric of torch's that is JSON in a column of text."""
    return column.kind == "string" and any(
        isinstance(row.get(column.path[0]), dict) for row in rows
    )


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


def find_path(method: FrameMethod, run_id: str = "") -> str:
    return method.operation.path.replace("<run_id>", run_id)


@pytest.mark.sampled(3)
@board_on_both_engines
@pytest.mark.parametrize("name", [name for name, method in OF_BOARD.items() if not method.of_runs])
def test_a_frame_over_all_runs_has_the_rows_of_the_api(
    board: Board, client: FlaskClient, name: str
) -> None:
    method = OF_BOARD[name]
    if method.part:
        rows = client.get(f"/api/v1{find_path(method)}").json["data"][method.part]  # type: ignore[index]
    else:
        rows = read_all(client, find_path(method))
    assert rows
    assert_same(method, getattr(board, name)(), rows)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name, method in OF_BOARD.items() if method.of_runs])
def test_a_frame_of_the_runs_of_a_filter_has_each_run_s_rows(
    board: Board, client: FlaskClient, name: str
) -> None:
    method = OF_BOARD[name]
    for query in ({}, {"suite": "captures"}, {"state": "finished"}, {"since": "2020-01-01"}):
        run_ids = [run["id"] for run in read_all(client, "/runs", **query)]
        rows = [
            {"run_id": run_id} | row
            for run_id in run_ids
            for row in read_all(client, find_path(method, run_id))
        ]
        frame = getattr(board, name)(**query)
        assert_same(method, frame, rows)
        assert rows or query
        assert list(dict.fromkeys(frame["run_id"])) == [
            run_id for run_id in run_ids if any(run_id == row["run_id"] for row in rows)
        ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OF_RUN)
def test_a_frame_of_one_run_has_the_rows_of_the_api(
    board: Board, client: FlaskClient, name: str
) -> None:
    method, seen = OF_RUN[name], 0
    for run_id in board.runs()["id"]:
        rows = read_all(client, find_path(method, run_id), method.part)
        assert_same(method, getattr(board.run(run_id), name)(), rows)
        seen += len(rows)
    assert seen > 0


def test_every_list_of_the_api_is_a_frame() -> None:
    paths = {method.operation.path for method in (*OF_BOARD.values(), *OF_RUN.values())}
    lists = {
        operation.path
        for operation in OPERATIONS
        if operation.is_list and operation.method == "GET"
    }
    elsewhere = {
        "/imports",
        "/audit",
        "/deleted_runs",
        "/tokens",
        "/streams",
        "/views",
    }  # of the server and its people
    elsewhere |= {"/matrix"}  # its cells are the results that `models` has
    ids = "distinct_id|cause_id|issue_id|reason_id"
    elsewhere |= {path for path in lists if re.search(ids, path)}
    assert lists - paths == elsewhere


@pytest.mark.parametrize(
    ("owner", "name"),
    [(owner, name) for owner in ("board", "run") for name in (OF_BOARD, OF_RUN)[owner == "run"]],
)
def test_columns_have_the_types_of_their_fields_with_rows_and_without(
    board: Board, owner: str, name: str
) -> None:
    method = (OF_RUN if owner == "run" else OF_BOARD)[name]
    source: Any = board.run(RUN) if owner == "run" else board
    filters = {"q": "no such text"} if "q" in method.parameters else {}
    for frame in (getattr(source, name)(), getattr(source, name)(**filters)):
        kinds = {column.name: column.kind for column in method.columns}
        assert {*frame.columns} - {*kinds} <= {"of_other_type"}
        for column, kind in kinds.items():
            dtype = frame[column].dtype
            if kind in (LIST, MAPPING):
                types = {*map(type, frame[column])} - {type(None)}
                assert str(dtype) == "object" and types <= {tuple if kind == LIST else dict}
            else:
                assert str(dtype) == kind
                assert not column.endswith("_us") if kind == MOMENT else kind != "object"


def test_results_have_the_page_s_numbers(board: Board, client: FlaskClient) -> None:
    frame = board.results(run=RUNS[1]).set_index("model")
    page = client.get(f"/runs/{RUNS[1]}/results").text
    speedups = frame["speedup"].dropna()
    assert len(speedups) == 6
    for model, speedup in speedups.items():
        row = page[page.index(f"<bdi>{markupsafe.escape(model)}</bdi>") :].partition("</tr>")[0]
        assert f'data-label="Speedup">{speedup:.4g}' in row, model


def test_totals_of_a_frame_are_those_of_the_runs(board: Board) -> None:
    runs = board.runs().set_index("id")
    counts = board.compiles().groupby("run_id").size()
    assert counts.to_dict() == {
        run_id: count for run_id, count in runs["compile_count"].dropna().items() if count
    }
    assert len(board.graph_break_events()) == runs["graph_break_count"].sum()
