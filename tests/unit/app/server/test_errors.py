"""A database that cannot be used is one clear message with the right status, as a page and as JSON;
nothing is lost.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from compileboard.collectors.store import connection as connect
from compileboard.version import VERSION
from tests.unit.app.seed import add_run

SPOILT = {
    "missing": (503, "There is no database at"),
    "text": (500, "is not a CompileBoard database"),
    "theirs": (500, "is an SQLite database of another program"),
    "folder": (500, "is a folder"),
    "older": (503, "compileboard migrate --db"),
    "newer": (503, "Upgrade CompileBoard"),
    "damaged": (500, "is damaged"),
}
PAGES = (
    "/",
    "/runs",
    "/runs/R1",
    "/runs/R1/delete",
    "/graph_breaks",
    "/recompiles",
    "/graph_breaks/1",
)


def _spoil(database: Path, how: str) -> None:
    if how in ("missing", "folder", "text", "theirs"):
        database.unlink()
    if how == "folder":
        database.mkdir()
    elif how == "text":
        database.write_text("this is no database\n" * 50)
    elif how == "damaged":
        content = bytearray(database.read_bytes())
        content[100:4096] = b"\xff" * 3996  # the schema's page
        database.write_bytes(content)
    elif how != "missing":
        with closing(sqlite3.connect(database)) as connection:
            connection.execute(
                "create table theirs (x)"
                if how == "theirs"
                else f"pragma user_version = {_version(how)}"
            )
            connection.commit()


def _version(how: str) -> int:
    return 0 if how == "older" else 99


def _assert_clear(client: FlaskClient, page: str, status: int, sentence: str) -> None:
    answer = client.get(page)
    assert answer.status_code == status, page
    if page.startswith("/api/") or page == "/healthz":
        assert sorted(answer.json or {}) == ["error", "errors", "ok", "status"]
        assert (answer.json or {})["ok"] is False
        assert (answer.json or {})["status"] == status
        assert sentence in (answer.json or {})["error"]
    else:
        assert answer.text.count(sentence) == 1
        assert "<h1" in answer.text
    assert "Traceback" not in answer.text
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("how", SPOILT)
def test_a_database_that_cannot_be_used_is_one_message(
    client: FlaskClient, database: Path, how: str
) -> None:
    _spoil(database, how)
    before = None if database.is_dir() or not database.exists() else database.read_bytes()
    for page in (*PAGES, "/healthz"):
        _assert_clear(client, page, *SPOILT[how])
    assert client.post("/runs/R1/annotate", data={"pinned": "1"}).status_code == SPOILT[how][0]
    assert client.post("/runs/R1/delete").status_code == SPOILT[how][0]
    assert (database.read_bytes() if database.is_file() else None) == before


def test_the_page_comes_back_with_the_database(client: FlaskClient, database: Path) -> None:
    content = database.read_bytes()
    database.unlink()
    assert client.get("/healthz").status_code == 503
    database.write_bytes(content)
    schema = connect.DATABASE_VERSION
    assert client.get("/healthz").json == {
        "ok": True,
        "version": VERSION,
        "schema": schema,
        "runs": 0,
    }


@contextmanager
def _locked(database: Path, how: str) -> Iterator[None]:
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        if how == "exclusive":
            other.execute("pragma locking_mode = exclusive")
        other.execute(f"begin {how}")
        yield
        other.execute("rollback")


def test_a_locked_database_says_try_again(
    client: FlaskClient, database: Path, store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "open_writer", partial(connect.open_writer, busy_timeout_ms=50))
    add_run(store, "R1")
    with _locked(database, "immediate"):
        answer = client.post("/runs/R1/annotate", data={"title": "mine"})
        assert answer.status_code == 503
        assert "is locked by another program" in answer.text
        assert client.get("/runs").status_code == 200  # readers never wait for a writer
    assert client.post("/runs/R1/annotate", data={"title": "mine"}).status_code == 303


def test_a_database_locked_against_readers_says_try_again(
    client: FlaskClient, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "BUSY_TIMEOUT_MS", 50)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("pragma journal_mode = delete")
    with _locked(database, "exclusive"):
        for page in ("/runs", "/healthz"):
            _assert_clear(client, page, 503, "is locked by another program")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_database_is_read_and_not_changed(
    client: FlaskClient, database: Path, store: sqlite3.Connection
) -> None:
    add_run(store, "R1")
    store.close()
    database.chmod(0o444)
    database.parent.chmod(0o555)
    try:
        assert "R1" in client.get("/runs").text
        answer = client.post("/runs/R1/annotate", data={"title": "mine"})
        assert answer.status_code == 500
        assert "cannot be written" in answer.text
    finally:
        database.parent.chmod(0o755)


@pytest.mark.parametrize(
    ("address", "status", "sentence"),
    [
        ("/none", 404, "There is no page at /none."),
        ("/runs/none", 404, "There is no run none"),
        ("/runs/none/delete", 404, "There is no run none"),
        ("/runs/none/compiles/1", 404, "There is no"),
        ("/graph_breaks/7", 404, "There is no graph break 7"),
        ("/graph_breaks/x", 404, "There is no graph break x"),
        ("/recompiles/99999999999999999999", 404, "There is no cause of recompiles 9999"),
        ("/runs?cursor=x", 400, "cursor: not a cursor of this list"),
        ("/api/v1/none", 404, "There is no page at /api/v1/none."),
    ],
)
def test_what_is_not_there_is_one_sentence(
    client: FlaskClient, address: str, status: int, sentence: str
) -> None:
    _assert_clear(client, address, status, sentence)


@pytest.mark.parametrize("address", ["caches/{}", "guards/{}", "steps/{}/trace.json"])
def test_a_number_that_no_database_holds_is_not_found(
    client: FlaskClient, store: sqlite3.Connection, address: str
) -> None:
    add_run(store, "R1")
    assert client.get(f"/runs/R1/{address.format(10**22)}").status_code == 404


def test_other_peoples_text_in_an_error_is_text(client: FlaskClient) -> None:
    answer = client.get("/runs/<script>alert(1)</script>")
    assert answer.status_code == 404
    assert "<script>alert" not in answer.text
    assert "&lt;script&gt;alert" in answer.text


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ({"pinned": "2"}, "is neither 0 nor 1"),
        ({"title": "x" * 201}, "a title has at most 200 characters"),
        ({"note": "x" * 20_001}, "a note has at most"),
    ],
)
def test_a_bad_annotation_changes_nothing(
    client: FlaskClient, store: sqlite3.Connection, form: dict[str, str], sentence: str
) -> None:
    add_run(store, "R1")
    answer = client.post("/runs/R1/annotate", data=form)
    assert answer.status_code == 400
    assert sentence in answer.text
    assert store.execute("select count(*) from run_annotations").fetchone()[0] == 0
