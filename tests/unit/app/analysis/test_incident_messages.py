"""What a finding's words claim is no more than its runs show."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from flask.testing import FlaskClient

from compileboard.app.analysis.incidents.messages import describe_commit_range, format_confidence
from compileboard.app.format import format_times
from compileboard.app.queries.dashboard.incidents import SeriesChange, load_findings
from tests.unit.app.benched import bench_suite
from tests.unit.app.seed import START_US
from tests.unit.app.series_changes import AFTER, keep, make_finding


def only(store: sqlite3.Connection, **changes: Any) -> SeriesChange:
    bench_suite(store)
    keep(store, make_finding(**changes))
    (finding,) = load_findings(store)
    return finding


@pytest.mark.parametrize("p_value", [0.0, 1e-95, 1e-40, 9.9e-5])
def test_confidence_of_a_few_runs_is_no_frequency(
    store: sqlite3.Connection, client: FlaskClient, p_value: float
) -> None:
    finding = only(store, p_value=p_value, evidence={"points": {"before": 4, "after": 3}})
    assert format_confidence(finding) == "far outside the noise of 7 runs"
    page = client.get(f"/findings/{finding.id}").text
    assert "far outside the noise of 7 runs" in page
    assert "p = " not in page and "10⁹" not in page


def test_confidence_that_runs_can_show_is_a_frequency(store: sqlite3.Connection) -> None:
    assert format_confidence(only(store, p_value=1e-4)) == "noise makes such a change once in 10\u202f000 times"


def test_range_within_a_minute_is_told_to_the_second(store: sqlite3.Connection) -> None:
    finding = only(store, evidence={"after": AFTER | {"started_us": START_US + 7_000_000}})
    assert "(2026-11-18 11:06:40) and " in describe_commit_range(finding)
    assert "(2026-11-18 11:06:47)" in describe_commit_range(finding)


def test_times_of_a_range_are_never_the_same_text_for_two_moments() -> None:
    assert format_times(0, 61_000_000) == ("1970-01-01 00:00", "1970-01-01 00:01")
    assert format_times(0, 59_000_000) == ("1970-01-01 00:00:00", "1970-01-01 00:00:59")
    assert format_times(None, 1) == ("not recorded", "1970-01-01 00:00")
