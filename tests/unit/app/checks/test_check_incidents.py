"""`check --rule incidents` fails while something that the run measured has an open incident."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from compileboard.app.cli.main import main
from compileboard.collectors.store.incident_triage import save_comment
from tests.unit.app.benched import RUNS, bench_suite
from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.series_changes import keep, make_change

Say = pytest.CaptureFixture[str]


def check(database: Path, *more: str) -> int:
    return main(["check", "--db", str(database), "--run", RUNS[2], "--rule", "incidents", *more])


def test_an_open_incident_fails(database: Path, store: sqlite3.Connection, capsys: Say) -> None:
    bench_suite(store)
    keep(store, make_change())
    assert check(database) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"FAIL: 1 verdict of run {RUNS[2]} fails\n")
    assert "OPEN_INCIDENT  incidents  Breaky  speedup down 11%, graph break at " in out
    assert "since e5f6a7b, after a1b2c3d (incident ffffffffffffffff)" in out
    assert out.endswith(
        "or acknowledge the incident, or ignore it with a reason, at /incidents/ID.\n"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"direction": "better"},
        {"recovered_run_id": RUNS[2]},
        {"state": "withdrawn"},
        {"model": "Elsewhere"},
        {"suite": "other"},
        {"hardware": "NVIDIA A100"},
        {"branch": "feature"},
        {"first_us": 2**60},
    ],
    ids=str,
)
def test_what_does_not_concern_the_run_passes(
    database: Path, store: sqlite3.Connection, changes: dict[str, Any]
) -> None:
    bench_suite(store)
    store.execute("update runs set git_branch = 'main'")
    keep(store, make_change(**changes))
    assert check(database) == 0


def test_what_is_unconfirmed_is_shown_and_passes(
    database: Path, store: sqlite3.Connection, capsys: Say
) -> None:
    bench_suite(store)
    keep(store, make_change(state="unconfirmed", confirmed_us=None))
    assert check(database, "--all") == 0
    assert "UNCONFIRMED  incidents  Breaky  speedup down 11%" in capsys.readouterr().out


def test_an_acknowledged_incident_passes(database: Path, store: sqlite3.Connection) -> None:
    bench_suite(store)
    keep(store, make_change())
    save_comment(store, "f" * 16, "acknowledge", author="Ada")
    assert check(database) == 0


def test_suites_and_models_that_are_gone_count(
    database: Path, store: sqlite3.Connection, capsys: Say
) -> None:
    bench_suite(store)
    suite = {
        "subject": "suite",
        "model": "",
        "batch_size": 0,
        "metric": "geomean_speedup",
        "hardware": "",
    }
    stopped = {
        "kind": "vanished",
        "model": "Sleeper",
        "after_value": None,
        "relative": None,
        "p_value": None,
    }
    keep(store, make_change(id="suite", **suite), make_change(id="gone", **stopped))
    assert check(database) == 1
    out = capsys.readouterr().out
    assert "suite bench_models" in out and "Sleeper" in out
    assert check(database, "--model", "Bert4") == 0


def test_where_nobody_has_looked_it_cannot_be_decided(
    database: Path, store: sqlite3.Connection, capsys: Say
) -> None:
    bench_suite(store)
    assert check(database) == 2
    assert "`compileboard incidents update` does it" in capsys.readouterr().err


@on_both_engines
def test_the_api_says_the_same(client: FlaskClient, store: sqlite3.Connection) -> None:
    bench_suite(store)
    keep(store, make_change())
    answer = client.get(f"/api/v1/check?run={RUNS[2]}&baseline={RUNS[1]}&rule=incidents").get_json()
    assert "OPEN_INCIDENT" in str(answer)
