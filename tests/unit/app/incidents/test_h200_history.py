"""The demo's history on an H200, with inductor: what is found is what was done to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from compileboard.app.benchmarks.model import build_model
from compileboard.app.comparison.compare import build_comparison
from compileboard.app.core.newest import read_clock
from compileboard.app.core.store import FileStore
from compileboard.app.incidents.model import SeriesChange
from compileboard.app.incidents.page_model import build_incident, build_sparkline
from compileboard.app.incidents.queries import load_changes, load_incidents
from compileboard.app.runs.overview import build_overview, read_overview_filters
from compileboard.collectors.store.connection import open_reader
from tests.tools.history import record_history
from tests.unit.app.clickhouse.published import OpenEngine


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = tmp_path_factory.mktemp("history") / "history.db"
    record_history(path)
    with closing(open_reader(path)) as reader:
        yield reader


def find(history: sqlite3.Connection, model: str, metric: str) -> SeriesChange:
    (change,) = [
        finding
        for finding in load_changes(history)
        if (finding.model, finding.metric) == (model, metric)
    ]
    return change


def subject_of(history: sqlite3.Connection, run_id: str | None) -> str:
    return str(
        history.execute("select git_subject from runs where id = ?", (run_id,)).fetchone()[0]
    )


def test_a_print_that_breaks_the_graph_halves_the_speedup_until_it_is_gone(
    history: sqlite3.Connection,
) -> None:
    change = find(history, "encoder", "speedup")
    assert change.sentence == "encoder: speedup 7.92× → 3.67× (−54%)"
    assert (
        subject_of(history, change.first_run_id)
        == "encoder: print the largest value while we look for NaNs"
    )
    assert (
        subject_of(history, change.recovered_run_id) == "encoder: the NaNs are found, print nothing"
    )
    assert {"graph_break"} <= {cause["kind"] for cause in change.evidence["causes"]}


def test_a_choice_by_data_is_named_as_the_cause_of_what_it_costs(
    history: sqlite3.Connection,
) -> None:
    change = find(history, "ranker", "speedup")
    assert (change.direction, change.state, change.recovered_run_id) == ("worse", "confirmed", None)
    labels = [cause["label"] for cause in change.evidence["causes"]]
    assert "Dynamic shape operator in Ranker.forward" in labels
    assert any("size mismatch at index 0" in label for label in labels)


def test_a_speedup_that_rose_because_eager_mode_slowed_down_says_so(
    history: sqlite3.Connection,
) -> None:
    before, after = (
        row[0]
        for row in history.execute("select id from runs order by started_us limit 2 offset 13")
    )
    encoder, ranker = build_comparison(
        FileStore(history), read_clock(), before, after
    ).comparison.pairs
    assert (encoder.deltas["speedup"].word, ranker.deltas["speedup"].word) == ("eager", "noise")
    assert encoder.warning == "speedup changed because eager mode did"
    assert ranker.warning == ""


def test_what_came_in_with_one_commit_is_one_incident(history: sqlite3.Connection) -> None:
    incidents = sorted((stored for stored in load_incidents(history)), key=lambda row: row.first_us)
    assert [(row.title, row.state, row.change_count) for row in incidents] == [
        ("encoder: speedup down 54%, graph break at encoder.py:51", "recovered", 7),
        ("ranker: speedup down 54%, graph break at ranker.py:70", "open", 9),
        ("ranker: fails to compile, TorchRuntimeError at ranker.py:71", "recovered", 1),
    ]
    ranker = incidents[1]
    assert (ranker.first_bad.short_commit, ranker.last_good and ranker.last_good.short_commit) == (
        "c7ed8b7",
        "bd77c9e",
    )
    assert [metric.label for metric in ranker.headlines] == ["Speedup", "Latency", "Graph breaks"]


def test_the_cause_has_its_line_and_its_checks(history: sqlite3.Connection) -> None:
    (ranker,) = (stored for stored in load_incidents(history) if stored.state == "open")
    cause = ranker.cause
    assert ranker.has_one_cause and cause is not None
    assert (cause.file, cause.line, cause.function) == ("ranker.py", 70, "Ranker.forward")
    assert (
        cause.source_line
        == "known = known[torch.rand(len(known), device=known.device) < self.share]"
    )
    assert [(check.passed, check.text) for check in cause.checks] == [
        (True, "First seen in c7ed8b7, the run where speedup changed"),
        (
            True,
            (
                "Explains the recompile after it: 'value 0 on the stack' size mismatch at index 0. "
                "expected 24, actual 33"
            ),
        ),
        (True, "GPU, driver, torch and triton unchanged"),
        (True, "Can explain all 9 changed metrics"),
    ]


def test_a_run_that_lost_a_model_hides_no_step_of_the_suite(history: sqlite3.Connection) -> None:
    (change,) = [
        finding
        for finding in load_changes(history)
        if (finding.subject, finding.metric) == ("suite", "geomean_speedup")
    ]
    assert change.sentence == "Suite demo_history: geomean speedup 5.88× → 3.69× (−37%)"


def test_an_incident_has_the_fix_of_its_cause_and_the_newest_value(
    history: sqlite3.Connection,
) -> None:
    (ranker,) = (stored for stored in load_incidents(history) if stored.state == "open")
    screen = build_incident(FileStore(history), ranker.id, read_clock())
    assert screen is not None and screen.fixable is not None and screen.series is not None
    assert screen.fixable.content_ids and screen.fixable.advice[0].helps
    newest = screen.series.newest
    assert (
        newest is not None and newest[0].git_commit and newest[0].git_commit.startswith("c2fb911")
    )
    assert round(newest[1], 2) == 2.15


def test_a_run_with_worse_models_says_how_many(history: sqlite3.Connection) -> None:
    filters = read_overview_filters({})
    screen = build_overview(FileStore(history), filters, read_clock(), 100)
    statuses = {recent.run.git_commit: recent.status for recent in screen.runs}
    assert {str(commit)[:7]: status for commit, status in statuses.items()} == {
        "c2fb911": ("1 worse", "bad"),
        "9549806": ("1 worse", "bad"),
        "fae4820": ("1 of 2 failed", "bad"),
        "354797c": ("1 worse", "bad"),
        "4486d07": ("1 worse", "bad"),
        "c7ed8b7": ("2 worse", "bad"),
        "bd77c9e": ("1 worse", "bad"),
        "b765756": ("1 worse", "bad"),
    }
    assert [recent.has_failed for recent in screen.runs].count(True) == 1


def test_a_run_is_not_green_while_a_change_waits_to_be_confirmed(
    history: sqlite3.Connection,
) -> None:
    screen = build_overview(FileStore(history), read_overview_filters({}), read_clock(), 100)
    recent = replace(screen.runs[0], worse=())
    assert recent.status == ("Finished", "good")
    assert replace(recent, is_suspected=True).status == ("Finished", "quiet")


def test_a_models_page_lists_what_is_still_worse_first(history: sqlite3.Connection) -> None:
    screen = build_model(FileStore(history), "ranker", {}, None)
    assert [change.metric for change in screen.changes[:2]] == ["speedup", "abs_latency_ms"]
    assert screen.changes[-1].metric == "passes"  # recovered


def test_a_sparkline_is_shaded_while_the_incident_lasts(
    open_engine: OpenEngine, history: sqlite3.Connection
) -> None:
    spans = {}
    for stored in load_incidents(history):
        sparkline = build_sparkline(history, open_engine(history), stored, read_clock())
        assert sparkline is not None and len(sparkline.values) == 14
        spans[stored.title[:14]] = (sparkline.bad_from, sparkline.bad_to)
    assert spans == {
        "encoder: speed": (5, 9),
        "ranker: speedu": (8, 14),
        "ranker: fails ": (11, 12),
    }
