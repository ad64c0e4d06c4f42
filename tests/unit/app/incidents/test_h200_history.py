"""The demo's history as an H200 measured it, with inductor: what is found in it is what was done to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from compileboard.app.analysis.incidents.messages import describe_finding
from compileboard.app.queries.dashboard.incidents import SeriesChange, load_findings
from compileboard.app.queries.engine import SqliteEngine
from compileboard.app.queries.newest import read_clock
from compileboard.app.screens.fleet.comparison import read_comparison
from compileboard.collectors.store.connection import open_reader
from tests.tools.history import record_history


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = tmp_path_factory.mktemp("history") / "history.db"
    record_history(path)
    with closing(open_reader(path)) as reader:
        yield reader


def find(history: sqlite3.Connection, model: str, metric: str) -> SeriesChange:
    (change,) = [finding for finding in load_findings(history) if (finding.model, finding.metric) == (model, metric)]
    return change


def subject_of(history: sqlite3.Connection, run_id: str | None) -> str:
    return str(history.execute("select git_subject from runs where id = ?", (run_id,)).fetchone()[0])


def test_a_print_that_breaks_the_graph_halves_the_speedup_until_it_is_gone(history: sqlite3.Connection) -> None:
    change = find(history, "encoder", "speedup")
    assert describe_finding(change) == "encoder: speedup fell by 53.6 %, from 7.924× to 3.674×"
    assert subject_of(history, change.first_run_id) == "encoder: print the largest value while we look for NaNs"
    assert subject_of(history, change.recovered_run_id) == "encoder: the NaNs are found, print nothing"
    assert {"graph_break"} <= {cause["kind"] for cause in change.evidence["causes"]}


def test_a_choice_by_data_is_named_as_the_cause_of_what_it_costs(history: sqlite3.Connection) -> None:
    change = find(history, "ranker", "speedup")
    assert (change.direction, change.state, change.recovered_run_id) == ("worse", "confirmed", None)
    labels = [cause["label"] for cause in change.evidence["causes"]]
    assert "Dynamic shape operator in Ranker.forward" in labels
    assert any("size mismatch at index 0" in label for label in labels)


def test_a_speedup_that_rose_because_eager_mode_slowed_down_says_so(history: sqlite3.Connection) -> None:
    before, after = (row[0] for row in history.execute("select id from runs order by started_us limit 2 offset 13"))
    encoder, ranker = read_comparison(history, SqliteEngine(history), read_clock(), before, after).pairs
    assert (encoder.deltas["speedup"].word, ranker.deltas["speedup"].word) == ("eager", "noise")
    assert encoder.warning == "the speedup moved with eager mode, not with the compiled model"
    assert ranker.warning == ""


def test_one_run_that_failed_is_no_finding(history: sqlite3.Connection) -> None:
    failed = history.execute("select count(*) from results where status = 'failed'").fetchone()[0]
    assert failed == 1
    assert not [finding for finding in load_findings(history) if finding.metric == "passes"]


def test_a_run_that_lost_a_model_hides_no_step_of_the_suite(history: sqlite3.Connection) -> None:
    (change,) = [
        finding
        for finding in load_findings(history)
        if (finding.subject, finding.metric) == ("suite", "geomean_speedup")
    ]
    assert describe_finding(change) == "suite demo_history: geomean speedup fell by 37.3 %, from 5.876× to 3.685×"
