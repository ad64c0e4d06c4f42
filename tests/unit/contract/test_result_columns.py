"""A result's number is defined once: readers and writers share name, type and unit."""

from __future__ import annotations

import sqlite3
from dataclasses import fields
from pathlib import Path

from compileboard.app.benchmarks.metrics import METRICS
from compileboard.collectors.contract.result_columns import (
    ALIASES,
    RESULT_COLUMNS,
    STORE_NAMES,
    STORED,
)
from compileboard.collectors.store.ingest.rows import ADD_RESULT, NUMBERS
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.store.results import COLUMNS, ResultFields

UNITS = {"×": "", "%": "", "MB": "", "ms": "_ms", "s": "_s", "GB": "_gb", "µs": "_us", "": ""}


def test_a_stored_number_has_its_type_in_the_row_and_its_unit_in_its_name() -> None:
    types = {field.name: field.type for field in fields(ResultFields)}
    for name, column in STORED.items():
        assert types[name] == ("int | None" if column.is_count else "float | None"), name
        assert name == column.upstream + UNITS[column.unit]
    numbers = {name for name, kind in types.items() if kind in ("float | None", "int | None")} - {
        "batch_size"
    }
    assert set(STORED) == set(NUMBERS) == numbers


def test_the_table_has_a_column_for_each_and_the_statements_name_it(tmp_path: Path) -> None:
    migrate(str(tmp_path / "t.db"))
    with sqlite3.connect(tmp_path / "t.db") as connection:
        declared = {row[1]: row[2] for row in connection.execute("pragma table_info(results)")}
    for name, column in STORED.items():
        assert declared[name] == ("INTEGER" if column.is_count else "REAL")
        assert f"x.{name}" in COLUMNS and f":{name}" in ADD_RESULT


def test_the_app_shows_each_but_an_intervals_ends() -> None:
    shown = {metric.name: metric.unit for metric in METRICS}
    ends = ("speedup_low", "speedup_high")
    assert shown == {name: column.unit for name, column in STORED.items() if name not in ends}


def test_a_name_of_upstreams_means_one_column() -> None:
    names = [column.upstream for column in RESULT_COLUMNS]
    assert len(names) == len(set(names)) and len(STORE_NAMES) == len(STORED)
    assert not set(ALIASES) & set(names)
