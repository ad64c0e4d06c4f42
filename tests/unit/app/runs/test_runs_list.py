"""The list of runs: filters, orders, pages that visit every run once, bad addresses."""

from __future__ import annotations

import html
import re
import sqlite3
import time
from typing import Any

import pytest
from flask.testing import FlaskClient

from compileboard.app.core.engine import SqliteEngine
from compileboard.app.core.page import FilterError
from compileboard.app.runs import queries as run_queries
from compileboard.app.runs.queries import ORDERS, RunFilter, count_runs, list_runs, read_run_filter
from compileboard.collectors.store.dashboard import annotate
from tests.unit.app.clickhouse.published import OpenEngine, on_both_engines
from tests.unit.app.seed import START_US, add_run

pytestmark = on_both_engines

DAY_US = 86_400_000_000
RUNS: tuple[dict[str, Any], ...] = (
    {"name": "train", "suite": "nightly", "tags": {"lr": "3", "gpu": "a"}, "host": "box-1"},
    {
        "name": "train",
        "suite": "release",
        "tags": {"lr": "4"},
        "host": "box-2",
        "state": "failed",
        "exit_code": 1,
    },
    {
        "name": "serve",
        "suite": None,
        "torch_version": "2.13.0",
        "git_commit": "abcdef" + "0" * 34,
        "state": "killed",
    },
    {
        "name": "50%_off",
        "suite": "nightly",
        "gpu_name": None,
        "gpu_count": 0,
        "command": "python a_b.py",
    },
    {
        "name": "plain",
        "suite": "nightly",
        "git_commit": None,
        "git_branch": "fix/50x",
        "command": "python axb.py",
    },
)


@pytest.fixture(autouse=True)
def runs(store: sqlite3.Connection) -> None:
    """Add runs R0 to R4, a day apart; R4 is the newest."""
    for number, run in enumerate(RUNS):
        totals = {
            "compile_count": number % 3,
            "recompile_count": 4 - number,
            "compile_us": number * 10,
        }
        add_run(store, f"R{number}", started_us=START_US + number * DAY_US, totals=totals, **run)
    annotate(store, "R2", title="My Baseline", note="keep: see ticket 7", now_us=START_US)


def _shown(client: FlaskClient, query: str = "") -> list[str]:
    answer = client.get(f"/runs?{query}")
    assert answer.status_code == 200, answer.text
    return re.findall(r'<a href="/runs/(R\d+)" title=', answer.text)


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", "R4 R3 R2 R1 R0"),
        ("q=TRAIN.py", "R2 R1 R0"),
        ("q=my+base", "R2"),
        ("q=ticket+7", "R2"),
        ("q=r3", "R3"),
        ("q=fix/", "R4"),
        ("q=50%25_", "R3"),  # neither % nor _ stands for anything else
        ("q=a_b", "R3"),
        ("q=%25", "R3"),
        ("q=%27+or+1=1--", ""),
        ("name=train", "R1 R0"),
        ("name=trai", ""),
        ("suite=nightly", "R4 R3 R0"),
        ("tag=lr", "R1 R0"),
        ("tag=lr=4", "R1"),
        ("tag=lr=", "R1 R0"),
        ("host=box-2", "R1"),
        ("gpu=CPU", "R3"),
        ("gpu=NVIDIA+H200", "R4 R2 R1 R0"),
        ("torch=2.13.0", "R2"),
        ("commit=ABCDEF", "R2"),
        ("state=killed", "R2"),
        ("since=2026-11-21", "R4 R3"),
        ("until=2026-11-19", "R1 R0"),
        ("since=2026-11-20&until=2026-11-20", "R2"),
        ("suite=nightly&name=train&state=finished", "R0"),
        ("name=train&state=killed", ""),
    ],
)
def test_each_filter_lets_its_runs_through(client: FlaskClient, query: str, shown: str) -> None:
    assert _shown(client, query) == shown.split()
    count = len(shown.split())
    assert f"{count} run{'s' if count != 1 else ''}" in client.get(f"/runs?{query}").text


