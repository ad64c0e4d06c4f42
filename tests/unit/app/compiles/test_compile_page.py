from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from compileboard.app.compiles.pages import write_value
from compileboard.collectors.contract.library_names import is_library_name
from tests.unit.app.recorded import MARKUP, RUN, record_run
from tests.unit.logs.loading import DDP, PROGRAMS, load


@pytest.fixture(autouse=True)
def run(store: sqlite3.Connection) -> None:
    record_run(store)


def _page(client: FlaskClient, store: sqlite3.Connection, compile_id: str) -> str:
    row = store.execute("select id from compiles where compile_id = ?", (compile_id,)).fetchone()
    response = client.get(f"/runs/{RUN}/compiles/{row['id']}")
    assert response.status_code == 200
    assert MARKUP not in response.text
    return response.text


def test_compile_page_has_every_field_with_unit_and_meaning(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    page = _page(client, store, "0/0")
    for text in (
        "Forward record",
        "Backward record",
        "Runtime record",
        "guard_count",
        "Guards installed.",
        "200000 µs",
    ):
        assert text in page
    assert f'href="/runs/{RUN}/configs/a4797441f1dafbf1"' in page
    assert "f(x)" in page


def test_compile_page_links_no_configuration_whose_text_the_run_lacks(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    store.execute("delete from process_configs")
    store.commit()
    page = _page(client, store, "0/0")
    assert '<span class="mono">a4797441f1dafbf1</span>' in page
    assert "/configs/" not in page


def test_compile_page_says_why_it_was_recompiled(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    page = _page(client, store, "0/1")
    assert "Why it was recompiled" in page
    assert re.search(r'href="/recompiles/\w{16}#fix">Fix<', page)
    older = store.execute("select id from compiles where compile_id = '0/0'").fetchone()["id"]
    assert f'href="/runs/{RUN}/compiles/{older}"' in page


def test_compile_page_shows_a_failure_and_a_limit(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    assert "failures-title" in _page(client, store, "1/0")
    assert "Recompiled too often" in _page(client, store, "0/2")


@pytest.mark.parametrize("key", ["999999", "abc", "1" * 30, "-1"])
def test_compile_page_answers_404_for_an_unknown_compile(client: FlaskClient, key: str) -> None:
    response = client.get(f"/runs/{RUN}/compiles/{key}")
    assert response.status_code == 404
    assert "has no compile number" in response.text


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("duration_us", 1500, "1.50 ms"),
        ("entire_frame_compile_time_s", 2.5, "2.50 s"),
        ("param_bytes", 2048, "2.00 KiB"),
        ("guard_count", 0, "0"),
        ("is_forward", True, "yes"),
        ("non_compliant_ops", [], "none"),
        ("start_time", 0.0, "1970-01-01 00:00:00 UTC"),
        ("a_field_of_the_future", {"a": 1}, '{\n "a": 1\n}'),
    ],
)
def test_write_value_uses_the_fields_unit(name: str, value: object, shown: str) -> None:
    assert write_value(name, value) == shown


def test_a_compile_in_a_librarys_wrapper_names_the_users_own_call(
    database: Path, client: FlaskClient
) -> None:
    run_id = load(database, DDP).run_id
    rows = client.get(f"/api/v1/runs/{run_id}/compiles").get_json()["data"]
    wrapped = [row for row in rows if row["file"] == "contextlib.py"]
    assert wrapped and {row["called_at"] for row in wrapped} == {"train_ddp.py:17"}
    assert {row["called_at"] for row in rows if row["file"] == "train_ddp.py"} == {None}
    page = client.get(f"/runs/{run_id}?tab=compiles").text
    assert page.count('called at <span class="mono">train_ddp.py:17</span>') >= len(wrapped)


def test_a_compile_in_a_packages_function_names_the_users_own_call(
    database: Path, client: FlaskClient
) -> None:
    run_id = load(database, PROGRAMS).run_id
    rows = client.get(f"/api/v1/runs/{run_id}/compiles?limit=100").get_json()["data"]
    packaged = [row for row in rows if row["file"].startswith(("transformers/", "torchvision/"))]
    assert packaged and {row["called_at"] for row in packaged} == {"models.py:104", "models.py:109"}
    assert {row["called_at"] for row in rows if row["file"] == "models.py"} == {None}
    labels = {
        row["label"] for row in packaged if row["function"] == "wrapper" and row["line"] == 933
    }
    assert any(
        "transformers/utils/generic.py:933" in label for label in labels
    )  # its own line stays in its name


def test_causes_problems_and_guards_of_a_packages_function_name_the_users_own_call(
    database: Path, client: FlaskClient
) -> None:
    run_id = load(database, PROGRAMS).run_id
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            """
            update compiles
            set outcome = 'recompile_limit'
            where function_id in (select id from functions where file like 'transformers/%')
            """
        )
    run = f"/api/v1/runs/{run_id}"
    lists = {
        "causes": client.get(f"{run}/causes").get_json()["data"],
        "problems": client.get(run).get_json()["data"]["problems"],
        "failed guards": client.get(f"{run}/recompile_causes").get_json()["data"],
        "limits": client.get(f"{run}/recompile_limits").get_json()["data"],
        "chains": client.get(f"{run}/recompile_chains").get_json()["data"],
        "overview": client.get("/api/v1/overview").get_json()["data"]["recompile_causes"],
    }
    for name, rows in lists.items():
        calls = {row["called_at"] for row in rows if is_library_name(row["file"] or "")}
        assert calls and calls <= {"models.py:104", "models.py:109"}, name
        assert {row["called_at"] for row in rows if row["file"] == "models.py"} <= {None}
    deepcopy = next(row for row in lists["causes"] if "copy.deepcopy()" in row["title"])
    assert (deepcopy["line"], deepcopy["called_at"]) == (1361, "models.py:109")
    assert 'called at <span class="mono">models.py:1' in client.get("/").text


@pytest.mark.parametrize("query", ["", "?tab=recompiles"])
def test_functions_of_a_package_name_the_users_own_call_on_every_tab(
    database: Path, client: FlaskClient, query: str
) -> None:
    run_id = load(database, PROGRAMS).run_id
    page = client.get(f"/runs/{run_id}{query}").text
    calls = set(re.findall(r'called at <span class="mono">([^<]+)</span>', page))
    assert calls and calls <= {"models.py:104", "models.py:109"}
