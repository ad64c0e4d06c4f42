"""The API's single things over the small run that has one of everything."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from flask.testing import FlaskClient

from compileboard.collectors.contract.metric_fields import FIELDS
from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.recorded import MARKUP, PROCESS, RUN, record_run
from tests.unit.app.seed import START_US, add_run

pytestmark = on_both_engines


@pytest.fixture(autouse=True)
def run(store: sqlite3.Connection) -> None:
    record_run(store)


def get(client: FlaskClient, path: str) -> Any:
    answer = client.get(f"/api/v1{path}")
    assert answer.status_code == 200, answer.text
    assert answer.json["ok"] is True
    return answer.json["data"]


def test_compilations_carry_torchs_fields_and_ours(client: FlaskClient) -> None:
    rows = get(client, f"/runs/{RUN}/compilations")
    assert [row["kind"] for row in rows] == [
        "forward",
        "backward",
        "runtime",
        "forward",
        "forward",
        "forward",
    ]
    first = rows[0]
    assert (first["function"], first["outcome"], first["file"], first["line"]) == (
        "f",
        "compiled",
        "model.py",
        3,
    )
    assert (first["guard_count"], first["compile_id"], first["process_id"]) == (12, "0/0", PROCESS)
    assert first["dynamo_config"] == {"config_hash": "a4797441f1dafbf1"}
    assert first["config_suppress_errors"] is None
    assert first["phases_us"]["restart"] == 5_000
    assert [row["outcome"] for row in rows[-2:]] == ["recompile_limit", "failed"]


def test_torchs_value_stands_where_a_name_is_ours_too(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    store.execute(
        "update compilations set duration_us = 1, outcome = 'empty' where kind = 'backward'"
    )
    row = get(client, f"/runs/{RUN}/compilations")[1]
    assert (row["duration_us"], row["outcome"]) == (100_000, "empty")


def test_a_damaged_record_keeps_its_columns(client: FlaskClient, store: sqlite3.Connection) -> None:
    store.execute("update events set body = x'02ff' where kind = 'compiled'")
    row = get(client, f"/runs/{RUN}/compilations")[0]
    assert (row["duration_us"], row["function"], row["guard_count"]) == (200_000, "f", None)


def test_records_of_hooks_have_every_field_as_those_of_logs_do(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    rows = get(client, f"/runs/{RUN}/compilations")  # hooks send what has a value alone
    assert all(set(FIELDS) <= set(row) for row in rows)
    assert {"duration_source", "duration_us"} <= set(rows[0])
    assert any(row["fail_type"] is None for row in rows)


def test_a_graph_break_says_all_that_torch_said(client: FlaskClient) -> None:
    (row,) = get(client, f"/runs/{RUN}/graph_breaks")
    expected = {
        "gb_id": "GB0059",
        "gb_type": "Builtin",
        "outcome": "resumed",
        "compile_id": "0/0",
        "rank": 0,
    }
    expected |= {
        "function": "f",
        "file": "model.py",
        "line": 5,
        "explanation": MARKUP,
        "hints": [f"Avoid {MARKUP}"],
    }
    expected |= {
        "reason": f"Builtin {MARKUP}",
        "source_line": f"print('{MARKUP}')",
        "fingerprint": "b1",
    }
    assert {name: row[name] for name in expected} == expected
    assert row["page_url"].endswith("/gb0059.html")
    assert get(client, f"/runs/{RUN}/graph_breaks?distinct={row['distinct_id']}") == [row]
    assert get(client, f"/runs/{RUN}/graph_breaks?distinct={'0' * 16}") == []


def test_a_recompile_has_the_guards_of_every_cache_entry(client: FlaskClient) -> None:
    row = get(client, f"/runs/{RUN}/recompiles")[1]
    assert (row["function"], row["file"], row["compile_id"], row["recompiled_from"]) == (
        "f",
        "model.py",
        "0/2",
        "0/1",
    )
    assert [guard["cache_entry"] for guard in row["guards"]] == ["0/1", "0/0"]
    guard = row["guards"][0]
    assert (guard["category"], guard["source"], guard["expected"], guard["actual"]) == (
        "tensor_size",
        "x",
        "2",
        "4",
    )


def test_a_run_has_its_surroundings(client: FlaskClient) -> None:
    data = get(client, f"/runs/{RUN}")
    assert (data["id"], data["cwd"], data["tags"], data["git_dirty"]) == (RUN, "/work", {}, True)
    assert data["facts"]["host"] == {"name": "box"}
    assert data["outcomes"] == {"broke": 1, "compiled": 1, "failed": 1, "recompile_limit": 1}
    assert data["phases_us"]["first_calls"] == 40_000
    assert data["changed_settings"][0]["name"] == "recompile_limit"
    assert get(client, f"/runs/{RUN}/configs/a4797441f1dafbf1")["values"] == {
        "recompile_limit": 2,
        "verbose": False,
    }


def test_a_silent_recorders_run_is_shown_as_interrupted(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_run(store, "01J00000000000000000000002", state="running")
    data = get(client, "/runs/01J00000000000000000000002")
    assert (data["state"], data["shown_state"]) == ("running", "interrupted?")


def test_a_compile_has_all_that_belongs_to_it(client: FlaskClient) -> None:
    keys = {row["compile_id"]: row["id"] for row in get(client, f"/runs/{RUN}/compiles")}
    data = get(client, f"/runs/{RUN}/compiles/{keys['0/0']}")
    assert [compiled["compile_id"] for compiled in data["chain"]] == ["0/0", "0/1", "0/2"]
    assert (len(data["compilations"]), len(data["graph_breaks"]), len(data["cache_lookups"])) == (
        3,
        1,
        2,
    )
    assert data["restart_reasons"] == ["Builtin\nall of it"]
    assert data["stack"][0]["code"] == "f(x)"
    assert (
        get(client, f"/runs/{RUN}/compiles/{keys['1/0']}")["failures"][0]["text"]
        == f"Traceback {MARKUP}"
    )


def test_what_torch_did_not_record_is_null(client: FlaskClient, store: sqlite3.Connection) -> None:
    add_run(store, "01J00000000000000000000003", torch_version=None, gpu_name=None, git_dirty=None)
    row = get(client, "/runs/01J00000000000000000000003")
    assert (row["torch_version"], row["gpu_name"], row["git_dirty"], row["ended_us"]) == (
        None,
        None,
        None,
        None,
    )
    assert set(row["phases_us"].values()) == {None}


def test_runs_are_filtered_as_on_the_page(client: FlaskClient, store: sqlite3.Connection) -> None:
    add_run(
        store,
        "01J00000000000000000000004",
        name="other",
        started_us=START_US - 10,
        tags={"team": "a"},
    )

    def names(query: str) -> list[str]:
        return [row["name"] for row in get(client, f"/runs?{query}")]

    assert names("") == ["train", "other"]
    assert names("sort=started.asc") == ["other", "train"]
    assert names("tag=team=a") == names("host=box-1") == names("q=OTHER") == ["other"]
    assert get(client, "/runs?tag=team")[0]["tags"] == {"team": "a"}
    assert names("suite=nightly&state=finished") == ["train"]


def test_an_empty_database_answers_empty_lists(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    store.execute("delete from runs")
    assert get(client, "/runs") == get(client, "/graph_breaks") == get(client, "/recompiles") == []
    assert get(client, "/overview")["totals"]["run_count"] == 0
    assert get(client, "/graph_breaks/trends")["slots"] == []


def test_answers_have_an_etag_and_text_stays_text(client: FlaskClient) -> None:
    for path in (f"/runs/{RUN}/graph_breaks", f"/runs/{RUN}", "/openapi.json", "/overview"):
        answer = client.get(f"/api/v1{path}")
        assert answer.content_type == "application/json"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        again = client.get(f"/api/v1{path}", headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status_code, again.data) == (304, b"")
        head = client.head(f"/api/v1{path}")
        assert (head.status_code, head.data, head.headers["ETag"]) == (
            200,
            b"",
            answer.headers["ETag"],
        )


MANY_SQL = """
with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < 700)
insert into recompiles (run_id, process_id, sequence, compile_id, time_us)
select :run_id, :process_id, 10000 + n, '9/' || n, 1 from numbers
"""
GUARDS_SQL = """
with recursive numbers (n) as (select 0 union all select n + 1 from numbers where n < 99)
insert into guard_failures (recompile_id, position, category, reason)
select r.id, n, 'int_value', 'why' from recompiles as r join numbers where r.sequence > 10000
"""


def test_a_long_page_of_recompiles_has_every_guard(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    store.execute(MANY_SQL, {"run_id": RUN, "process_id": PROCESS})
    store.execute(GUARDS_SQL)
    rows = get(client, f"/runs/{RUN}/recompiles?limit=1000")
    assert [len(row["guards"]) for row in rows] == [100] * 700 + [1, 2]


def test_a_run_says_what_to_do_first(client: FlaskClient) -> None:
    run = get(client, f"/runs/{RUN}")
    assert [(problem["severity"], problem["title"]) for problem in run["problems"][:1]] == [
        ("bad", "Compile failed: BackendCompilerFailed")
    ]
    assert run["verdict"]["tone"] == "bad" and "Compile failed" in run["verdict"]["note"]
    causes = get(client, f"/runs/{RUN}/causes")
    assert causes[0]["is_eager"] and {cause["kind"] for cause in causes} == {
        "graph_break",
        "recompile",
    }
    assert get(client, f"/runs/{RUN}/causes?limit=1") == causes[:1]


def test_the_first_address_lists_the_others(client: FlaskClient) -> None:
    listed = client.get("/api/v1/").json["data"]
    assert {"method": "GET", "path": "/api/v1/openapi.json"}.items() <= listed[-1].items()
    assert ("GET", "/api/v1/runs/{run_id}") in {
        (operation["method"], operation["path"]) for operation in listed
    }
    assert all(operation["summary"] for operation in listed)
    assert client.get("/api/v1").status_code == 200
