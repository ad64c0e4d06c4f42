"""What a finding's words claim is no more than its runs show."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from compileboard.app.core.format import format_times
from compileboard.app.incidents.model import (
    SeriesChange,
    describe_headline,
    describe_values,
)
from compileboard.app.incidents.queries import load_changes
from tests.unit.app.benched import bench_suite
from tests.unit.app.seed import START_US
from tests.unit.app.series_changes import AFTER, keep, make_change


def only(store: sqlite3.Connection, **changes: Any) -> SeriesChange:
    bench_suite(store)
    keep(store, make_change(**changes))
    (change,) = load_changes(store)
    return change


@pytest.mark.parametrize(
    ("changes", "confidence"),
    [
        ({"p_value": 1e-95}, "p < 0.0001"),
        ({"p_value": 0.003}, "p = 0.003"),
        ({"p_value": 1e-9, "metric": "graph_breaks"}, "certain (count)"),
        ({"p_value": None, "metric": "passes"}, "certain"),
        (
            {"p_value": None, "kind": "vanished", "after_value": None},
            "the rest of the suite went on",
        ),
    ],
)
def test_confidence_is_no_smaller_than_runs_can_show(
    store: sqlite3.Connection, changes: dict[str, Any], confidence: str
) -> None:
    assert only(store, **changes).confidence == confidence


@pytest.mark.parametrize(
    ("changes", "headline", "values"),
    [
        ({}, "speedup down 11%", "0.65× → 0.578×"),
        ({"metric": "abs_latency_ms", "before_value": 0.119, "after_value": 0.307,
          "relative": 1.59},
         "latency up 2.6×", "0.119 ms → 0.307 ms"),
        ({"metric": "graph_breaks", "before_value": 0.0, "after_value": 2.0, "relative": None},
         "graph breaks 0 → 2", "0 → 2"),
        ({"metric": "graph_breaks", "before_value": 31551.0, "after_value": 40000.0,
          "relative": 0.27},
         "graph breaks 31,551 → 40,000", "31,551 → 40,000"),
        ({"metric": "compilation_latency_s", "kind": "drift", "before_value": 2.0,
          "after_value": 2.2, "relative": 0.1},
         "compile time up gradually 10%", "2 s → 2.2 s"),
        ({"metric": "passes", "direction": "better"}, "passes again", "failed → passed"),
    ],
)  # fmt: skip
def test_a_headline_has_direction_and_size(
    store: sqlite3.Connection, changes: dict[str, Any], headline: str, values: str
) -> None:
    change = only(store, **changes)
    assert (describe_headline(change), describe_values(change)) == (headline, values)


def test_range_within_a_minute_is_told_to_the_second(store: sqlite3.Connection) -> None:
    change = only(store, evidence={"after": AFTER | {"started_us": START_US + 7_000_000}})
    assert "(2026-11-18 11:06:40) and " in change.range
    assert "(2026-11-18 11:06:47)" in change.range


def test_times_of_a_range_are_never_the_same_text_for_two_moments() -> None:
    assert format_times(0, 61_000_000) == ("1970-01-01 00:00", "1970-01-01 00:01")
    assert format_times(0, 59_000_000) == ("1970-01-01 00:00:00", "1970-01-01 00:00:59")
    assert format_times(None, 1) == ("not recorded", "1970-01-01 00:00")
