"""Whatever goes wrong under /api, the answer has one shape."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from compileboard.app import create_app
from compileboard.app.core.settings import Settings
from compileboard.app.server.openapi import OPERATIONS, get_document
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.migrations import migrate
from tests.tools.json_schema import list_faults
from tests.unit.app.recorded import BREAK_ID, CAUSE_ID, REASON_ID, RUN, record_run

SCHEMAS = get_document()["components"]["schemas"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "compileboard.db"
    migrate(path)
    with closing(open_writer(path)) as connection:
        record_run(connection)
    return path


@pytest.fixture(scope="module")
def client(recorded: Path) -> FlaskClient:
    return create_app(Settings(db=str(recorded))).test_client()


@pytest.fixture
def database(recorded: Path, tmp_path: Path) -> Path:
    """Copy the recorded database for a test that spoils it."""
    return Path(shutil.copy(recorded, tmp_path))


def assert_failed(answer: TestResponse, status: int, sentence: str = "") -> None:
    assert answer.status_code == status
    assert answer.content_type == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert list_faults(answer.json, SCHEMAS["Error"], SCHEMAS) == []
    assert (answer.json["ok"], answer.json["status"]) == (False, status)
    assert sentence in answer.json["error"]
    assert answer.json["errors"]
    assert "\n" not in answer.json["error"]


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("/api", "/api"),
        ("/api/v1/nothing", "/api/v1/nothing"),
        ("/api/v2/runs", "/api/v2/runs"),
        ("/api/v1/runs/nope", "There is no run nope"),
        (f"/api/v1/runs/{RUN[:10]}", "There is no run"),
        ("/api/v1/runs/%00%F0%9F", "There is no run"),
        ("/api/v1/runs/" + "x" * 5000, "There is no run"),
        (f"/api/v1/runs/{RUN}/compiles/x", "has no compile number x"),
        (f"/api/v1/runs/{RUN}/compiles/999999", "has no compile number 999999"),
        (f"/api/v1/runs/{RUN}/compiles/" + "9" * 40, "has no compile number"),
        (f"/api/v1/runs/{RUN}/configs/x", "has no configuration text x"),
        ("/api/v1/graph_breaks/x", "There is no graph break x"),
        ("/api/v1/graph_breaks/99/runs", "There is no graph break 99"),
        ("/api/v1/recompiles/-1", "There is no cause of recompiles -1"),
        ("/api/v1/recompiles/" + "9" * 40 + "/runs", "There is no cause"),
    ],
)
def test_what_is_not_there_is_404(client: FlaskClient, address: str, sentence: str) -> None:
    assert_failed(client.get(address), 404, sentence)


@pytest.mark.parametrize(
    "operation",
    [
        operation
        for operation in OPERATIONS
        if "<run_id>" in operation.path and "<stream_id>" not in operation.path
    ],
    ids=lambda operation: operation.path,
)
def test_every_address_of_an_unknown_run_is_404(client: FlaskClient, operation) -> None:
    address = (
        operation.path.replace("<run_id>", "nope")
        .replace("<key>", "1")
        .replace("<config_hash>", "x")
    )
    assert_failed(
        client.open(f"/api/v1{address}", method=operation.method), 404, "There is no run nope"
    )


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("/api/v1/runs?limit=0", "limit: '0' is not a whole number from 1 to 1000"),
        ("/api/v1/runs?limit=1001", "limit: "),
        ("/api/v1/runs?limit=ten", "limit: "),
        ("/api/v1/runs?limit=1e2", "limit: "),
        ("/api/v1/runs?limit=%EF%BC%91", "limit: "),
        ("/api/v1/runs?cursor=x", "cursor: "),
        ("/api/v1/runs?cursor=%F0%9F%98%80", "cursor: "),
        ("/api/v1/runs?sort=color", "sort: 'color' is not one of"),
        ("/api/v1/runs?state=great", "state: 'great' is not one of"),
        ("/api/v1/runs?since=soon", "since: 'soon' is not a date"),
        ("/api/v1/runs?since=2026-02-01&until=2026-01-01", "nothing can match"),
        ("/api/v1/runs?commit=xyz", "commit: "),
        ("/api/v1/failures?state=open", "imported; did you mean status=open?"),
        ("/api/v1/runs?q=" + "x" * 201, "q: must be at most 200"),
        ("/api/v1/runs?colour=red", "colour: there is no such"),
        ("/api/v1/runs?done=deleted", "done: there is no such"),
        ("/api/v1/overview?suite=" + "x" * 201, "suite: must be at most 200"),
        ("/api/v1/overview?limit=5", "limit: there is no such parameter"),
        (f"/api/v1/runs/{RUN}?limit=5", "this address has none"),
        (f"/api/v1/runs/{RUN}/compiles?outcome=great", "outcome: 'great' is not one of"),
        (
            f"/api/v1/runs/{RUN}/compiles?recompiled=maybe",
            "recompiled: 'maybe' is neither yes nor no",
        ),
        (f"/api/v1/runs/{RUN}/graph_breaks?distinct=x", "distinct: 'x' is not an id"),
        ("/api/v1/graph_breaks?sort=color", "sort: "),
        ("/api/v1/recompiles?category=great", "category: 'great' is not one of"),
        ("/api/v1/openapi.json?x=1", "x: there is no such parameter"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_400(
    client: FlaskClient, address: str, sentence: str
) -> None:
    assert_failed(client.get(address), 400, sentence)


@pytest.mark.parametrize(
    "operation",
    [operation for operation in OPERATIONS if operation.is_list],
    ids=lambda operation: operation.path,
)
@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "W10",
        "WyIiXQ",
        "WyJcdWQ4MDAiLDFd",
        "WzEsMSwiXHVkODAwIl0",
        "WzEsIlx1ZDgwMCJd",
        "W1tb" * 900,
    ],
)
def test_a_cursor_of_another_make_is_400(client: FlaskClient, operation, cursor: str) -> None:
    address = operation.path.replace("<run_id>", RUN)
    address = address.replace("<distinct_id>", BREAK_ID).replace("<cause_id>", CAUSE_ID)
    address = address.replace("<reason_id>", REASON_ID)
    if "<issue_id>" in address:
        listed = client.get("/api/v1/failures").get_json()["data"]
        address = address.replace("<issue_id>", listed[0]["id"])
    assert_failed(client.get(f"/api/v1{address}", query_string={"cursor": cursor}), 400, "cursor: ")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "path", ["/runs", f"/runs/{RUN}", f"/runs/{RUN}/compilations", "/openapi.json"]
)
def test_the_api_only_reads(client: FlaskClient, method: str, path: str) -> None:
    answer = client.open(f"/api/v1{path}", method=method)
    assert_failed(answer, 405)
    assert set(answer.headers["Allow"].split(", ")) == {"GET", "HEAD"}


def test_another_host_name_and_another_site_are_403(client: FlaskClient) -> None:
    assert_failed(client.get("/api/v1/runs", headers={"Host": "evil.example"}), 403, "evil.example")
    assert_failed(client.post("/api/v1/runs", headers={"Origin": "http://evil.example"}), 403)


def test_a_database_that_is_away_is_503(tmp_path: Path) -> None:
    client = create_app(Settings(db=str(tmp_path / "none.db"))).test_client()
    for path in ("runs", "overview", "graph_breaks", f"runs/{RUN}/compilations"):
        assert_failed(client.get(f"/api/v1/{path}"), 503, "none.db")
    assert client.get("/api/v1/openapi.json").status_code == 200


def test_a_newer_database_is_503(database: Path) -> None:
    client = create_app(Settings(db=str(database))).test_client()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("pragma user_version = 99")
    assert_failed(client.get("/api/v1/runs"), 503)


def test_a_file_that_is_no_database_is_500(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database at all" * 100)
    assert_failed(
        create_app(Settings(db=str(path))).test_client().get("/api/v1/runs"), 500, "notes.txt"
    )


def test_a_mistake_of_ours_is_500_and_says_nothing_of_itself(database: Path) -> None:
    client = create_app(Settings(db=str(database))).test_client()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("drop table run_tags")
    answer = client.get("/api/v1/runs")
    assert_failed(answer, 500, "failed")
    assert "run_tags" not in answer.text
