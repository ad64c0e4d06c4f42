"""The declaration of the tables: its types fit the names, and a database has what is declared."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.contract.records import TABLES
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.store.migrations import migrate

COLUMNS = [(table.name, column) for table in TABLES.values() for column in table.columns.values()]
UNITS = {"us": {"us", "time_us", "real"}, "bytes": {"bytes", "real"}, "count": {"count"}}
STORED = {"TEXT": {"text", "json"}, "REAL": {"real"}, "BLOB": {"blob"}}
INTEGERS = {"int", "bool", "count", "bytes", "time_us", "us"}


@pytest.mark.parametrize(("unit", "types"), UNITS.items())
def test_a_name_with_a_unit_has_its_type(unit: str, types: set[str]) -> None:
    named = [(table, column) for table, column in COLUMNS if column.name.endswith(f"_{unit}")]
    assert [(table, column.name) for table, column in named if column.type not in types] == []
    assert named


def test_a_database_has_the_declared_columns(tmp_path: Path) -> None:
    migrate(tmp_path / "t.db")
    with closing(open_reader(tmp_path / "t.db")) as reader:
        for table in TABLES.values():
            rows = reader.execute(f"pragma table_info({table.name})").fetchall()
            assert [row["name"] for row in rows] == [*table.columns]
            for row, column in zip(rows, table.columns.values()):
                assert column.type in STORED.get(row["type"], INTEGERS)
                assert column.is_nullable is not (row["notnull"] or row["pk"] > 0)