@pytest.mark.parametrize("text", ["TRAIN", "r2", "baseline", "ticket 7", "fix/", "%", "zzz"])
def test_a_text_is_found_in_the_same_runs_whether_few_or_many_have_it(
    reader: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    engine, selection = SqliteEngine(reader), RunFilter(text=text)
    listed = list_runs(engine, selection).rows
    monkeypatch.setattr(run_queries, "_FEW", -1)
    assert (list_runs(engine, selection).rows, count_runs(engine, selection)) == (
        listed,
        len(listed),
    )


@pytest.mark.sampled(7)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("way", ["", ".asc"])
@pytest.mark.parametrize("limit", [2, 5])
def test_pages_visit_every_run_once_in_order(
    open_engine: OpenEngine,
    reader: sqlite3.Connection,
    store: sqlite3.Connection,
    order: str,
    way: str,
    limit: int,
) -> None:
    annotate(store, "R1", pinned=True, now_us=START_US)
    annotate(store, "R3", pinned=True, now_us=START_US)
    whole = [run.id for run in list_runs(open_engine(reader), sort=order + way, limit=50).rows]
    assert set(whole[:2]) == {"R1", "R3"}
    assert sorted(whole) == ["R0", "R1", "R2", "R3", "R4"]
    cursor, seen = None, []
    for _page in range(10):
        page = list_runs(open_engine(reader), sort=order + way, cursor=cursor, limit=limit)
        seen += [run.id for run in page.rows]
        cursor = page.next
        if cursor is None:
            break
    assert seen == whole


def test_orders_sort_by_what_they_say(client: FlaskClient) -> None:
    assert _shown(client, "sort=recompiles") == ["R0", "R1", "R2", "R3", "R4"]
    assert _shown(client, "sort=recompiles.asc") == ["R4", "R3", "R2", "R1", "R0"]
    assert _shown(client, "sort=compiles") == ["R2", "R4", "R1", "R3", "R0"]


def test_links_of_pages_keep_the_filter_and_end(client: FlaskClient) -> None:
    address, seen = "/runs?suite=nightly&limit=2", []
    for _page in range(3):
        text = client.get(address).text
        seen += re.findall(r'<a href="/runs/(R\d+)" title=', text)
        more = re.search(r'rel="next" href="([^"]+)"', text)
        if more is None:
            break
        address = html.unescape(more[1])
        assert "suite=nightly" in address
    assert seen == ["R4", "R3", "R0"]
    assert "That is all" in text


def test_a_run_added_meanwhile_shifts_no_page(
    open_engine: OpenEngine, reader: sqlite3.Connection, store: sqlite3.Connection
) -> None:
    first = list_runs(open_engine(reader), limit=2)
    add_run(store, "R9", started_us=START_US + 9 * DAY_US)
    second = list_runs(open_engine(reader), cursor=first.next, limit=2)
    assert [run.id for run in (*first.rows, *second.rows)] == ["R4", "R3", "R2", "R1"]


def test_pinned_runs_are_first_and_filters_hold_for_them(client: FlaskClient) -> None:
    assert client.post("/runs/R0/annotate", data={"pinned": "1"}).status_code == 303
    assert _shown(client)[0] == "R0"
    assert _shown(client, "suite=release") == ["R1"]
    client.post("/runs/R0/annotate", data={"pinned": "0"})
    assert _shown(client)[0] == "R4"


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("sort=name", "sort: 'name' is not one of started"),
        ("sort=started.up", "sort: 'started.up'"),
        ("state=done", "state: 'done' is not one of running"),
        ("since=yesterday", "since: 'yesterday' is not a date; write it as 2026-11-21"),
        ("until=2026-13-01", "until: '2026-13-01' is not a date"),
        ("since=2026-11-21&until=2026-11-20", "since: 2026-11-21 is after until: 2026-11-20"),
        ("commit=xyz", "commit: 'xyz' is not the beginning"),
        ("limit=0", "limit: '0' is not a whole number from 1 to 1000"),
        ("limit=1001", "limit: '1001'"),
        (f"limit=000000001{'9' * 19}", "limit: '000000001"),
        ("cursor=abc", "cursor: not a cursor"),
        ("cursor=WzEsMl0", "cursor: not a cursor"),
        ("colour=red", "colour: there is no such filter"),
        (f"q={'x' * 201}", "q: must be at most 200 characters"),
    ],
)
def test_a_bad_filter_is_one_sentence(client: FlaskClient, query: str, sentence: str) -> None:
    answer = client.get(f"/runs?{query}")
    assert answer.status_code == 400
    assert sentence in html.unescape(answer.text)


