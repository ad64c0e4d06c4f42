"""No page reads a table of events from end to end: what a page asks SQLite is asked again with
`explain query plan`.
"""

from __future__ import annotations

import sqlite3

import pytest
from flask.testing import FlaskClient

from compileboard.app.benchmarks.series_queries import list_run_points
from compileboard.app.core.engine import SqliteEngine
from compileboard.app.core.newest import list_running_ids, read_clock
from compileboard.app.runs.overview_queries import breaks_sql, write_scope
from compileboard.collectors.store import connection as connect
from tests.unit.app.benched import bench_suite
from tests.unit.app.pages import list_benched, list_explored, list_pages
from tests.unit.app.plan import BIG, assert_no_scan, list_scans
from tests.unit.app.repros.captured import capture_repros
from tests.unit.app.series_changes import keep_one_of_each


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the statements that SQLite runs for pages, with their values."""
    statements: list[str] = []
    really_open = connect.open_reader

    def open_and_listen(path: str) -> sqlite3.Connection:
        connection = really_open(path)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr("compileboard.app.core.store.open_reader", open_and_listen)
    return statements


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", list_pages)
def test_page_scans_no_table_of_events(
    recorded_client: FlaskClient, recorded_reader: sqlite3.Connection, ran: list[str], kind: str
) -> None:
    for page in list_pages[kind](recorded_reader):
        check_plans(recorded_client, recorded_reader, ran, page)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", list_explored)
def test_page_of_a_trace_log_scans_no_table_of_events(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection, ran: list[str], kind: str
) -> None:
    for page in list_explored[kind](explored_reader):
        check_plans(explored_client, explored_reader, ran, page)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", list_benched)
def test_page_of_results_scans_no_table_of_events(
    client: FlaskClient,
    store: sqlite3.Connection,
    reader: sqlite3.Connection,
    ran: list[str],
    kind: str,
) -> None:
    bench_suite(store)
    keep_one_of_each(store)
    capture_repros(store)
    for page in list_benched[kind](reader):
        check_plans(client, reader, ran, page)


@pytest.mark.parametrize(
    "page, index",
    [
        ("/runs?q=torch&limit=1", "runs_text"),
        ("/runs?host=box&limit=1", "runs_host"),
        ("/runs", "runs_torch"),
        ("/runs", "run_tags_value (key=? AND value>?)"),
        ("/compare", "run_totals_benched"),
        ("/", "runs_running"),
        ("/", "runs_trials"),
        ("/trends", "runs_branch"),
    ],
)
def test_page_across_runs_reads_an_index(
    recorded_client: FlaskClient,
    recorded_reader: sqlite3.Connection,
    ran: list[str],
    page: str,
    index: str,
) -> None:
    assert recorded_client.get(page).status_code == 200
    lists = [sql for sql in ran if "from runs" in sql or "from run_tags" in sql]
    plans = [list(recorded_reader.execute(f"explain query plan {sql}")) for sql in lists]
    assert any(f"INDEX {index}" in step["detail"] for plan in plans for step in plan), plans


def test_the_runs_of_an_incident_are_read_by_their_name(
    recorded_reader: sqlite3.Connection,
) -> None:
    ran: list[str] = []
    recorded_reader.set_trace_callback(ran.append)
    list(list_run_points(SqliteEngine(recorded_reader), ["train"]))
    plan = [step["detail"] for step in recorded_reader.execute(f"explain query plan {ran[0]}")]
    assert any("runs_name (name=?)" in detail for detail in plan), plan


@pytest.mark.parametrize(
    ("suite", "name"), [(None, None), ("nightly", None), (None, "train"), ("nightly", "train")]
)
def test_the_newest_runs_are_found_without_their_rows(
    recorded_reader: sqlite3.Connection, suite: str | None, name: str | None
) -> None:
    values = {"suite": suite, "result_suite": None, "name": name, "newest": 5, "limit": 5}
    sql = breaks_sql(write_scope(values))
    used = {key: value for key, value in values.items() if f":{key}" in sql}
    plan = [
        step["detail"]
        for step in SqliteEngine(recorded_reader).rows(f"explain query plan {sql}", used)
    ]
    runs = [detail for detail in plan if "INDEX runs_" in detail]
    assert len(runs) == 2 and all("USING COVERING INDEX" in detail for detail in runs), plan


def test_runs_that_are_running_are_read_of_their_index(
    recorded_reader: sqlite3.Connection,
) -> None:
    ran: list[str] = []
    recorded_reader.set_trace_callback(ran.append)
    list_running_ids(SqliteEngine(recorded_reader), read_clock())
    (plan,) = (
        [step["detail"] for step in recorded_reader.execute(f"explain query plan {sql}")]
        for sql in ran[:1]
    )
    assert plan == ["SEARCH runs USING INDEX runs_running (state=?)"]


def test_runs_of_one_page_are_not_counted_again(
    recorded_client: FlaskClient, ran: list[str]
) -> None:
    pages = [
        recorded_client.get(f"/api/v1/runs?q=torch&limit={limit}").get_json()["data"]
        for limit in (100, 1)
    ]
    assert len(pages[0]) > len(pages[1]) == 1
    for query, counts in (("q=torch", 0), ("q=torch&limit=1", 1)):
        ran.clear()
        assert f"{len(pages[0])} runs" in recorded_client.get(f"/runs?{query}").text
        assert sum(sql.startswith("select count(*) from runs") for sql in ran) == counts


def check_plans(client: FlaskClient, reader: sqlite3.Connection, ran: list[str], page: str) -> None:
    """Ask for a page, then for the plan of every statement that it ran."""
    ran.clear()
    assert client.get(page).status_code == 200, page
    statements = [sql for sql in ran if sql.lstrip().lower().startswith(("select", "with"))]
    assert statements, page
    for sql in statements:
        assert_no_scan(reader, sql)


def test_a_scan_is_noticed_under_any_name(recorded_reader: sqlite3.Connection) -> None:
    for table in BIG:
        assert list_scans(recorded_reader, f"select count(*) from {table} as x") == {table}
        assert list_scans(recorded_reader, f"select count(*) from {table}") == {table}
