"""Deleted runs come back by page, API and command, and who did what is kept."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from compileboard.app import create_app
from compileboard.app.cli.main import main
from compileboard.app.core.settings import Settings
from compileboard.collectors.store.tokens import create_token
from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.seed import add_run
from tests.unit.app.series_changes import keep, make_change

pytestmark = on_both_engines


@pytest.fixture(autouse=True)
def run(store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    add_run(store, "R1", name="my <b>run</b>")
    monkeypatch.setattr("compileboard.app.core.db.start_indexing", lambda _path: 0)


def test_a_deleted_run_is_on_no_page_and_comes_back_from_activity(client: FlaskClient) -> None:
    assert client.post("/runs/R1/delete").status_code == 303
    assert "R1" not in client.get("/runs").text
    response = client.get("/runs/R1")
    assert (response.status_code, "can be restored" in response.text) == (404, True)
    page = client.get("/activity").text
    assert "my &lt;b&gt;run" in page and "/runs/R1/restore" in page
    assert client.post("/runs/R1/restore").headers["Location"] == "/runs/R1"
    assert client.get("/runs/R1").status_code == 200
    assert client.post("/runs/R1/restore").status_code == 404


def test_the_api_lists_and_restores_deleted_runs(client: FlaskClient) -> None:
    client.post("/runs/R1/delete")
    assert [row["run_id"] for row in client.get("/api/v1/deleted_runs").json["data"]] == ["R1"]
    assert client.post("/api/v1/deleted_runs/R1/restore").json["data"]["id"] == "R1"
    assert client.get("/api/v1/deleted_runs").json["data"] == []
    again = client.post("/api/v1/deleted_runs/R1/restore")
    assert (again.status_code, again.json["error"]) == (
        404,
        "There is no run R1 among the deleted ones.",
    )


def test_who_changed_what_is_kept_and_what_changed_nothing_is_not(
    database: Path, store: sqlite3.Connection, client: FlaskClient
) -> None:
    headers = {"User-Agent": "Firefox <b>"}
    client.post("/runs/R1/annotate", data={"title": "best"}, headers=headers)
    client.post("/runs/none/delete", headers=headers)
    trusting = create_app(Settings(db=str(database), trusted_proxies=1)).test_client()
    headers["Authorization"] = f"Bearer {create_token(store, 'Ada', ('write',), created_by='me')}"
    trusting.post("/runs/R1/delete", headers={**headers, "X-Forwarded-For": "192.0.2.7"})
    changes = client.get("/api/v1/audit").json["data"]
    assert [
        (change["action"], change["detail"], change["actor"], change["address"])
        for change in changes
    ] == [
        ("run.delete", None, "Ada", "192.0.2.7"),
        ("run.annotate", "title: best", None, "127.0.0.1"),
    ]
    assert {change["user_agent"] for change in changes} == {"Firefox <b>"}
    assert "Firefox &lt;b&gt;" in client.get("/activity?subject=R1").text


def test_commands_delete_restore_prune_and_say_who(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = ["--db", str(database)]
    assert main(["trash", "delete", "R1", *db]) == 0
    assert main(["trash", "delete", "R1", *db]) == 2
    assert main(["trash", "list", *db]) == 0
    assert main(["trash", "restore", "R1", *db]) == 0
    assert main(["trash", "delete", "R1", *db]) == 0
    assert main(["trash", "prune", "--days", "0", *db]) == 0
    assert main(["trash", "restore", "R1", *db]) == 2
    assert main(["trash", "restore", "NOPE", *db]) == 2
    assert main(["audit", *db]) == 0
    out, err = capsys.readouterr()
    assert "deleted for good: 1 run" in out and "R1 is deleted for good" in err
    assert "no deleted run 'NOPE'; `compileboard trash list` lists all" in err
    assert [line.split()[2] for line in out.splitlines()[-4:]] == [
        "run.prune",
        "run.delete",
        "run.restore",
        "run.delete",
    ]


def test_a_run_and_an_incident_have_the_name_that_people_use(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    keep(store, make_change())
    client.post("/runs/R1/delete")
    client.post(f"/incidents/{'f' * 16}", data={"action": "acknowledge", "author": "Ada"})
    page = " ".join(re.sub(r"<[^>]*>", " ", client.get("/activity").text).split())
    assert "Run deleted" in page and "Incident acknowledged" in page
    assert "my &lt;b&gt;run&lt;/b&gt;" in page and "Breaky: speedup down 11%" in page
    assert "by Ada" in page and "run.delete" not in page