def test_dates_may_be_moments_with_a_zone() -> None:
    run_filter = read_run_filter({"since": "2026-11-21T01:00:00+01:00"})
    assert run_filter.since_us == read_run_filter({"since": "2026-11-21"}).since_us
    with pytest.raises(FilterError, match="is not a date"):
        read_run_filter({"since": "0001-01-01T00:00:00+14:00"})


def test_a_silent_recorder_shows_as_interrupted(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    now_us = time.time_ns() // 1000
    add_run(
        store,
        "R7",
        state="running",
        started_us=now_us - 100_000_000,
        heartbeat_us=now_us - 90_000_000,
    )
    add_run(store, "R8", state="running", started_us=now_us - 50_000_000, heartbeat_us=now_us)
    text = client.get("/runs?state=running").text
    assert re.findall(r'class="badge badge--(\w+)"[^>]*>([^<]+)<', text) == [
        ("busy", "running"),
        ("warn", "interrupted?"),
    ]
    assert "live.mjs" in text


def test_a_page_follows_a_silent_run_too(client: FlaskClient, store: sqlite3.Connection) -> None:
    """Its recorder may only have slept."""
    silent_since_us = time.time_ns() // 1000 - 90_000_000
    add_run(store, "R7", state="running", started_us=silent_since_us, heartbeat_us=silent_since_us)
    for page in ("/", "/runs"):
        text = client.get(page).text
        assert "interrupted?" in text.lower() and "live.mjs" in text, page


def test_what_was_not_recorded_is_never_zero(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_run(
        store,
        "R7",
        name="bare",
        torch_version=None,
        git_commit=None,
        host=None,
        gpu_name=None,
        gpu_count=1,
    )
    row = re.search(
        r"<tr>\s*<td class=\"text\">\s*<a href=\"/runs/R7\".*?</tr>",
        client.get("/runs").text,
        re.DOTALL,
    )
    assert row is not None
    assert row[0].count("not recorded") == 7  # and its four counts: nobody saw torch


@pytest.mark.parametrize(
    ("source", "torch_version", "fits"),
    [
        ("live", "2.12.1", True),
        ("live", None, True),
        ("bench", None, False),
        ("import", "2.12.1", False),
        ("import", "2.12.1+cpu", True),
        ("import", None, False),
    ],
)
def test_the_filter_cpu_takes_runs_that_are_known_to_be_on_one(
    open_engine: OpenEngine,
    store: sqlite3.Connection,
    reader: sqlite3.Connection,
    source: str,
    torch_version: str | None,
    fits: bool,
) -> None:
    run = {"gpu_name": None, "gpu_count": 0, "source": source, "torch_version": torch_version}
    add_run(store, "R9", **run)
    listed = list_runs(open_engine(reader), RunFilter(gpu="CPU"), pinned_first=False, limit=9).rows
    by_id = {row.id: row.device for row in listed}
    assert ("R9" in by_id) == fits and set(by_id.values()) == {"CPU"}


def test_a_run_with_compiles_alone_is_on_the_cpu_in_its_row_and_by_the_filter(
    store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    run = {"gpu_name": None, "gpu_count": 0, "source": "bench", "torch_version": None}
    add_run(store, "R9", **run)
    store.execute("update run_totals set compile_count = 3 where run_id = 'R9'")
    store.commit()
    engine, on_cpu = SqliteEngine(reader), RunFilter(gpu="CPU")
    listed = list_runs(engine, on_cpu, pinned_first=False, limit=9).rows
    assert {row.id: row.device for row in listed}["R9"] == "CPU"
    assert count_runs(engine, on_cpu) == len(listed)
