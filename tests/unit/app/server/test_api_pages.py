"""The pages that describe the API."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3

from flask.testing import FlaskClient

from compileboard.app.server.api_pages import describe_kind, list_endpoints
from tests.unit.app.benched import bench_suite

ENDPOINTS = {one.operation["operationId"]: one for one in list_endpoints()}


def test_the_footer_leads_to_every_operation(client: FlaskClient) -> None:
    assert '<a href="/reference">API</a>' in client.get("/runs").text
    listed = re.findall(r'href="/reference/(\w+)"', client.get("/reference").text)
    assert sorted(listed) == sorted(ENDPOINTS)


def test_a_page_has_every_parameter_and_leads_to_the_objects_that_it_has(
    client: FlaskClient,
) -> None:
    for operation_id, endpoint in ENDPOINTS.items():
        text = client.get(f"/reference/{operation_id}").text
        names = [f">{part['name']}</th>" for part in endpoint.operation["parameters"]]
        assert [name for name in names if name not in text] == []
        targets = set(re.findall(r'href="#([A-Z]\w+)"', text))
        assert targets <= set(re.findall(r'id="(\w+)"', text)), operation_id


def test_a_command_asks_the_newest_run_or_says_what_to_fill_in() -> None:
    assert ENDPOINTS["runs_list_costs"].curl == 'curl -s "$BOARD/api/v1/runs/latest/costs"'
    compared = ENDPOINTS["comparison_get_compile_comparison"].curl
    assert compared == 'curl -s "$BOARD/api/v1/compare/compiles?a=A&b=B"'
    assert ENDPOINTS["incidents_reopen"].curl.endswith('/incidents/INCIDENT_ID/reopen"')


def test_a_command_with_a_body_succeeds(client: FlaskClient) -> None:
    statuses = {}
    for operation_id in ("views_create", "views_rename", "push_list_missing"):
        endpoint = ENDPOINTS[operation_id]
        (body,) = (word for word in shlex.split(endpoint.curl) if word.startswith("{"))
        path = endpoint.path.replace("{view_id}", "1")
        statuses[operation_id] = client.post(path, json=json.loads(body)).status_code
    assert statuses == {"views_create": 201, "views_rename": 200, "push_list_missing": 200}


def test_the_address_of_an_answer_answers(client: FlaskClient, store: sqlite3.Connection) -> None:
    bench_suite(store)
    addresses = [one.address for one in ENDPOINTS.values() if one.address]
    statuses = {address: client.get(address).status_code for address in addresses}
    assert len(statuses) > 30
    assert {address: status for address, status in statuses.items() if status != 200} == {}


def test_a_type_is_told_in_words() -> None:
    of = {"$ref": "#/components/schemas/Compile"}
    assert describe_kind({"oneOf": [{"type": "array", "items": of}, {"type": "null"}]}) == (
        "list of Compile or null"
    )
    assert describe_kind({"type": ["string", "null"]}) == "string or null"
    assert describe_kind({"type": "object", "additionalProperties": {"type": "integer"}}) == (
        "object of integer"
    )


def test_an_unknown_operation_is_named_as_text(client: FlaskClient) -> None:
    answer = client.get("/reference/<b>no")
    assert answer.status_code == 404
    assert "no operation &lt;b&gt;no: /reference lists them" in answer.text
