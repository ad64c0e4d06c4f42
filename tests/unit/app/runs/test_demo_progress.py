"""How far `make demo` is, from the runs that are recorded."""

from __future__ import annotations

import sqlite3

import pytest
from flask.testing import FlaskClient

from compileboard.app.core.engine import Engine
from compileboard.app.core.newest import RecorderClock
from compileboard.app.runs.overview import RUN_COUNT, SUITE, DemoProgress, build_demo_progress
from compileboard.app.runs.queries import RunFilter, list_runs
from examples.demo_history import versions
from tests.unit.app.clickhouse.published import OpenEngine, on_both_engines
from tests.unit.app.seed import START_US, add_run

MINUTE_US = 60_000_000


def _add_versions(store: sqlite3.Connection, count: int, **newest: object) -> None:
    for number in range(count):
        started_us = START_US + number * MINUTE_US
        what = {
            "suite": SUITE,
            "name": "demo history, eager",
            "git_commit": f"{number:040}",
            "started_us": started_us,
        }
        add_run(store, f"R{number:02}", **what, ended_us=started_us + MINUTE_US // 2)
    if newest:
        add_run(store, "R99", **({"suite": SUITE, "name": "demo history, eager"} | newest))
    store.commit()


def _build(engine: Engine, minute: float) -> DemoProgress | None:
    newest = list_runs(engine, RunFilter(), pinned_first=False).rows
    return build_demo_progress(engine, newest, RecorderClock(START_US + int(minute * MINUTE_US)))


def test_progress_is_counted_from_the_runs_that_ended(
    open_engine: OpenEngine, store: sqlite3.Connection
) -> None:
    started_us = START_US + 6 * MINUTE_US
    _add_versions(store, 6, state="running", started_us=started_us, heartbeat_us=started_us)
    progress = _build(open_engine(store), 6.1)
    assert progress == DemoProgress(6, RUN_COUNT, (RUN_COUNT - 6) * MINUTE_US // 2)
    assert progress.note == f"6 of {RUN_COUNT} runs measured, about 4 min left"


def test_between_two_versions_it_goes_on_and_a_minute_later_it_has_stopped(
    open_engine: OpenEngine, store: sqlite3.Connection
) -> None:
    _add_versions(store, 3)
    assert _build(open_engine(store), 2.9) is not None
    assert _build(open_engine(store), 4) is None


@pytest.mark.parametrize("newest", [{"suite": "nightly"}, {"suite": None}])
def test_a_newer_run_of_something_else_ends_it(
    open_engine: OpenEngine, store: sqlite3.Connection, newest: dict[str, str | None]
) -> None:
    _add_versions(store, 3, started_us=START_US + 3 * MINUTE_US, **newest)
    assert _build(open_engine(store), 3.1) is None


def test_the_dashboard_expects_the_runs_that_the_example_measures() -> None:
    count = sum(1 + len(version.also) for version in versions.VERSIONS)
    assert (versions.SUITE, count) == (SUITE, RUN_COUNT)


def test_a_whole_history_has_no_progress(
    open_engine: OpenEngine, store: sqlite3.Connection
) -> None:
    _add_versions(store, RUN_COUNT)
    assert _build(open_engine(store), RUN_COUNT - 0.4) is None


@on_both_engines
def test_the_overview_shows_it(
    client: FlaskClient, store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    _add_versions(store, 2)
    now = RecorderClock(START_US + int(1.6 * MINUTE_US))
    monkeypatch.setattr("compileboard.app.runs.overview_pages.get_clock", lambda: now)
    page = client.get("/").text
    assert (
        f"2 of {RUN_COUNT} runs measured" in page
        and f'<progress class="progress" max="{RUN_COUNT}"' in page
    )
