"""The OpenAPI document says what the API does: every address, every parameter, every answer."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient

from compileboard.app import create_app
from compileboard.app.cli.main import main as keep_baseline
from compileboard.app.core.settings import Settings
from compileboard.app.imports.queue import ImportQueue
from compileboard.app.server.openapi import OPERATIONS, get_document, write_path
from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.saved_views import save_view
from tests.tools.field_tables import PAGE, fill_page
from tests.tools.json_schema import list_faults
from tests.tools.make_db import DATA
from tests.tools.make_db import main as make_db
from tests.unit.app.benched import RUNS as BENCHED
from tests.unit.app.benched import bench_suite
from tests.unit.app.deleted import delete_and_audit
from tests.unit.app.explored import explore
from tests.unit.app.push.test_push import STREAM, patch
from tests.unit.app.recorded import record_run
from tests.unit.app.repros.captured import ACCURACY_REPRO, COMPILE_REPRO, capture_repros
from tests.unit.app.series_changes import keep_one_of_each

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = get_document()
SCHEMAS = DOCUMENT["components"]["schemas"]
READS = [operation for operation in OPERATIONS if operation.method == "GET"]
LOGS = ("torch2.13-breaks", "torch2.11-cuda-zoo_recompiles", "torch2.11-cuda-ddp-rank1")
COMPILES = "select run_id, id from compiles where id % 4 = 0 or run_id like '01J%'"
ARTIFACTS = "select run_id, id from artifacts where id % 4 = 0"
LOOKUPS = "select run_id, id from cache_lookups"
GUARDS = "select run_id, artifact_id from guard_sets"
COMPARED = {"a": "1", "b": "2"}  # the two artifacts that are compared where an address compares two
CONFIGS = (
    "select distinct p.run_id, c.config_hash from process_configs as c join processes as p on "
    "p.id = c.process_id"
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record logs of several versions of torch, and the small run that has one of everything."""
    path = tmp_path_factory.mktemp("store") / "runs.db"
    make_db([str(path), *(str(DATA / "trace" / f"{name}.log.xz") for name in LOGS)])
    with closing(open_writer(path)) as connection:
        record_run(connection)
        bench_suite(connection)
        keep_one_of_each(connection)
        capture_repros(connection)
        delete_and_audit(connection)
        save_view(connection, "Failed runs", "/runs?state=failed")
    assert keep_baseline(["baseline", "save", "main", "--run", BENCHED[0], "--db", str(path)]) == 0
    explore(path)
    slot = ImportQueue(str(path)).enqueue("ddp.tar.gz", max_receiving=1, max_waiting=1)
    slot.save(state="done")
    slot.close()
    assert patch(create_app(Settings(db=str(path))).test_client(), STREAM.lines).status_code == 204
    return path


@pytest.fixture(scope="module")
def client(recorded: Path) -> FlaskClient:
    return create_app(Settings(db=str(recorded))).test_client()


@pytest.fixture(scope="module")
def reader(recorded: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(recorded)) as connection:
        yield connection


def rules() -> list[str]:
    return [
        rule.rule
        for rule in create_app().url_map.iter_rules()
        if rule.rule.startswith("/api/") and "findings" not in rule.rule
    ]  # these lead to incidents


def list_addresses(reader: sqlite3.Connection, path: str) -> list[str]:
    """Write every address that a path has in the recorded database."""
    if "<import_id>" in path:
        database = reader.execute("pragma database_list").fetchone()[2]
        return [
            path.replace("<import_id>", upload.id)
            for upload in ImportQueue(database).list_newest(9)
        ]
    tables = {
        "distinct_id": "run_breaks",
        "cause_id": "run_causes",
        "reason_id": "run_rerecordings",
        "issue_id": "run_issues",
    }
    for name, table in tables.items():
        if f"<{name}>" not in path:
            continue
        keys = reader.execute(f"select distinct {name} from {table}")
        return [path.replace(f"<{name}>", format_id(key)) for (key,) in keys]
    if "<path:name>" in path:
        names = reader.execute("select distinct model from series").fetchall()
        return [path.replace("<path:name>", quote(name)) for (name,) in names]
    if "<repro_id>" in path:
        return [path.replace("<repro_id>", key) for key in (COMPILE_REPRO, ACCURACY_REPRO)]
    if "<incident_id>" in path:
        return [
            path.replace("<incident_id>", key)
            for (key,) in reader.execute("select id from incidents")
        ]
    if "<run_id>" not in path:
        return [path.replace("<path:baseline_name>", "main")]
    own = {
        "<key>": COMPILES,
        "<config_hash>": CONFIGS,
        "<artifact_id>": ARTIFACTS,
        "<guards_id>": GUARDS,
    }
    own["<lookup_id>"] = LOOKUPS
    mark = next((mark for mark in own if mark in path), "<run_id>")
    pairs = reader.execute(own.get(mark, "select id, id from runs")).fetchall()
    return [path.replace("<run_id>", run_id).replace(mark, str(key)) for run_id, key in pairs]


