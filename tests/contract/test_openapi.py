"""The OpenAPI document says what the API does: every address, every parameter, every answer."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from app import create_app
from app.api.openapi import get_document, write_path
from app.api.operations import OPERATIONS
from app.settings import Settings
from collectors.store.connect import open_writer
from tests.tools.json_schema import list_faults
from tests.tools.make_db import main as make_db
from tests.unit.app.recorded import record_run

DOCUMENT = get_document()
SCHEMAS = DOCUMENT["components"]["schemas"]
FIRST = "select {column} from {table} where run_id = :run_id order by 1 limit 1"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record every log of tests/data, and the small run that has one of everything."""
    path = tmp_path_factory.mktemp("store") / "runs.db"
    make_db([str(path)])
    with closing(open_writer(path)) as connection:
        record_run(connection)
    return path


@pytest.fixture(scope="module")
def client(recorded: Path) -> FlaskClient:
    return create_app(Settings(db=str(recorded))).test_client()


@pytest.fixture(scope="module")
def reader(recorded: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(recorded)) as connection:
        yield connection


def rules() -> list[str]:
    return [rule.rule for rule in create_app().url_map.iter_rules() if rule.rule.startswith("/api/")]


def list_addresses(reader: sqlite3.Connection, path: str) -> list[str]:
    """Write a path's addresses: one for every recorded run, distinct break and cause; a compile and a text of each."""
    runs = [row[0] for row in reader.execute("select id from runs order by id")]
    if "<run_id>" not in path:
        values = {"distinct_id": "run_breaks", "cause_id": "run_causes"}
        name = next((name for name in values if name in path), None)
        if name is None:
            return [path]
        found = reader.execute(f"select distinct {name} from {values[name]} order by 1").fetchall()
        return [path.replace(f"<{name}>", str(key)) for (key,) in found]
    sql = "select id from compiles where run_id = ? union all select 0 limit 60"
    if "<key>" in path:
        return [
            path.replace("<run_id>", run).replace("<key>", str(key))
            for run in runs
            for (key,) in reader.execute(sql, [run])
            if key
        ]
    uses = (
        "select distinct config_hash from process_configs c join processes p on p.id = c.process_id where p.run_id = ?"
    )
    if "<config_hash>" in path:
        return [
            path.replace("<run_id>", run).replace("<config_hash>", key)
            for run in runs
            for (key,) in reader.execute(uses, [run])
        ]
    return [path.replace("<run_id>", run) for run in runs]


def test_every_address_is_described_and_every_description_is_an_address() -> None:
    assert {write_path(rule) for rule in rules()} == set(DOCUMENT["paths"])


def test_every_reference_leads_somewhere_and_every_part_is_used() -> None:
    text = repr(DOCUMENT)
    named = set(re.findall(r"#/components/(\w+)/(\w+)", text))
    there = {(kind, name) for kind, parts in DOCUMENT["components"].items() for name in parts}
    assert named == there


def test_every_operation_has_its_own_name_and_only_reads() -> None:
    names = [operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))
    assert {method for path in DOCUMENT["paths"].values() for method in path} == {"get"}


def test_path_parameters_are_those_of_the_path() -> None:
    for path, methods in DOCUMENT["paths"].items():
        described = [it["name"] for it in methods["get"]["parameters"] if it.get("in") == "path"]
        assert described == re.findall(r"{(\w+)}", path)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda it: it.path)
def test_real_answers_are_as_the_document_says(client: FlaskClient, reader: sqlite3.Connection, operation) -> None:
    described = DOCUMENT["paths"][write_path("/api/v1" + operation.path)]["get"]["responses"]["200"]
    schema = described["content"]["application/json"]["schema"]
    addresses, seen = list_addresses(reader, "/api/v1" + operation.path), 0
    for address in addresses:
        answer = client.get(address, query_string={"limit": "1000"} if operation.is_list else {})
        assert answer.status_code == 200, address
        assert list_faults(answer.json, schema, SCHEMAS) == [], address
        seen += len(answer.json["data"])
    assert seen > 0, "no recorded run has anything here: nothing was checked"


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda it: it.path)
def test_every_described_parameter_is_taken(client: FlaskClient, reader: sqlite3.Connection, operation) -> None:
    address = list_addresses(reader, "/api/v1" + operation.path)[0]
    for key in operation.parameters:
        parameter = DOCUMENT["components"]["parameters"][key]
        for value in parameter["schema"].get(
            "enum", [{"limit": "7", "since": "2026-01-02", "until": "2099-01-02"}.get(key, "")]
        ):
            assert client.get(address, query_string={parameter["name"]: value}).status_code == 200, (
                address,
                key,
                value,
            )


def test_the_document_is_served(client: FlaskClient) -> None:
    answer = client.get("/api/v1/openapi.json")
    assert answer.json == DOCUMENT
    assert answer.json["openapi"].startswith("3.1")
