from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from compileboard.app.benchmarks.trend_lines import find_changes
from compileboard.app.benchmarks.trend_queries import list_trend_runs
from compileboard.app.comparison.environment import FIELDS
from compileboard.app.core.engine import SqliteEngine
from compileboard.app.runs.model import build_summary
from compileboard.app.runs.queries import get_run
from compileboard.collectors.contract.events import PageFaultsCounted, ProcessStarted, RunStarted
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.terminal.run_summary import summarize
from tests.unit.app.clickhouse.published import OpenEngine

RUN = "01STACKCLIFF"


def record(store: sqlite3.Connection, *counts: PageFaultsCounted, room: bool = False) -> None:
    start = RunStarted(
        "recorder", 0, 1, RUN, "train", argv=["python", "train.py", "--lr", "3"], stack_room=room
    )
    process = ProcessStarted("p", 0, 2, RUN, pid=7, python_version="3.12.1")
    Ingestor(store, "test.db").ingest(RUN, [start, process, *counts])


def counted(time_us: int, fault_count: int, is_on_cliff: bool) -> PageFaultsCounted:
    return PageFaultsCounted("p", -time_us, time_us, 2_000_000, 1_500_000, fault_count, is_on_cliff)


def findings(store: sqlite3.Connection) -> list[object]:
    run = get_run(SqliteEngine(store), RUN)
    assert run is not None
    return build_summary(store, run).problems


def test_the_newest_count_of_faults_stands_whatever_its_order(store: sqlite3.Connection) -> None:
    record(store, counted(30, 140_000, True), counted(20, 7, False), counted(30, 140_000, True))
    row = store.execute(
        "select calm_fault_count, calm_us, calm_cpu_us, is_on_stack_cliff from processes"
    ).fetchone()
    assert tuple(row) == (140_000, 2_000_000, 1_500_000, 1)


def test_a_run_on_the_cliff_names_the_run_that_settles_it(store: sqlite3.Connection) -> None:
    record(store, counted(30, 140_000, True))
    (finding,) = findings(store)
    assert (finding.kind, finding.severity, finding.tab) == ("stack", "warn", "processes")
    assert finding.number == "70,000 page faults a second while nothing compiled"
    assert finding.code == "compileboard-collect run --stack-room -- python train.py --lr 3"
    assert "Python 3.12.1" in finding.advice and "docs/stack-cliff.md" in finding.advice


def test_a_run_that_had_room_is_not_told_to_take_room(store: sqlite3.Connection) -> None:
    record(store, counted(30, 140_000, True), room=True)
    (finding,) = findings(store)
    assert finding.code is None and finding.advice.startswith("The program had room")


@pytest.mark.parametrize("counts", [(), (counted(30, 140_000, False),)])
def test_a_run_off_the_cliff_has_nothing_to_do(
    store: sqlite3.Connection, counts: tuple[PageFaultsCounted, ...]
) -> None:
    record(store, *counts)
    assert findings(store) == []


def test_pages_and_api_have_faults_and_room(store: sqlite3.Connection, client: FlaskClient) -> None:
    record(store, counted(30, 140_000, True), room=True)
    assert "70,000/s over 2.00 s" in client.get(f"/runs/{RUN}?tab=processes").text
    assert "with room (--stack-room)" in client.get(f"/runs/{RUN}?tab=environment").text
    assert "Every call may map and unmap memory" in client.get(f"/runs/{RUN}").text
    assert client.get(f"/api/v1/runs/{RUN}").json["data"]["stack_room"] is True
    (process,) = client.get(f"/api/v1/runs/{RUN}/processes").json["data"]
    assert (process["calm_fault_count"], process["is_on_stack_cliff"]) == (140_000, True)


def test_show_names_the_command_that_settles_it(store: sqlite3.Connection, database: Path) -> None:
    record(store, counted(30, 140_000, True))
    summary = summarize(str(database), RUN)
    assert summary is not None
    assert (
        "up to 70,000 page faults a second" in summary.text()
        and "`run --stack-room` avoids it" in summary.text()
    )


def test_faults_that_nobody_counted_are_null(
    store: sqlite3.Connection, client: FlaskClient
) -> None:
    record(store)
    assert "Page faults between compiles" not in client.get(f"/runs/{RUN}?tab=processes").text
    (process,) = client.get(f"/api/v1/runs/{RUN}/processes").json["data"]
    assert (process["calm_us"], process["calm_fault_count"], process["is_on_stack_cliff"]) == (
        None,
        None,
        None,
    )


def test_a_patch_release_of_python_is_a_change_of_the_environment(
    open_engine: OpenEngine, store: sqlite3.Connection
) -> None:
    for number, version in enumerate(("3.12.1", "3.12.1", "3.12.13")):
        Ingestor(store, "test.db").ingest(
            f"R{number}",
            [
                RunStarted(f"r{number}", 0, number + 1, f"R{number}", "train"),
                ProcessStarted(
                    f"p{number}", 0, number + 1, f"R{number}", pid=1, python_version=version
                ),
            ],
        )
    changes = find_changes(
        sorted(
            list_trend_runs(open_engine(store), ["R0", "R1", "R2"]), key=lambda run: run.started_us
        )
    )
    assert [(change.run.id, change.label) for change in changes] == [("R2", "Python 3.12.13")]
    assert FIELDS["python"] == ("Python", "warns")