def name_parameters(operation) -> list[str]:
    return [part.name for part in operation.parameters]


def needed(operation, reader: sqlite3.Connection) -> dict[str, str]:
    """Return the parameters without which an address has no answer."""
    if operation.path == "/check":
        return {"run": BENCHED[1], "baseline": "main"}
    if operation.path == "/compare/compiles":
        rows = reader.execute("select run_id, id from compiles order by id limit 2")
        return dict(zip(("a", "b"), (f"{run_id}:{number}" for run_id, number in rows)))
    if "/guards/" in operation.path:
        sets = [
            str(number)
            for (number,) in reader.execute(
                "select artifact_id from guard_sets order by id limit 2"
            )
        ]
        return dict(zip(("a", "b"), sets)) if "a" in name_parameters(operation) else {}
    return {key: value for key, value in COMPARED.items() if key in name_parameters(operation)}


def test_every_address_is_described_and_every_description_is_an_address() -> None:
    assert {write_path(rule) for rule in rules()} == set(DOCUMENT["paths"])


def test_every_reference_leads_somewhere_and_every_part_is_used() -> None:
    text = repr(DOCUMENT)
    named = {("securitySchemes", "token")} | set(re.findall(r"#/components/(\w+)/(\w+)", text))
    there = {(kind, name) for kind, parts in DOCUMENT["components"].items() for name in parts}
    assert named == there


def test_every_operation_has_its_own_name_and_few_write() -> None:
    names = [
        operation["operationId"]
        for path in DOCUMENT["paths"].values()
        for operation in path.values()
    ]
    assert len(names) == len(set(names))
    incident = "/api/v1/incidents/{incident_id}"
    writing = [path for path, methods in DOCUMENT["paths"].items() if set(methods) != {"get"}]
    restore = "/api/v1/deleted_runs/{run_id}/restore"
    assert writing == [
        "/api/v1/imports",
        "/api/v1/runs/{run_id}/streams/{stream_id}",
        "/api/v1/texts/missing",
        "/api/v1/texts/{digest}",
        "/api/v1/texts",
        restore,
        "/api/v1/tokens/{token_id}/revoke",
        "/api/v1/views",
        "/api/v1/views/{view_id}/rename",
        "/api/v1/views/{view_id}/delete",
        *(f"{incident}/{action}" for action in ("acknowledge", "ignore", "comment", "reopen")),
    ]
    assert set(DOCUMENT["paths"]["/api/v1/imports"]) == {"get", "post"}


def test_path_parameters_are_those_of_the_path() -> None:
    for path, methods in DOCUMENT["paths"].items():
        for operation in methods.values():
            described = [
                parameter["name"]
                for parameter in operation["parameters"]
                if parameter.get("in") == "path"
            ]
            assert described == re.findall(r"{(\w+)}", path)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("operation", READS, ids=lambda operation: operation.path)
def test_real_answers_are_as_the_document_says(
    client: FlaskClient, reader: sqlite3.Connection, operation
) -> None:
    described = DOCUMENT["paths"][write_path("/api/v1" + operation.path)]["get"]["responses"]["200"]
    schema = described["content"]["application/json"]["schema"]
    addresses, seen = list_addresses(reader, "/api/v1" + operation.path), 0
    for address in addresses:
        answer = client.get(
            address,
            query_string={"limit": "1000"} if operation.is_list else needed(operation, reader),
        )
        assert answer.status_code == 200, address
        assert list_faults(answer.json, schema, SCHEMAS) == [], address
        seen += len(answer.json["data"])
    assert seen > 0, "no recorded run has anything here: nothing was checked"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("operation", READS, ids=lambda operation: operation.path)
