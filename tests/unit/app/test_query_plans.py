"""No page reads a table of events from end to end: what a page asks SQLite is asked again with `explain query plan`."""

from __future__ import annotations

import sqlite3

import pytest
from flask.testing import FlaskClient

from collectors.store import connect
from tests.unit.app.pages import list_pages
from tests.unit.app.plan import BIG, assert_no_scan, list_scans


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the statements that SQLite runs for pages, with their values."""
    statements: list[str] = []
    really_open = connect.open_reader

    def open_and_listen(path: str) -> sqlite3.Connection:
        connection = really_open(path)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(connect, "open_reader", open_and_listen)
    return statements


@pytest.mark.parametrize("kind", list_pages)
def test_page_scans_no_table_of_events(
    recorded_client: FlaskClient, recorded_reader: sqlite3.Connection, ran: list[str], kind: str
) -> None:
    for page in list_pages[kind](recorded_reader):
        ran.clear()
        assert recorded_client.get(page).status_code == 200, page
        statements = [sql for sql in ran if sql.lstrip().lower().startswith(("select", "with"))]
        assert statements, page
        for sql in statements:
            assert_no_scan(recorded_reader, sql)


def test_a_scan_is_noticed_under_any_name(recorded_reader: sqlite3.Connection) -> None:
    for table in BIG:
        assert list_scans(recorded_reader, f"select count(*) from {table} as x") == {table}
        assert list_scans(recorded_reader, f"select count(*) from {table}") == {table}