def test_every_described_parameter_is_taken(
    client: FlaskClient, reader: sqlite3.Connection, operation
) -> None:
    address = list_addresses(reader, "/api/v1" + operation.path)[0]
    described = DOCUMENT["paths"][write_path("/api/v1" + operation.path)]["get"]["parameters"]
    for parameter in [entry for entry in described if entry["in"] == "query"]:
        key = parameter["name"]
        for value in parameter["schema"].get(
            "enum", [{"limit": "7", "since": "2026-01-02", "until": "2099-01-02"}.get(key, "")]
        ):
            given = {parameter["name"]: value} | needed(operation, reader)
            assert client.get(address, query_string=given).status_code == 200, (
                address,
                key,
                value,
            )


def test_the_index_is_as_the_document_says_and_has_every_address(client: FlaskClient) -> None:
    answer = client.get("/api/v1/").json
    described = DOCUMENT["paths"]["/api/v1/"]["get"]["responses"]["200"]["content"][
        "application/json"
    ]["schema"]
    assert list_faults(answer, described, SCHEMAS) == []
    assert {row["path"] for row in answer["data"]} == set(DOCUMENT["paths"])


def test_the_document_is_served(client: FlaskClient) -> None:
    answer = client.get("/api/v1/openapi.json")
    assert answer.json == DOCUMENT
    assert answer.json["openapi"].startswith("3.1")


def test_the_tables_of_fields_in_the_docs_are_those_of_the_document() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert fill_page(text) == text, "write it anew: python -m tests.tools.field_tables"


SECTIONS = re.findall(
    r"### `GET (/api/v1/\S+)`\n\n(.+?)```sh\n(curl .+?)\n```\n\n```json\n(.+?)\n```",
    (ROOT / "docs" / "api.md").read_text(encoding="utf-8"),
    re.DOTALL,
)


def test_docs_have_every_address_in_order_with_its_parameters() -> None:
    documented = [
        (re.sub(r"<[\w:]+>", "<>", address), sentence)
        for address, sentence, _curl, _answer in SECTIONS
    ]
    assert [address for address, _said in documented] == [
        re.sub(r"<[\w:]+>", "<>", f"/api/v1{operation.path}") for operation in READS
    ]
    for operation, (_address, sentence) in zip(READS, documented):
        names = [f"`{name}`" for name in name_parameters(operation)]
        assert " ".join(sentence.split()).endswith(f"Parameters: {', '.join(names) or 'none'}."), (
            operation.path
        )


@pytest.mark.parametrize(
    ("operation", "section"),
    list(zip(READS, SECTIONS)),
    ids=lambda operation: getattr(operation, "path", ""),
)
def test_answers_in_the_docs_are_as_the_document_says(operation, section: tuple[str, ...]) -> None:
    schema = DOCUMENT["paths"][write_path("/api/v1" + operation.path)]["get"]["responses"]["200"]
    faults = list_faults(
        json.loads(section[3]), schema["content"]["application/json"]["schema"], SCHEMAS
    )
    assert [
        fault for fault in faults if not fault.endswith("is missing")
    ] == []  # they are shortened
    address = re.sub(r"<[\w:]+>", r"[^/?]+", section[0])
    assert re.fullmatch(rf'curl -s "\$BOARD{address}(\?.*)?"', section[2])


def test_a_description_says_more_than_the_name_of_its_field() -> None:
    empty = []
    for name, model in SCHEMAS.items():
        for field, schema in model["properties"].items():
            text = schema.get("description", "").rstrip(".")
            words = re.sub(r"^(the|its|a|an) ", "", text.lower()).replace(" ", "_")
            same = {field, field.removesuffix("_count"), field.removesuffix("_count") + "s"}
            if words in {"", "occurrences"} | same:
                empty.append((name, field, text))
    assert empty == []
